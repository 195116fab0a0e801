"""A good S3 server for a file's tests, and for each of them a faulty link to it and clients on both of its ends."""

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fault_s3.impatient import LOG, opened
from tests.fault_s3.moto_server import aws_environment, moto_s3, store_url
from tiered.cold.object_store import S3Address, parse_store_url
from tiered.cold.s3.store import S3Store
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


@pytest.fixture
def prefix() -> str:
    return f"p-{uuid4()}"


@pytest.fixture
def store(faults: FaultyS3, prefix: str) -> Iterator[S3Store]:
    """The client under test: it reaches the good server only through the faults."""
    with aws_environment():
        store = opened(faults.url, prefix)
        yield store
        store.close()


@pytest.fixture
def truth(endpoint_url: str, prefix: str) -> Iterator[S3Store]:
    """The same bucket, seen directly."""
    with aws_environment():
        store = opened(endpoint_url, prefix)
        yield store
        store.close()


@pytest.fixture
def log_fd(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "segment.log").write_bytes(LOG)
    fd = os.open(tmp_path / "segment.log", os.O_RDONLY)
    yield fd
    os.close(fd)
