"""Verification of a store from itself: what is whole is called so, what is not is named, and nothing else is."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.cold.stored_segments import PARTITION, TOPIC, TOPIC_ID, batches
from tests.unit.cold.verified_store import RECORDS, VerifiedStore, cluster_checkpoint, make_store, only, verify
from tiered.cold.bucket import checkpoints
from tiered.cold.local import LocalStore
from tiered.cold.object_store import ObjectInfo
from tiered.cold.verify.segments import BLOCK_BYTES
from tiered.errors import InvalidConfig, StoreUnavailable
from tiered.formats import object_key
from tiered.formats.record_batch import exact_batches
from tiered.formats.segment_check import FaultKind


@pytest.fixture
def whole(tmp_path: Path) -> VerifiedStore:
    (tmp_path / "logs").mkdir()
    return make_store(tmp_path / "objects", tmp_path / "logs")


def test_a_whole_store_is_whole_and_all_of_it_was_read(whole: VerifiedStore) -> None:
    state = whole.verify()
    assert (state.problems, state.is_whole, state.cluster_id) == ([], True, "cluster-1")
    assert (state.partitions, state.segments, state.checked_segments) == (1, 3, 3)
    assert state.checked_bytes == state.log_bytes == sum(len(each.log) for each in whole.segments)
    assert state.checked_chunks == sum(len(whole.tail(index).chunks) for index in range(3)) > 9


@pytest.mark.parametrize("chunk", [0, 2, -1])
def test_a_flipped_bit_is_named_down_to_its_batch(whole: VerifiedStore, chunk: int) -> None:
    chunks = whole.tail(1).chunks
    row = chunks[chunk]
    log = whole.segments[1].log
    *_, (position, header) = exact_batches(log, row.position, row.position + row.length)
    whole.flip(1, position + header.size_bytes // 2)
    found = only(whole.verify())
    assert (found.topic, found.partition, found.object_key) == (TOPIC, PARTITION, whole.rows[1].object_key)
    assert (found.fault.kind, found.fault.chunk) == (FaultKind.CHUNK, chunks.index(row))
    assert (found.fault.first_offset, found.fault.last_offset) == (header.base_offset, header.last_offset)
    assert f"the batch at byte {position} " in found.fault.message


def test_a_flipped_bit_that_no_crc_covers_is_found(whole: VerifiedStore) -> None:
    row = whole.tail(1).chunks[1]
    whole.flip(1, row.position + 15)  # The partition's leader epoch in a batch header.
    found = only(whole.verify())
    assert (found.fault.kind, found.fault.chunk) == (FaultKind.CHUNK, 1)
    assert (found.fault.first_offset, found.fault.last_offset) == (row.first_offset, row.last_offset)


@pytest.mark.parametrize("before_end", [1, 20, 300, 500])
def test_a_flipped_bit_in_the_tail_is_found(whole: VerifiedStore, before_end: int) -> None:
    whole.flip(2, whole.rows[2].size_bytes - before_end)
    found = only(whole.verify())
    assert (found.fault.kind, found.object_key) == (FaultKind.TAIL, whole.rows[2].object_key)
    assert (found.fault.first_offset, found.fault.last_offset) == (2 * RECORDS, 3 * RECORDS - 1)


@pytest.mark.parametrize("left", [0, 10, 20_000, -1])
def test_a_truncated_object_is_called_truncated(whole: VerifiedStore, left: int) -> None:
    data = whole.path(0).read_bytes()
    whole.path(0).write_bytes(data[:left])
    found = only(whole.verify())
    assert (found.fault.kind, found.object_key) == (FaultKind.TRUNCATED, whole.rows[0].object_key)
    assert f"{len(data[:left])} bytes, {len(data)} were committed" in found.fault.message


def test_bytes_behind_the_end_are_not_called_truncated(whole: VerifiedStore) -> None:
    with whole.path(0).open("ab") as file:
        file.write(b"more")
    assert only(whole.verify()).fault.kind is FaultKind.OVERSIZED


def test_two_swapped_objects_are_each_named_with_what_they_hold(whole: VerifiedStore) -> None:
    first, second = whole.path(0).read_bytes(), whole.path(2).read_bytes()
    whole.path(0).write_bytes(second)
    whole.path(2).write_bytes(first)
    state = whole.verify()
    assert [(each.fault.kind, each.object_key) for each in state.problems] == [
        (FaultKind.SWAPPED, whole.rows[0].object_key),
        (FaultKind.SWAPPED, whole.rows[2].object_key),
    ]
    assert f"holds another segment: offsets {2 * RECORDS} to {3 * RECORDS - 1} of orders-3" in (
        state.problems[0].fault.message
    )


def test_a_missing_object_is_called_missing(whole: VerifiedStore) -> None:
    whole.path(1).unlink()
    found = only(whole.verify())
    assert (found.fault.kind, found.object_key) == (FaultKind.MISSING, whole.rows[1].object_key)
    assert (found.fault.first_offset, found.fault.last_offset) == (RECORDS, 2 * RECORDS - 1)


def test_the_first_problem_comes_first_and_the_others_are_found_too(whole: VerifiedStore) -> None:
    whole.path(2).unlink()
    whole.flip(1, whole.tail(1).chunks[3].position + 100)
    whole.flip(1, whole.tail(1).chunks[1].position + 100)
    found = [(each.fault.kind, each.fault.chunk) for each in whole.verify().problems]
    assert found == [(FaultKind.CHUNK, 1), (FaultKind.CHUNK, 3), (FaultKind.MISSING, None)]


# Between segments


def test_a_segment_that_no_checkpoint_names_is_a_gap(whole: VerifiedStore) -> None:
    whole.write_head([whole.rows[0], whole.rows[2]])
    fault = only(whole.verify()).fault
    assert (fault.kind, fault.first_offset, fault.last_offset) == (FaultKind.OFFSETS, RECORDS, 2 * RECORDS - 1)
    whole.write_head([whole.rows[1], whole.rows[2]])
    fault = only(whole.verify()).fault
    assert (fault.kind, fault.first_offset, fault.last_offset) == (FaultKind.OFFSETS, 0, RECORDS - 1)


def test_a_missing_end_is_a_gap(whole: VerifiedStore) -> None:
    whole.write_head(whole.rows[:2], cold_end_offset=3 * RECORDS)
    fault = only(whole.verify()).fault
    assert (fault.kind, fault.first_offset, fault.last_offset) == (FaultKind.OFFSETS, 2 * RECORDS, 3 * RECORDS - 1)


def test_a_segment_that_was_replaced_breaks_the_chain(tmp_path: Path, whole: VerifiedStore) -> None:
    (tmp_path / "others").mkdir()
    batches.cache_clear()  # The same offsets with other bytes.
    other = make_store(tmp_path / "objects", tmp_path / "others", store=whole.store)
    whole.write_head([whole.rows[0], other.rows[1], whole.rows[2]])
    state = whole.verify()
    assert [(each.fault.kind, each.fault.first_offset) for each in state.problems] == [
        (FaultKind.CHAIN, RECORDS),
        (FaultKind.CHAIN, 2 * RECORDS),
    ]


def test_what_lies_below_the_log_start_is_not_missed(whole: VerifiedStore) -> None:
    whole.write_head(log_start_offset=RECORDS + 5)
    whole.path(0).unlink()
    state = whole.verify()
    assert (state.is_whole, state.segments) == (True, 2)


# Checkpoints


def test_pages_are_followed_and_a_damaged_one_hides_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    long = make_store(tmp_path / "objects", tmp_path / "logs", segments=7)
    head = long.write_head(page_entries=2)
    assert len(head.pages) == 3
    assert long.verify().checked_segments == 7
    path = long.root / head.pages[1].key
    path.write_bytes(path.read_bytes().replace(b'"record_count":240', b'"record_count":241', 1))
    state = long.verify()
    fault = only(state).fault
    assert (fault.kind, fault.first_offset, fault.last_offset) == (FaultKind.CHECKPOINT, 2 * RECORDS, 4 * RECORDS - 1)
    assert state.checked_segments == 5
    path.unlink()
    assert only(long.verify()).fault.kind is FaultKind.CHECKPOINT


def test_a_damaged_head_is_named(whole: VerifiedStore) -> None:
    key = object_key.partition_checkpoint_key(TOPIC_ID, PARTITION)
    (whole.root / key).write_bytes(b"{}")
    found = only(whole.verify())
    assert (found.object_key, found.topic, found.partition) == (key, TOPIC, PARTITION)


def test_a_missing_cluster_checkpoint_is_named_and_the_rest_is_verified(whole: VerifiedStore) -> None:
    key = object_key.cluster_checkpoint_key()
    (whole.root / key).unlink()
    state = whole.verify()
    assert (only(state).fault.kind, only(state).object_key) == (FaultKind.CHECKPOINT, key)
    assert state.checked_segments == 3


def test_a_damaged_checkpoint_of_groups_is_named(whole: VerifiedStore) -> None:
    whole.store.put(object_key.group_checkpoint_key(7), b"{")
    found = only(whole.verify())
    assert (found.fault.kind, found.object_key) == (FaultKind.CHECKPOINT, object_key.group_checkpoint_key(7))
    assert whole.verify(topics=[TOPIC]).is_whole


def test_objects_from_before_a_restore_belong_to_the_cluster(whole: VerifiedStore) -> None:
    whole.store.delete(object_key.cluster_checkpoint_key())
    restored = replace(cluster_checkpoint(), cluster_id="cluster-2")
    checkpoints.write_cluster_checkpoint(whole.store, restored)
    assert {each.fault.kind for each in whole.verify().problems} == {FaultKind.CHECKPOINT, FaultKind.SWAPPED}
    whole.store.delete(object_key.cluster_checkpoint_key())
    checkpoints.write_cluster_checkpoint(whole.store, replace(restored, previous_cluster_ids=("cluster-1",)))
    assert whole.verify().is_whole


def test_a_checkpoint_of_a_newer_version_is_not_called_damaged(whole: VerifiedStore) -> None:
    path = whole.root / object_key.partition_checkpoint_key(TOPIC_ID, PARTITION)
    path.write_bytes(path.read_bytes().replace(b"tiered.partition-checkpoint/1", b"tiered.partition-checkpoint/2"))
    fault = only(whole.verify()).fault
    assert fault.kind is FaultKind.UNKNOWN_FORMAT
    assert "tiered.partition-checkpoint/2" in fault.message


@pytest.mark.parametrize("key", ["of another segment", "../../etc/passwd", ""])
def test_a_row_with_a_key_that_is_not_its_own_is_named(whole: VerifiedStore, key: str) -> None:
    wrong = whole.rows[1].object_key if key == "of another segment" else key
    whole.write_head([replace(whole.rows[0], object_key=wrong), *whole.rows[1:]])
    found = only(whole.verify())
    assert (found.fault.kind, found.object_key, found.fault.first_offset) == (FaultKind.CHECKPOINT, wrong, 0)


def test_an_empty_store_and_an_unknown_topic_say_what_to_do(tmp_path: Path, whole: VerifiedStore) -> None:
    with pytest.raises(InvalidConfig, match=r"there is no checkpoint in file:.*prefix"):
        verify(LocalStore(tmp_path / "nothing"))
    with pytest.raises(InvalidConfig, match="has no topic order; it has orders"):
        whole.verify(topics=["order"])
    assert whole.verify(topics=[TOPIC]).checked_segments == 3


# While brokers work


class Watched(LocalStore):
    """Calls `meanwhile` once, before the first byte of a segment is read, and remembers the lengths asked for."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.meanwhile: Callable[[], None] = lambda: None
        self.lengths: list[int] = []
        self._one_at_a_time = threading.Lock()

    def head(self, key: str) -> ObjectInfo | None:
        with self._one_at_a_time:
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return super().head(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.lengths.append(length)
        return super().get_range(key, start, length)


def test_what_the_store_is_known_to_lack_is_counted(whole: VerifiedStore) -> None:
    uploads_ms = [row.committed_at_ms for row in whole.rows]
    whole.write_head(whole.rows[:2], high_watermark=3 * RECORDS)
    state = whole.verify()
    assert (state.is_whole, state.never_uploaded, state.missing_offsets) == (True, PARTITION, RECORDS)
    assert (state.first_latest_upload_ms, state.last_latest_upload_ms) == (uploads_ms[1], uploads_ms[1])
    whole.write_head([], log_start_offset=3 * RECORDS, high_watermark=3 * RECORDS)
    state = whole.verify()
    assert (state.missing_offsets, state.first_latest_upload_ms, state.last_latest_upload_ms) == (0, None, None)


def test_what_retention_takes_meanwhile_is_not_missing(whole: VerifiedStore) -> None:
    store = Watched(whole.root)

    def retire() -> None:
        whole.write_head(log_start_offset=2 * RECORDS)
        whole.path(0).unlink()
        whole.path(1).unlink()

    store.meanwhile = retire
    state = verify(store, parallel=1)
    assert (state.is_whole, state.retired_segments, state.checked_segments) == (True, 2, 1)


def test_a_topic_that_is_deleted_meanwhile_is_not_missing(whole: VerifiedStore) -> None:
    store = Watched(whole.root)

    def delete() -> None:
        checkpoints.write_cluster_checkpoint(whole.store, replace(cluster_checkpoint(topics=False), version=8))
        for index in range(3):
            whole.path(index).unlink()

    store.meanwhile = delete
    assert verify(store, parallel=1).is_whole
    state = whole.verify()
    assert (state.is_whole, state.deleted_topics, state.segments) == (True, 1, 0)


def test_no_request_is_larger_than_a_block(whole: VerifiedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiered.cold.verify.segments.BLOCK_BYTES", 20_000)
    assert max(row.length for row in whole.tail(0).chunks) < 20_000 < BLOCK_BYTES
    store = Watched(whole.root)
    assert verify(store).is_whole
    assert max(store.lengths) <= 20_000
    assert len(store.lengths) < sum(len(whole.tail(index).chunks) for index in range(3)), "several chunks a request"


# A store that misbehaves


class Unsteady(LocalStore):
    """Fails reads of keys that contain `what`, so many times, with what `fail` does."""

    def __init__(self, directory: Path, what: str, times: int) -> None:
        super().__init__(directory)
        self.what = what
        self.times = times
        self.flips = False

    def get_range(self, key: str, start: int, length: int) -> bytes:
        data = super().get_range(key, start, length)
        if self.what not in key or self.times == 0:
            return data
        self.times -= 1
        if self.flips:
            return data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]
        raise StoreUnavailable("the store is away; try again later")


def test_a_short_outage_is_waited_out(whole: VerifiedStore) -> None:
    store = Unsteady(whole.root, "segments/", 3)
    assert verify(store, parallel=1).is_whole
    assert store.times == 0


def test_a_segment_that_cannot_be_read_is_unreadable_and_not_corrupt(whole: VerifiedStore) -> None:
    state = verify(Unsteady(whole.root, str(whole.rows[1].object_id), 1_000))
    found = only(state)
    assert (found.fault.kind, found.object_key) == (FaultKind.UNREADABLE, whole.rows[1].object_key)
    assert state.checked_segments == 2


def test_a_store_that_stays_away_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    long = make_store(tmp_path / "objects", tmp_path / "logs", segments=11)
    with pytest.raises(StoreUnavailable, match="away"):
        verify(Unsteady(long.root, "segments/", 1_000))


@pytest.mark.parametrize(("times", "is_whole"), [(1, True), (1_000, False)])
def test_a_bit_that_flips_on_the_way_is_fetched_again(whole: VerifiedStore, times: int, is_whole: bool) -> None:
    store = Unsteady(whole.root, str(whole.rows[1].object_id), times)
    store.flips = True
    assert verify(store, parallel=1).is_whole is is_whole
