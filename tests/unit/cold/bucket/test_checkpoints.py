"""Checkpoints in the bucket: pages before heads, newer before older, and enough to find every segment."""

import builtins
import threading
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tiered.cold.bucket import checkpoints
from tiered.cold.local import LocalStore
from tiered.errors import (
    CorruptObject,
    FencedLeaderEpoch,
    InvalidConfig,
    LostRace,
    ObjectExists,
    ObjectMissing,
    StoreUnavailable,
)
from tiered.formats import object_key
from tiered.formats.checkpoint import (
    CheckpointPage,
    ClusterCheckpoint,
    CommittedSegment,
    PartitionCheckpoint,
    TopicEntry,
    encode_checkpoint_page,
    encode_partition_checkpoint,
    page_ref,
)
from tiered.formats.json_fields import MAX_VERSION

TOPIC_ID = UUID("6f1d2c1e-0000-4000-8000-00000000cafe")


def segment(index: int) -> CommittedSegment:
    object_id = UUID(int=index + 1)
    base, end = index * 10, index * 10 + 10
    return CommittedSegment(
        base_offset=base,
        end_offset=end,
        leader_epoch=1,
        object_key=object_key.segment_key("orders", TOPIC_ID, 0, base, end, 1, object_id),
        object_id=object_id,
        size_bytes=1500,
        log_bytes=1000,
        min_timestamp_ms=1,
        max_timestamp_ms=2,
        record_count=10,
        root_sha256=f"{index:064x}",
        previous_root_sha256=f"{max(0, index - 1):064x}",
        committed_at_ms=3,
    )


def head(
    count: int, *, first: int = 0, log_start_offset: int | None = None, leader_epoch: int = 1
) -> PartitionCheckpoint:
    return PartitionCheckpoint(
        version=0,
        cluster_id="cluster-1",
        topic="orders",
        topic_id=TOPIC_ID,
        partition=0,
        partition_count=2,
        log_start_offset=first * 10 if log_start_offset is None else log_start_offset,
        cold_end_offset=count * 10,
        leader_epoch=leader_epoch,
        pages=(),
        segments=tuple(segment(index) for index in range(first, count)),
    )


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def write(store: LocalStore, checkpoint: PartitionCheckpoint, *, page_entries: int = 5) -> PartitionCheckpoint:
    return checkpoints.write_partition_checkpoint(store, checkpoint, page_entries=page_entries)


