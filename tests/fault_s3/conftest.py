"""A good S3 server for a file's tests, and a faulty link to it for each of them."""

from collections.abc import Iterator

import pytest

from tests.fault_s3.moto_server import aws_environment, moto_s3
from tiered.testing.faulty_s3 import FaultyS3, faulty_s3


@pytest.fixture(scope="module")
def endpoint_url() -> Iterator[str]:
    with moto_s3() as url:
        yield url


@pytest.fixture
def faults(endpoint_url: str) -> Iterator[FaultyS3]:
    with faulty_s3(endpoint_url) as faults, aws_environment():
        yield faults
