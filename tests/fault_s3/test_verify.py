"""Verification over an S3 server that fails: what is at rest is judged, never the way to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cold.verified_store import VerifiedStore, make_store, only, verify
from tiered.cold.object_store import S3Address
from tiered.cold.s3.store import S3Store
from tiered.errors import StoreUnavailable
from tiered.formats.segment_check import FaultKind
from tiered.testing.faulty_s3 import FaultyS3
from tiered.testing.faulty_s3 import S3FaultKind as S3Fault

PASSING = (
    S3Fault.SERVER_ERROR,
    S3Fault.SLOW_DOWN,
    S3Fault.RESET,
    S3Fault.TRUNCATE,
    S3Fault.WHOLE,
    S3Fault.WRONG_RANGE,
    S3Fault.NO_CONTENT_RANGE,
)


@pytest.fixture
def whole(address: S3Address, tmp_path: Path) -> Iterator[VerifiedStore]:
    store = opened(address)
    yield make_store(tmp_path, tmp_path, store=store)
    store.close()


def opened(address: S3Address) -> S3Store:
    return S3Store(address, first_backoff_ms=1, max_backoff_ms=5, max_attempts=4)


def contents(whole: VerifiedStore, index: int) -> bytes:
    row = whole.rows[index]
    return whole.store.get(row.object_key, max_bytes=row.size_bytes)[0]


def test_what_is_damaged_in_a_bucket_is_named(address: S3Address, whole: VerifiedStore) -> None:
    keys = [row.object_key for row in whole.rows]
    first, second, third = (contents(whole, index) for index in range(3))
    whole.store.put(keys[0], first[:100] + bytes([first[100] ^ 1]) + first[101:])
    fault = only(verify(opened(address))).fault
    assert (fault.kind, fault.chunk, fault.first_offset) == (FaultKind.CHUNK, 0, 0)
    whole.store.put(keys[0], first[:-1])
    assert only(verify(opened(address))).fault.kind is FaultKind.TRUNCATED
    whole.store.delete(keys[0])
    assert only(verify(opened(address))).fault.kind is FaultKind.MISSING
    whole.store.put(keys[0], first)
    whole.store.put(keys[1], third)
    whole.store.put(keys[2], second)
    found = [(each.fault.kind, each.object_key) for each in verify(opened(address)).problems]
    assert found == [(FaultKind.SWAPPED, keys[1]), (FaultKind.SWAPPED, keys[2])]
    whole.store.put(keys[1], second)
    whole.store.put(keys[2], third)
    assert verify(opened(address)).is_whole


@pytest.mark.parametrize("seed", [1, 2])
def test_a_store_that_fails_now_and_then_is_still_whole(
    address: S3Address, whole: VerifiedStore, faults: FaultyS3, seed: int
) -> None:
    faults.misbehave(seed=seed, probability=0.15, kinds=PASSING)
    state = verify(opened(address))
    assert (state.problems, state.checked_segments) == ([], 3)
    assert any(request.fault is not None for request in faults.seen)


def test_a_store_that_fails_for_one_object_alone_leaves_it_unreadable(
    address: S3Address, whole: VerifiedStore, faults: FaultyS3
) -> None:
    faults.fail(status=403, path_contains=str(whole.rows[1].object_id))
    found = only(verify(opened(address)))
    assert (found.fault.kind, found.object_key) == (FaultKind.UNREADABLE, whole.rows[1].object_key)
    assert "refused to head" in found.fault.message


def test_a_store_that_refuses_at_once_is_told_at_once(
    address: S3Address, whole: VerifiedStore, faults: FaultyS3
) -> None:
    faults.fail(status=403)
    seen = len(faults.seen)
    with pytest.raises(StoreUnavailable, match="check the bucket's name, the credentials"):
        verify(opened(address))
    assert len(faults.seen) == seen + 1
