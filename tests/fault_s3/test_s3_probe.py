"""What the S3 client finds out about a store before it writes, and how it does without what a store lacks."""

import pytest

from tests.fault_s3.impatient import LOG, TAIL, opened
from tests.fault_s3.moto_server import aws_environment, store_url
from tiered.cold.object_store import Checksum, S3Address, parse_store_url
from tiered.cold.s3.store import S3Store
from tiered.errors import InvalidConfig, LostRace, ObjectExists, ObjectMissing, StoreUnavailable
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind


def test_probe_survives_a_store_that_is_slow_at_first(store: S3Store, faults: FaultyS3) -> None:
    faults.inject(S3FaultKind.SLOW_DOWN, times=3)
    assert store.probe().create_only
    assert store.list("") == []


def test_first_put_probes_once_and_reads_never_do(faults: FaultyS3, prefix: str) -> None:
    address = parse_store_url(store_url(faults.url, prefix))
    assert isinstance(address, S3Address)
    faults.refuse_header("If-None-Match")
    with aws_environment():
        store = S3Store(address, first_backoff_ms=1, max_backoff_ms=2, max_attempts=2)
        with pytest.raises(ObjectMissing):
            store.get("k", max_bytes=1)
        assert faults.count("PUT") == 0
        faults.inject(S3FaultKind.SERVER_ERROR, method="PUT", times=2)
        with pytest.raises(StoreUnavailable):
            store.put("k", b"x", create_only=True)
        store.put("k", b"x", create_only=True)
        with pytest.raises(ObjectExists):
            store.put("k", b"y", create_only=True)
        store.close()
    assert len({seen.path for seen in faults.seen if "/probes/" in seen.path}) == 2


def test_writer_that_may_not_delete_is_probed_all_the_same(store: S3Store, faults: FaultyS3) -> None:
    faults.inject(S3FaultKind.ACCESS_DENIED, method="DELETE", times=100)
    assert store.probe().create_only


def test_probe_sees_that_moto_does_not_verify_checksums(store: S3Store) -> None:
    capabilities = store.probe()
    assert capabilities.checksum_accepted
    assert not capabilities.checksum_verified


def test_store_that_refuses_checksum_headers_is_used_without(
    store: S3Store, faults: FaultyS3, log_fd: int, prefix: str
) -> None:
    faults.refuse_header("x-amz-checksum-crc32c")
    faults.refuse_header("x-amz-checksum-algorithm")
    capabilities = store.probe()
    assert not capabilities.checksum_accepted
    assert not capabilities.checksum_verified
    assert capabilities.create_only
    store.put("k", b"x")
    store.put_segment("a.seg", log_fd, len(LOG), TAIL)
    strict = opened(faults.url, prefix, checksum=Checksum.CRC32C.value)
    with pytest.raises(InvalidConfig, match="checksum=none"):
        strict.probe()
    strict.close()


@pytest.mark.parametrize("how", ["ignored", "refused"])
def test_store_without_conditions_is_looked_at_before_each_put(
    store: S3Store, faults: FaultyS3, log_fd: int, how: str
) -> None:
    for header in ("If-None-Match", "If-Match"):
        faults.ignore_header(header) if how == "ignored" else faults.refuse_header(header)
    capabilities = store.probe()
    assert not capabilities.create_only
    assert not capabilities.if_match
    etag = store.put("k", b"one", create_only=True).etag
    with pytest.raises(ObjectExists):
        store.put("k", b"two", create_only=True)
    with pytest.raises(ObjectExists):
        store.put_segment("k", log_fd, len(LOG), TAIL)
    store.put("k", b"two", if_match=etag)
    with pytest.raises(LostRace):
        store.put("k", b"three", if_match=etag)
    with pytest.raises(LostRace):
        store.put("missing", b"three", if_match=etag)
    assert store.get("k", max_bytes=10)[0] == b"two"
