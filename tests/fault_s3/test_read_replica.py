"""A read replica on an S3 server that fails: what it asks for, what its readers hear, and that it changes nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.components.read_replicas import ReplicaThread
from tests.support.replica_reads import NONE, STORAGE_ERROR, fetch_code, read
from tests.unit.cold.stored_segments import PARTITION
from tests.unit.cold.verified_store import RECORDS, VerifiedStore, make_store
from tiered.cold.object_store import S3Address
from tiered.cold.s3.store import S3Store
from tiered.errors import StoreUnavailable
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind


@pytest.fixture
def made(address: S3Address, tmp_path: Path) -> Iterator[VerifiedStore]:
    store = opened(address)
    yield make_store(tmp_path, tmp_path, store=store)
    store.close()


@pytest.fixture
def replica(address: S3Address, made: VerifiedStore, tmp_path: Path) -> Iterator[ReplicaThread]:
    with ReplicaThread(tmp_path / "replica", opened(address)) as running:
        yield running


def opened(address: S3Address) -> S3Store:
    return S3Store(address, first_backoff_ms=1, max_backoff_ms=5, max_attempts=3)


def counts(faults: FaultyS3) -> dict[str, int]:
    return {method: faults.count(method) for method in ("GET", "HEAD", "PUT", "POST", "DELETE")}


def test_a_bucket_is_only_ever_read_and_one_that_did_not_change_costs_a_head_for_each_partition(
    address: S3Address, made: VerifiedStore, faults: FaultyS3, tmp_path: Path
) -> None:
    before = counts(faults)
    with ReplicaThread(tmp_path / "replica", opened(address)) as replica:
        assert read(replica) == b"".join(each.log for each in made.segments)
        seen = counts(faults)
        replica.look()
        after = counts(faults)
        made.write_head(log_start_offset=RECORDS)
        written = counts(faults)
        replica.look()
        assert counts(faults)["GET"] == written["GET"] + 1, "the one head that changed"
        last = counts(faults)
    # The cluster's, that of the one partition with records, and for each other one whether its bucket is there at all.
    assert {method: after[method] - seen[method] for method in after} == {
        "GET": 0, "HEAD": 1 + 1 + 2 * PARTITION, "PUT": 0, "POST": 0, "DELETE": 0,
    }  # fmt: skip
    writes = ("PUT", "POST", "DELETE")
    assert [seen[each] for each in writes] == [before[each] for each in writes]
    assert [last[each] for each in writes] == [written[each] for each in writes]


@pytest.mark.parametrize("kind", [S3FaultKind.SERVER_ERROR, S3FaultKind.SLOW_DOWN, S3FaultKind.RESET])
def test_an_outage_is_told_as_one_that_passes_and_the_view_stays(
    replica: ReplicaThread, made: VerifiedStore, faults: FaultyS3, kind: S3FaultKind
) -> None:
    faults.inject(kind, times=None)
    with pytest.raises(StoreUnavailable):
        replica.look()
    assert fetch_code(replica, RECORDS) == STORAGE_ERROR
    assert replica.ask("/readyz")[1]["store_trouble"] == ("slow" if kind is S3FaultKind.SLOW_DOWN else "away")
    faults.heal()
    replica.look()
    assert fetch_code(replica, RECORDS) == NONE
    assert read(replica) == b"".join(each.log for each in made.segments)


def test_bytes_that_are_wrong_on_their_way_are_asked_for_again(
    replica: ReplicaThread, made: VerifiedStore, faults: FaultyS3
) -> None:
    faults.inject(S3FaultKind.WRONG_RANGE, times=1)
    assert read(replica) == b"".join(each.log for each in made.segments)