def bases(store: LocalStore) -> list[int]:
    found = checkpoints.read_partition(store, TOPIC_ID, 0)
    assert found is not None
    return [each.base_offset // 10 for each in found.segments]


def test_nothing_written_is_no_checkpoint(store: LocalStore) -> None:
    assert checkpoints.read_partition_checkpoint(store, TOPIC_ID, 0) is None
    assert checkpoints.read_partition(store, TOPIC_ID, 0) is None
    assert checkpoints.read_cluster_checkpoint(store) is None
    assert checkpoints.list_partitions(store) == []


def test_every_segment_is_found_again_through_pages_and_head(store: LocalStore) -> None:
    for count in range(1, 24):
        written = write(store, head(count))
        assert written.version == count
        assert len(written.segments) <= 5
        assert bases(store) == list(range(count))
    pages = [key for key, _ in store.list("") if "/pages/" in key]
    assert len(pages) == 4, "sealed pages are written once"


def test_a_head_of_somebody_else_is_replaced_with_its_pages(store: LocalStore) -> None:
    """Who may write to the bucket can forge a head and a page whose hashes are right. The next leader that writes
    compares them with SQL's rows: else it would carry the forgery on for good."""
    written = write(store, head(12))
    stored = checkpoints.read_partition_checkpoint(store, TOPIC_ID, 0)
    assert stored is not None
    evil = tuple(replace(segment(index), root_sha256="e" * 64) for index in range(5))
    page = CheckpointPage(topic_id=TOPIC_ID, partition=0, segments=evil)
    reference = page_ref(page)
    store.put(reference.key, encode_checkpoint_page(page))
    forged = replace(written, pages=(reference, *written.pages[1:]))
    store.put(object_key.partition_checkpoint_key(TOPIC_ID, 0), encode_partition_checkpoint(forged))
    write(store, head(13))
    found = checkpoints.read_partition(store, TOPIC_ID, 0)
    assert found is not None
    assert tuple(found.segments) == head(13).segments


def test_a_head_whose_version_is_the_last_leaves_the_next_one_readable(store: LocalStore) -> None:
    written = write(store, head(2))
    key = object_key.partition_checkpoint_key(TOPIC_ID, 0)
    store.put(key, encode_partition_checkpoint(replace(written, version=MAX_VERSION)))
    write(store, head(3))
    assert bases(store) == [0, 1, 2]


class EverMore(LocalStore):
    """Lists another object each time."""

    def list(self, prefix: str, *, start_after: str | None = None, limit: int = 1000) -> builtins.list[tuple[str, int]]:
        return [(f"{prefix}pages/{uuid4()}.json", 3)]


def test_the_removal_of_a_partition_ends_where_the_store_lists_ever_more(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="ever more objects"):
        checkpoints.delete_partition_checkpoint(EverMore(tmp_path), TOPIC_ID, 0)


def test_the_same_again_writes_nothing(store: LocalStore) -> None:
    first = write(store, head(12))
    before = checkpoints.read_partition_checkpoint(store, TOPIC_ID, 0)
    assert write(store, head(12)) == first
    assert checkpoints.read_partition_checkpoint(store, TOPIC_ID, 0) == before


def test_retired_segments_leave_and_pages_below_the_log_start_with_them(store: LocalStore) -> None:
    write(store, head(18))
    written = write(store, head(18, first=7))
    assert bases(store) == list(range(7, 18))
    assert [page.first_base_offset for page in written.pages] == [50, 100]
    write(store, head(20, first=20, log_start_offset=200))
    assert bases(store) == []


def test_deleted_offsets_leave_a_gap_and_no_segment_twice(store: LocalStore) -> None:
    write(store, head(12))
    later = replace(head(20, first=15), log_start_offset=30)
    kept = tuple(segment(index) for index in range(3, 12))
    write(store, replace(later, segments=kept + later.segments))
    assert bases(store) == [*range(3, 12), *range(15, 20)]


def test_older_leader_never_replaces_a_newer_ones_head(store: LocalStore) -> None:
    write(store, head(3, leader_epoch=5))
    with pytest.raises(FencedLeaderEpoch):
        write(store, head(9, leader_epoch=4))
    assert bases(store) == [0, 1, 2]


def test_store_of_another_cluster_is_left_alone(store: LocalStore) -> None:
    write(store, head(3))
    with pytest.raises(InvalidConfig, match="cluster-1"):
        write(store, replace(head(9), cluster_id="cluster-2"))
    cluster = ClusterCheckpoint(version=4, cluster_id="cluster-1", topics=())
    checkpoints.write_cluster_checkpoint(store, cluster)
    with pytest.raises(InvalidConfig, match="cluster-1"):
        checkpoints.write_cluster_checkpoint(store, replace(cluster, cluster_id="cluster-2", version=9))


def test_the_cluster_is_encoded_with_rests_in_which_others_compute(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests_s: list[float] = []
    monkeypatch.setattr("tiered.runtime.time.sleep", rests_s.append)
    topics = tuple(
        TopicEntry(name=f"t-{number}", topic_id=UUID(int=number + 1), partition_count=1, configs={})
        for number in range(1_000)
    )
    written, _ = checkpoints.write_cluster_checkpoint(
        store, ClusterCheckpoint(version=4, cluster_id="cluster-1", topics=topics)
    )
    assert written.topics == topics
    assert len(rests_s) >= 9
    assert min(rests_s) > 0.0


def test_head_written_in_between_is_read_again_before_it_is_replaced(tmp_path: Path) -> None:
    class Contended(LocalStore):
        """Somebody else writes just before our first head."""

        contended = False

        def put(self, key: str, data: bytes, *, create_only: bool = False, if_match: str | None = None):  # type: ignore[no-untyped-def]
            if key.endswith("head.json") and not self.contended:
                self.contended = True
                write(self, head(2))
            return super().put(key, data, create_only=create_only, if_match=if_match)

    store = Contended(tmp_path)
    written = write(store, head(3))
    assert written.version == 2
    assert bases(store) == [0, 1, 2]


def test_concurrent_writers_leave_one_whole_head(store: LocalStore) -> None:
    errors: list[BaseException] = []

    def writer(first: int) -> None:
        for count in range(first, 30, 3):
            try:
                write(store, head(count))
            except LostRace:
                pass
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=writer, args=(first,)) for first in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    found = checkpoints.read_partition(store, TOPIC_ID, 0)
    assert found is not None
    assert [each.base_offset for each in found.segments] == list(range(0, found.head.cold_end_offset, 10))


def test_pages_come_before_the_head_that_names_them(tmp_path: Path) -> None:
    class Failing(LocalStore):
        failing = False

        def put(self, key: str, data: bytes, *, create_only: bool = False, if_match: str | None = None):  # type: ignore[no-untyped-def]
            if self.failing and key.endswith("head.json"):
                raise StoreUnavailable("away")
            return super().put(key, data, create_only=create_only, if_match=if_match)

    store = Failing(tmp_path)
    write(store, head(4))
    store.failing = True
    with pytest.raises(StoreUnavailable):
        write(store, head(17))
    assert bases(store) == [0, 1, 2, 3]
    store.failing = False
    write(store, head(17))
    assert bases(store) == list(range(17))


def test_damaged_head_is_reported_to_readers_and_replaced_by_the_writer(store: LocalStore) -> None:
    write(store, head(3))
    key = object_key.partition_checkpoint_key(TOPIC_ID, 0)
    data, _ = store.get(key, max_bytes=1 << 20)
    store.put(key, data[:-30])
    with pytest.raises(CorruptObject, match=key):
        checkpoints.read_partition(store, TOPIC_ID, 0)
    write(store, head(4))
    assert bases(store) == [0, 1, 2, 3]


def test_damaged_or_missing_page_is_named(store: LocalStore) -> None:
    written = write(store, head(12))
    key = written.pages[0].key
    data, _ = store.get(key, max_bytes=1 << 20)
    store.put(key, data.replace(b"1500", b"1501", 1))
    with pytest.raises(CorruptObject, match=key):
        checkpoints.read_partition(store, TOPIC_ID, 0)
    store.delete(key)
    with pytest.raises(ObjectMissing, match=key):
        checkpoints.read_partition(store, TOPIC_ID, 0)


def test_damaged_page_is_repaired_when_it_is_sealed_again(store: LocalStore) -> None:
    written = write(store, head(7))
    store.put(written.pages[0].key, b"damaged")
    store.delete(object_key.partition_checkpoint_key(TOPIC_ID, 0))
    write(store, head(7))
    assert bases(store) == list(range(7))


def test_head_of_another_partition_is_not_taken_for_ours(store: LocalStore) -> None:
    write(store, head(3))
    data, _ = store.get(object_key.partition_checkpoint_key(TOPIC_ID, 0), max_bytes=1 << 20)
    store.put(object_key.partition_checkpoint_key(TOPIC_ID, 1), data)
    with pytest.raises(CorruptObject, match="another partition"):
        checkpoints.read_partition_checkpoint(store, TOPIC_ID, 1)


def test_partitions_are_listed_and_deleted_with_their_pages(store: LocalStore) -> None:
    other = uuid4()
    write(store, head(12))
    write(store, replace(head(12), partition=1, segments=()))
    write(store, replace(head(12), topic_id=other, segments=()))
    assert checkpoints.list_partitions(store, TOPIC_ID) == [(TOPIC_ID, 0), (TOPIC_ID, 1)]
    assert len(checkpoints.list_partitions(store)) == 3
    checkpoints.delete_partition_checkpoint(store, TOPIC_ID, 0)
    checkpoints.delete_partition_checkpoint(store, TOPIC_ID, 0)
    assert checkpoints.list_partitions(store, TOPIC_ID) == [(TOPIC_ID, 1)]
    assert store.list(object_key.partition_checkpoint_prefix(TOPIC_ID, 0)) == []


def test_cluster_checkpoint_only_moves_forward(store: LocalStore) -> None:
    topics = (TopicEntry(name="orders", topic_id=TOPIC_ID, partition_count=2, configs={"retention.ms": "5"}),)
    checkpoint = ClusterCheckpoint(version=7, cluster_id="cluster-1", topics=topics)
    checkpoints.write_cluster_checkpoint(store, checkpoint)
    checkpoints.write_cluster_checkpoint(store, checkpoint)
    assert checkpoints.read_cluster_checkpoint(store) == checkpoint
    with pytest.raises(LostRace, match="newer"):
        checkpoints.write_cluster_checkpoint(store, replace(checkpoint, version=6, topics=()))
    newer = replace(checkpoint, version=8, topics=())
    checkpoints.write_cluster_checkpoint(store, newer)
    assert checkpoints.read_cluster_checkpoint(store) == newer
    store.put(object_key.cluster_checkpoint_key(), b"{")
    with pytest.raises(CorruptObject):
        checkpoints.read_cluster_checkpoint(store)
    checkpoints.write_cluster_checkpoint(store, checkpoint)
    assert checkpoints.read_cluster_checkpoint(store) == checkpoint


def test_what_the_last_write_left_is_not_read_again_while_it_is_there(store: LocalStore, tmp_path: Path) -> None:
    """It takes 50 ms of the interpreter's lock where there are 10,000 topics, for each topic that is created."""
    reads: list[str] = []

    class Counted(LocalStore):
        def get(self, key: str, *, max_bytes: int) -> tuple[bytes, str]:
            reads.append(key)
            return super().get(key, max_bytes=max_bytes)

    counted = Counted(tmp_path)
    first = ClusterCheckpoint(version=7, cluster_id="cluster-1", topics=())
    known = checkpoints.write_cluster_checkpoint(counted, first)
    reads.clear()
    known = checkpoints.write_cluster_checkpoint(counted, replace(first, version=8), known)
    assert reads == []
    assert (known[0].version, checkpoints.read_stored_cluster_checkpoint(store)) == (8, known)
    other = checkpoints.write_cluster_checkpoint(store, replace(first, version=9))
    with pytest.raises(LostRace, match="newer"):
        checkpoints.write_cluster_checkpoint(counted, replace(first, version=8, settings={"": {"a": "b"}}), known)
    assert checkpoints.read_stored_cluster_checkpoint(store) == other
    store.delete(object_key.cluster_checkpoint_key())
    again = checkpoints.write_cluster_checkpoint(counted, other[0], other)
    assert checkpoints.read_stored_cluster_checkpoint(store) == again, "also where nothing else is to be said"


def test_page_key_taken_by_the_same_page_is_no_error(store: LocalStore) -> None:
    written = write(store, head(7))
    data, _ = store.get(written.pages[0].key, max_bytes=1 << 20)
    with pytest.raises(ObjectExists):
        store.put(written.pages[0].key, data, create_only=True)
    store.delete(object_key.partition_checkpoint_key(TOPIC_ID, 0))
    assert write(store, head(7)).pages == written.pages
