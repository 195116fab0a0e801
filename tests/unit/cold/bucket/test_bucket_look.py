"""Looks at a bucket that somebody else writes: each sees what has changed, and pays for no more than that."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.unit.cold.stored_segments import PARTITION, TOPIC, TOPIC_ID
from tests.unit.cold.verified_store import RECORDS, VerifiedStore, make_store
from tiered.cold.bucket.look import PartitionLook, look_at_cluster, look_at_partition
from tiered.cold.local import LocalStore
from tiered.cold.object_store import ObjectInfo
from tiered.cold.read_only_store import ReadOnlyStore
from tiered.errors import CorruptObject, ObjectMissing
from tiered.formats import object_key
from tiered.formats.checkpoint import encode_cluster_checkpoint, encode_partition_checkpoint


class Counted(LocalStore):
    """Remembers what was asked."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.asked: list[str] = []

    def get(self, key: str, *, max_bytes: int) -> tuple[bytes, str]:
        self.asked.append("get page" if "-" in key.rpartition("/")[2] else "get")
        return super().get(key, max_bytes=max_bytes)

    def head(self, key: str) -> ObjectInfo | None:
        self.asked.append("head")
        return super().head(key)


@pytest.fixture
def made(tmp_path: Path) -> VerifiedStore:
    (tmp_path / "logs").mkdir()
    return make_store(tmp_path / "bucket", tmp_path / "logs", segments=5)


@pytest.fixture
def store(made: VerifiedStore) -> Counted:
    return Counted(made.root)


def look(store: LocalStore, before: PartitionLook | None = None) -> PartitionLook:
    return look_at_partition(ReadOnlyStore(store), TOPIC, TOPIC_ID, PARTITION, before)


def test_a_look_sees_every_segment_and_the_next_one_asks_whether_anything_changed(
    made: VerifiedStore, store: Counted
) -> None:
    first = look(store)
    assert first.partition.segments == tuple(made.rows)
    assert (first.partition.log_start_offset, first.partition.cold_end_offset) == (0, 5 * RECORDS)
    store.asked.clear()
    assert look(store, first) is first
    assert store.asked == ["head"]


def test_a_sealed_page_is_read_once(made: VerifiedStore, store: Counted) -> None:
    made.write_head(made.rows[:4], page_entries=2)
    first = look(store)
    assert first.partition.segments == tuple(made.rows[:4])
    assert len(first.pages) == 1
    made.write_head(page_entries=2)
    store.asked.clear()
    second = look(store, first)
    assert second.partition.segments == tuple(made.rows)
    assert len(second.pages) == 2
    assert store.asked.count("get") + store.asked.count("get page") == 2, "the head and the new page"


def test_what_is_below_the_logs_start_is_left_out(made: VerifiedStore, store: Counted) -> None:
    before = look(store)
    made.write_head(log_start_offset=2 * RECORDS + 7)
    after = look(store, before).partition
    assert after.log_start_offset == 2 * RECORDS + 7
    assert after.segments == tuple(made.rows[2:])


def test_a_partition_without_a_head_has_no_records_until_it_gets_one(made: VerifiedStore, store: Counted) -> None:
    other = UUID(int=9)
    before = look_at_partition(store, "other", other, 0, None)
    assert (before.partition.cold_end_offset, before.partition.segments) == (0, ())
    assert look_at_partition(store, "other", other, 0, before) is before


def test_a_page_that_stays_missing_is_told(made: VerifiedStore, store: Counted) -> None:
    head = made.write_head(page_entries=2)
    (made.root / head.pages[0].key).unlink()
    with pytest.raises(ObjectMissing):
        look(store)


def test_an_older_head_that_comes_back_is_not_taken_over(made: VerifiedStore, store: Counted) -> None:
    """A copy from before, the whole of which is right: who reads on at the end would be out of range."""
    key = object_key.partition_checkpoint_key(TOPIC_ID, PARTITION)
    made.write_head(made.rows[:3])
    older = (made.root / key).read_bytes()
    made.write_head(log_start_offset=RECORDS)
    before = look(store)
    (made.root / key).write_bytes(older)
    with pytest.raises(CorruptObject, match="goes back from offsets 240 to 1200 to 0 to 720"):
        look(store, before)
    (made.root / key).unlink()
    with pytest.raises(CorruptObject, match=r"goes back .* it is gone"):
        look(store, before)
    made.write_head(log_start_offset=2 * RECORDS)
    assert look(store, before).partition.log_start_offset == 2 * RECORDS


def test_a_restored_cluster_begins_where_it_likes(made: VerifiedStore, store: Counted) -> None:
    before = look(store)
    key = object_key.partition_checkpoint_key(TOPIC_ID, PARTITION)
    head = made.write_head(made.rows[:3])
    (made.root / key).write_bytes(encode_partition_checkpoint(replace(head, cluster_id="restored")))
    assert look(store, before).partition.cold_end_offset == 3 * RECORDS


def test_an_older_checkpoint_of_the_cluster_is_not_taken_over(made: VerifiedStore, store: Counted) -> None:
    path = made.root / object_key.cluster_checkpoint_key()
    first = look_at_cluster(store, None)
    assert first is not None
    older = replace(first.checkpoint, version=first.checkpoint.version - 1, topics=())
    path.write_bytes(encode_cluster_checkpoint(older))
    with pytest.raises(CorruptObject, match="has version 6, and had 7"):
        look_at_cluster(store, first)


def test_a_checkpoint_that_names_an_object_of_another_topic_is_refused(made: VerifiedStore, store: Counted) -> None:
    row = made.rows[0]
    key = object_key.segment_key(
        "secrets", UUID(int=9), 0, row.base_offset, row.end_offset, row.leader_epoch, row.object_id
    )
    made.write_head([replace(row, object_key=key), *made.rows[1:]])
    with pytest.raises(CorruptObject, match="the key of another segment"):
        look(store)


def test_the_cluster_is_read_again_only_when_it_changed(made: VerifiedStore, store: Counted) -> None:
    first = look_at_cluster(store, None)
    assert first is not None
    assert [topic.name for topic in first.checkpoint.topics] == [TOPIC]
    store.asked.clear()
    assert look_at_cluster(store, first) is first
    assert store.asked == ["head"]


def test_a_store_for_reading_refuses_every_write(store: Counted) -> None:
    reading = ReadOnlyStore(store)
    for write in (
        lambda: reading.put("key", b""),
        lambda: reading.put_segment("key", 0, 0, b""),
        lambda: reading.delete("key"),
        reading.probe,
        lambda: reading.abort_abandoned_uploads("", started_before_ms=0),
    ):
        with pytest.raises(AssertionError, match="opened for reading"):
            write()
