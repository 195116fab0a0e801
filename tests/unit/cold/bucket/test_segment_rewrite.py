"""One object compacted into another: checked on the way in and on the way out, and the same each time."""

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.claimed_times import broken
from tests.unit.cold.stored_segments import PARTITION, TOPIC, TOPIC_ID, StoredSegment, place_of, store_segment
from tiered.cold.bucket.rewrite import RewriteOrder, Rewritten, batches, rewrite
from tiered.cold.bucket.segments import load_tail
from tiered.cold.object_store import ObjectStore
from tiered.cold.opening import open_store
from tiered.errors import CorruptObject, ObjectMissing
from tiered.formats import object_key
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.record_batch import read_header

NEW_ID = UUID("6f1d2c1e-0000-4000-8000-0000000000bb")


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path}/store")


@pytest.fixture
def stored(store: ObjectStore, tmp_path: Path) -> StoredSegment:
    """Eight chunks of records without keys: nothing of it may stay."""
    return store_segment(store, tmp_path, range(500), base_offset=100, previous_root_sha256="ab" * 32)


def order_of(stored: StoredSegment) -> RewriteOrder:
    segment = stored.committed
    return RewriteOrder(
        cluster_id="cluster-1",
        place=place_of(segment),
        object_key=object_key.segment_key(TOPIC, TOPIC_ID, PARTITION, 100, 600, segment.leader_epoch, NEW_ID),
        chunk_bytes=8192,
        now_ms=1_000,
        delete_retention_ms=0,
        timeout_ms=60_000,
        last_batches={},
    )


def carried_out(store: ObjectStore, order: RewriteOrder, newest: Iterable[int] = ()) -> Rewritten | None:
    with tempfile.TemporaryFile() as scratch:
        return rewrite(store, order, newest, scratch)


def test_a_segment_of_which_nothing_stays_is_one_empty_batch_of_the_same_offsets(
    store: ObjectStore, stored: StoredSegment
) -> None:
    order = order_of(stored)
    done = carried_out(store, order, newest=range(100, 600))
    assert done is not None
    assert (done.removed_records, done.record_count, done.log_bytes, done.max_timestamp_ms) == (500, 0, 61, -1)
    tail = load_tail(store, place_of(_row(stored, order, done)))
    old = load_tail(store, place_of(stored.committed))
    assert (tail.footer.base_offset, tail.footer.end_offset) == (100, 600)
    # What a broker that lost its disk, the chain and readers of transactions need is what it was.
    assert tail.footer.previous_root_sha256 == old.footer.previous_root_sha256
    assert (tail.leader_epochs, tail.aborted, tail.producer_snapshot) == (
        old.leader_epochs,
        old.aborted,
        old.producer_snapshot,
    )
    assert [
        header.record_count for _, _, header in batches(store, place_of(_row(stored, order, done)), tail.chunks)
    ] == [0]
    # Compacted again there is nothing to do, and nothing is stored.
    again = StoredSegment(committed=_row(stored, order, done), log=b"", timestamps=())
    assert carried_out(store, order_of(again)) is None


def test_an_attempt_after_one_that_died_takes_its_object_for_its_own(store: ObjectStore, stored: StoredSegment) -> None:
    order = order_of(stored)
    assert carried_out(store, order) == carried_out(store, order)


def test_an_object_that_somebody_else_put_under_the_key_is_refused(store: ObjectStore, stored: StoredSegment) -> None:
    order = order_of(stored)
    store.put(order.object_key, b"something else")
    with pytest.raises(CorruptObject):
        carried_out(store, order)


def test_a_damaged_segment_is_named_and_nothing_is_stored(
    store: ObjectStore, stored: StoredSegment, tmp_path: Path
) -> None:
    path = tmp_path / "store" / stored.committed.object_key
    content = bytearray(path.read_bytes())
    content[20_000] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)
    order = order_of(stored)
    with pytest.raises(CorruptObject, match=r"orders partition 3 offsets 100 to 599, .*does not match its SHA-256"):
        carried_out(store, order)
    assert store.head(order.object_key) is None
    store.delete(stored.committed.object_key)
    with pytest.raises((CorruptObject, ObjectMissing)):
        carried_out(store, order)


def _row(stored: StoredSegment, order: RewriteOrder, done: Rewritten) -> CommittedSegment:
    return replace(
        stored.committed,
        object_key=order.object_key,
        object_id=NEW_ID,
        size_bytes=done.size_bytes,
        log_bytes=done.log_bytes,
        min_timestamp_ms=done.min_timestamp_ms,
        max_timestamp_ms=done.max_timestamp_ms,
        record_count=done.record_count,
        root_sha256=done.root_sha256,
        uploaded_root_sha256=stored.committed.root_sha256,
    )


def test_a_batch_that_nobody_can_decode_stays_and_is_named(
    store: ObjectStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def spoiled(batch: bytes) -> bytes | bytearray:
        return broken(batch) if read_header(batch).base_offset == 120 else batch

    made = store_segment(store, tmp_path, range(500), base_offset=100, written=spoiled, is_old=True)
    order = order_of(made)
    done = carried_out(store, order)
    assert done is not None
    assert (done.removed_records, done.record_count, done.max_timestamp_is_proven) == (490, 10, False)
    place = place_of(_row(made, order, done))
    kept = [header for _, _, header in batches(store, place, load_tail(store, place).chunks)]
    assert [(header.base_offset, header.record_count) for header in kept] == [(100, 0), (120, 10), (130, 0)]
    (warning,) = [each.getMessage() for each in caplog.records]
    assert "nobody can decode offsets 120 to 129" in warning
