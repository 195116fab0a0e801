"""An S3 client that gives up in milliseconds and cuts uploads into parts as small as S3 allows, and what it stores."""

import os

from tests.fault_s3.moto_server import store_url
from tiered.cold.object_store import S3Address, parse_store_url
from tiered.cold.s3.store import S3Store

DATA = bytes(range(256)) * 400
PART_BYTES = 5 << 20  # as small as S3 allows
LOG = os.urandom(PART_BYTES * 2 + 1234)
TAIL = b"the tail"


def opened(endpoint_url: str, prefix: str, *, checksum: str = "auto", read_timeout_ms: float = 5_000) -> S3Store:
    address = parse_store_url(store_url(endpoint_url, prefix, checksum=checksum))
    assert isinstance(address, S3Address)
    return S3Store(
        address,
        first_backoff_ms=1,
        max_backoff_ms=5,
        read_timeout_ms=read_timeout_ms,
        max_attempts=5,
        part_bytes=PART_BYTES,
        probe_first=False,
    )
