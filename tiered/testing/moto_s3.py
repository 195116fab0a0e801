"""A good S3 server in this process: moto on loopback, with one bucket of its own and made-up credentials.

Owns the server's thread and the bucket, and that of several conditional writes on one key exactly one wins, as S3
promises: moto looks first and writes then, each request in a thread of its own. moto keeps every bucket of a process in
one place, so that `mock_aws` and moto's reset, elsewhere in the same process, empty this one too.
"""

import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

REGION = "us-east-1"
POLL_S = 0.02

ENVIRON = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": REGION,
    # Nothing on this machine may leak into the tests.
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Credentials that open nothing, for AWS's usual chain."""
_SET_ELSEWHERE = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
_changing = threading.RLock()
_deciding = threading.Lock()
_Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


@contextmanager
def aws_environment() -> Iterator[None]:
    """AWS's usual chain finds credentials that open nothing: for the moment in which a client is made.

    One thread at a time, for the environment is the whole process's; that one may enter it again.
    """
    from unittest.mock import patch  # It takes longer to import than this package.

    with _changing, patch.dict(os.environ, ENVIRON):
        for name in _SET_ELSEWHERE:
            os.environ.pop(name, None)
        yield


@contextmanager
def moto_s3(bucket: str) -> Iterator[str]:
    """The endpoint URL of a running server that holds `bucket`, empty. It is slow on ranges: keep objects small.

    Raises MissingMotoError where moto is not installed.
    """
    serving, application = _moto()
    server = serving.make_server("127.0.0.1", 0, application, threaded=True, request_handler=_quiet(serving))
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": POLL_S}, name="tiered-moto", daemon=True
    )
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        client = s3_client(url)
        try:
            client.create_bucket(Bucket=bucket)
            yield url
            _empty(client, bucket)
        finally:
            client.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def s3_client(endpoint_url: str) -> Any:
    """boto3's client for that endpoint, whatever the environment says."""
    import boto3

    with aws_environment():
        return boto3.session.Session().client("s3", endpoint_url=endpoint_url, region_name=REGION)


class MissingMotoError(ImportError):
    """`s3="moto"` was asked for, and moto is not there."""


def _moto() -> tuple[Any, Any]:
    try:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug import serving
    except ImportError as error:
        raise MissingMotoError(
            f"s3=\"moto\" needs moto's server ({error}): pip install 'moto[s3,server]', or leave s3 away to keep "
            "objects in a local folder"
        ) from error
    return serving, _atomic(DomainDispatcherApplication(create_backend_app))


def _atomic(application: _Application) -> _Application:
    """The same, with one conditional write at a time. Its bytes are there before: a slow client holds up nobody."""

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        is_write = environ["REQUEST_METHOD"] in ("PUT", "POST", "DELETE")
        if not is_write or not ("HTTP_IF_MATCH" in environ or "HTTP_IF_NONE_MATCH" in environ):
            return application(environ, start_response)
        if length := environ.get("CONTENT_LENGTH"):
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
        with _deciding:
            return application(environ, start_response)

    return answer


def _quiet(serving: Any) -> Any:
    class Handler(serving.WSGIRequestHandler):  # type: ignore[misc]
        def log(self, *_: object) -> None:
            pass  # A line for each request is not what a test wants to read.

    return Handler


def _empty(client: Any, bucket: str) -> None:
    """Objects in moto's memory would stay there until the process ends.

    A test that resets moto, or another server of this process with a bucket of the same name, may have been first.
    """
    with suppress(client.exceptions.NoSuchBucket):
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            keys = [{"Key": each["Key"]} for each in page.get("Contents", [])]
            if keys:
                client.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
        client.delete_bucket(Bucket=bucket)
