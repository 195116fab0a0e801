"""A good S3 server for tests: moto on loopback in a thread, with one bucket and made-up credentials."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from unittest.mock import patch

from botocore.loaders import create_loader

from tiered.testing import moto_s3 as testing

BUCKET = "tiered-test"
# botocore reads what S3 is from a megabyte of JSON, anew for each session: three quarters of what a client costs.
_one_loader = cache(create_loader)


@contextmanager
def aws_environment() -> Iterator[None]:
    """AWS's usual chain finds credentials that open nothing, for as long as a test lasts."""
    with patch.dict(os.environ, testing.ENVIRON):
        yield


@contextmanager
def moto_s3() -> Iterator[str]:
    """The endpoint URL of a running server that holds `BUCKET`, with the environment that opens it; clients that this
    process makes meanwhile are cheap.
    """
    with (
        patch("botocore.session.create_loader", _one_loader),
        testing.moto_s3(BUCKET) as url,
        aws_environment(),
    ):
        yield url


def store_url(endpoint_url: str, prefix: str = "", **parameters: str) -> str:
    """The URL of an S3 store in `BUCKET` behind that endpoint."""
    more = "".join(f"&{name}={value}" for name, value in parameters.items())
    return f"s3://{BUCKET}/{prefix}?endpoint_url={endpoint_url}{more}"
