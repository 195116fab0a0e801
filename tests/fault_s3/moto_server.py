"""A good S3 server for tests: moto on loopback in a thread, with one bucket and made-up credentials."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

BUCKET = "tiered-test"

_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    # Nothing on this machine may leak into the tests.
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def aws_environment() -> Iterator[None]:
    """AWS's usual chain finds credentials that open nothing."""
    with patch.dict(os.environ, _ENVIRONMENT):
        yield


@contextmanager
def moto_s3() -> Iterator[str]:
    """The endpoint URL of a running server that holds `BUCKET`. It is slow on ranges: keep objects small."""
    import boto3
    from moto.server import ThreadedMotoServer

    with aws_environment():
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        try:
            host, port = server.get_host_and_port()
            url = f"http://{host}:{port}"
            client = boto3.session.Session().client("s3", endpoint_url=url, region_name="us-east-1")
            client.create_bucket(Bucket=BUCKET)
            client.close()
            yield url
        finally:
            server.stop()


def store_url(endpoint_url: str, prefix: str = "", **parameters: str) -> str:
    """The URL of an S3 store in `BUCKET` behind that endpoint."""
    more = "".join(f"&{name}={value}" for name, value in parameters.items())
    return f"s3://{BUCKET}/{prefix}?endpoint_url={endpoint_url}{more}"
