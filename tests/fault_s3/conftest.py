"""A good S3 server for a file's tests, and a faulty link to it for each of them."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.fault_s3.moto_server import aws_environment, moto_s3, store_url
from tiered.cold.object_store import S3Address, parse_store_url
from tiered.testing.faulty_s3 import FaultyS3, faulty_s3


@pytest.fixture(scope="module")
def endpoint_url() -> Iterator[str]:
    with moto_s3() as url:
        yield url


@pytest.fixture
def faults(endpoint_url: str) -> Iterator[FaultyS3]:
    with faulty_s3(endpoint_url) as faults, aws_environment():
        yield faults


@pytest.fixture
def address(faults: FaultyS3) -> S3Address:
    """A prefix of this test's own, behind the link."""
    address = parse_store_url(store_url(faults.url, f"p-{uuid4()}"))
    assert isinstance(address, S3Address)
    return address
