"""Uploads that were committed after a partition's checkpoint was written last: those that continue the chain come back,
and nothing else."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.support.restored_bucket import CLUSTER, PARALLEL, Bucket
from tests.unit.cold.stored_segments import PARTITION, TOPIC, TOPIC_ID, store_segment
from tiered.cold.bucket import checkpoints, restore_claims
from tiered.cold.bucket.contents import read_bucket
from tiered.cold.bucket.unnamed_uploads import MAX_CANDIDATES
from tiered.cold.object_store import LIST_KEYS
from tiered.formats import object_key
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.producer_snapshot import ProducerEntry, encode_producers
from tiered.formats.segment_object import ChunkTable, build_tail, read_tail
from tiered.rules.segments.restore_plan import FoundPartition, plan_restore

PRODUCERS = encode_producers([ProducerEntry(producer_id=99, producer_epoch=0)])
EPOCH = 3
"""As in the bucket's head."""


class UnnamedUploads:
    """A bucket with a head that ends at offset 50, and objects that it does not name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.bucket = Bucket(folder)

    def upload(self, start: int, end: int, before: CommittedSegment, **changes: Any) -> CommittedSegment:
        options = {
            "previous_root_sha256": before.chain_root_sha256,
            "producer_snapshot": PRODUCERS,
            "leader_epoch": EPOCH,
            **changes,
        }
        times = range(start, end)
        return store_segment(self.bucket.store, self._folder, times, base_offset=start, **options).committed

    def read(self) -> FoundPartition:
        return read_bucket(self.bucket.store, parallel=PARALLEL).partitions[TOPIC_ID, PARTITION]

    def taken_back(self) -> list[tuple[int, int]]:
        partition = self.read()
        assert partition.head is not None
        taken = partition.segments[len(partition.segments) - partition.taken_back :]
        assert partition.head.cold_end_offset == partition.segments[-1].end_offset
        assert partition.head.segments[-1] == partition.segments[-1]
        return [(segment.base_offset, segment.end_offset) for segment in taken]

    def rewrite(self, segment: CommittedSegment, change: Callable[[bytearray], None]) -> None:
        data, _ = self.bucket.store.get(segment.object_key, max_bytes=1 << 20)
        changed = bytearray(data)
        change(changed)
        self.bucket.store.put(segment.object_key, bytes(changed))


@pytest.fixture
def lab(tmp_path: Path) -> UnnamedUploads:
    return UnnamedUploads(tmp_path)


def at_any_time(segment: CommittedSegment) -> CommittedSegment:
    """SQL alone knew when it was committed."""
    return replace(segment, committed_at_ms=0)


def test_uploads_that_no_checkpoint_names_come_back_with_the_rows_that_they_had(lab: UnnamedUploads) -> None:
    first = lab.upload(50, 60, lab.bucket.segment)
    second = lab.upload(60, 75, first, leader_epoch=EPOCH + 1, is_old=True)
    partition = lab.read()
    assert partition.head is not None
    assert (partition.taken_back, partition.newest_producer_id) == (2, 99)
    assert [segment.max_timestamp_is_proven for segment in partition.segments[1:]] == [True, None]
    assert (partition.head.cold_end_offset, partition.head.leader_epoch) == (75, EPOCH + 1)
    assert partition.segments == partition.head.segments
    assert [at_any_time(segment) for segment in partition.segments[1:]] == [at_any_time(first), at_any_time(second)]
    assert all(segment.committed_at_ms > second.committed_at_ms for segment in partition.segments[1:])


def test_the_checkpoint_that_a_restore_writes_names_them(lab: UnnamedUploads) -> None:
    lab.upload(50, 60, lab.bucket.segment)
    bucket = read_bucket(lab.bucket.store, parallel=PARALLEL)
    plan = plan_restore(bucket, (1,))
    assert plan.problems == ()
    restore_claims.claim(lab.bucket.store, plan, bucket, parallel=PARALLEL)
    stored = checkpoints.read_partition(lab.bucket.store, TOPIC_ID, PARTITION)
    assert stored is not None
    assert stored.segments == plan.topics[0].partitions[PARTITION].segments
    again = lab.bucket.plan()
    assert again.problems == ()
    assert again.topics[0].partitions[PARTITION].segments == stored.segments
    assert [partition.taken_back for partition in again.topics[0].partitions] == [0, 0, 0, 0]


def test_the_first_uploads_of_a_partition_come_back_without_a_checkpoint(lab: UnnamedUploads) -> None:
    checkpoints.delete_partition_checkpoint(lab.bucket.store, TOPIC_ID, PARTITION)
    bucket = read_bucket(lab.bucket.store, parallel=PARALLEL)
    plan = plan_restore(bucket, (1,))
    partition = plan.topics[0].partitions[PARTITION]
    assert (partition.log_start_offset, partition.cold_end_offset, partition.taken_back) == (0, 50, 1)
    restore_claims.claim(lab.bucket.store, plan, bucket, parallel=PARALLEL)
    assert lab.bucket.plan().topics[0].partitions[PARTITION].segments == partition.segments


def test_where_all_segments_are_deleted_the_next_upload_may_follow_any(lab: UnnamedUploads) -> None:
    upload = lab.upload(50, 60, replace(lab.bucket.segment, root_sha256="a" * 64))
    lab.bucket.write(replace(lab.bucket.head, log_start_offset=50, segments=()))
    assert lab.taken_back() == [(50, 60)]
    assert lab.read().segments[0].previous_root_sha256 == upload.previous_root_sha256


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster_id": "another"},
        {"previous_root_sha256": "a" * 64},
        {"leader_epoch": EPOCH - 1},
        {"leader_epoch": 2**31 - 1},
        {"producer_snapshot": b"damaged"},
    ],
)
def test_an_object_that_does_not_continue_the_chain_is_not_taken(lab: UnnamedUploads, changes: dict[str, Any]) -> None:
    lab.upload(50, 60, lab.bucket.segment, **changes)
    partition = lab.read()
    assert (partition.taken_back, partition.fault, partition.segments) == (0, None, (lab.bucket.segment,))


def test_a_first_upload_that_follows_another_one_is_not_taken(lab: UnnamedUploads) -> None:
    checkpoints.delete_partition_checkpoint(lab.bucket.store, TOPIC_ID, PARTITION)
    lab.bucket.store.delete(lab.bucket.segment.object_key)
    lab.upload(0, 50, lab.bucket.segment)
    assert lab.read() == FoundPartition()


def test_an_object_that_counts_more_records_than_offsets_is_not_taken(lab: UnnamedUploads) -> None:
    """No broker writes such a one; neither checkpoints nor SQL could hold the number."""

    def miscount(data: bytearray) -> None:
        tail = read_tail(data, len(data))
        footer = tail.footer
        (chunk,) = tail.chunks
        table = ChunkTable(
            chunks=(replace(chunk, record_count=2**63),),
            base_offset=footer.base_offset,
            end_offset=footer.end_offset,
            min_timestamp_ms=footer.min_timestamp_ms,
            max_timestamp_ms=footer.max_timestamp_ms,
            record_count=2**63,
            batch_count=footer.batch_count,
            log_bytes=footer.log_bytes,
            root_sha256=footer.root_sha256,
        )
        data[footer.log_bytes :] = build_tail(
            table,
            cluster_id=footer.cluster_id,
            topic_id=footer.topic_id,
            topic=footer.topic,
            partition=footer.partition,
            leader_epochs=tail.leader_epochs,
            aborted=tail.aborted,
            producer_snapshot=tail.producer_snapshot,
            previous_root_sha256=footer.previous_root_sha256,
        )

    lab.rewrite(lab.upload(50, 60, lab.bucket.segment), miscount)
    assert lab.taken_back() == []


@pytest.mark.parametrize("offsets", [(51, 60), (40, 60), (0, 50), (5, 10)])
def test_an_object_that_begins_elsewhere_is_not_taken(lab: UnnamedUploads, offsets: tuple[int, int]) -> None:
    lab.upload(*offsets, lab.bucket.segment)
    assert lab.taken_back() == []


def test_records_that_were_deleted_stay_deleted(lab: UnnamedUploads) -> None:
    lab.upload(50, 60, lab.bucket.segment)
    lab.bucket.write(replace(lab.bucket.head, log_start_offset=60, cold_end_offset=60, segments=()))
    partition = lab.read()
    assert (partition.taken_back, partition.segments) == (0, ())


@pytest.mark.parametrize("position", [-1, -40, -200])
def test_an_object_with_a_damaged_tail_is_not_taken_nor_anything_behind_it(lab: UnnamedUploads, position: int) -> None:
    def damage(data: bytearray) -> None:
        data[position] ^= 1

    upload = lab.upload(50, 60, lab.bucket.segment)
    lab.upload(60, 70, upload)
    assert lab.taken_back() == [(50, 60), (60, 70)]
    lab.rewrite(upload, damage)
    assert lab.taken_back() == []


def test_an_object_under_the_key_of_another_is_not_taken(lab: UnnamedUploads) -> None:
    upload = lab.upload(50, 60, lab.bucket.segment)
    data, _ = lab.bucket.store.get(upload.object_key, max_bytes=1 << 20)
    lab.bucket.store.delete(upload.object_key)
    lab.bucket.store.put(object_key.segment_key(TOPIC, TOPIC_ID, PARTITION, 50, 61, EPOCH, upload.object_id), data)
    assert lab.taken_back() == []


def test_of_several_the_newest_leaders_counts_and_of_its_own_the_one_that_ends_last(lab: UnnamedUploads) -> None:
    lab.upload(50, 90, lab.bucket.segment)
    lab.upload(50, 60, lab.bucket.segment, leader_epoch=EPOCH + 1)
    newest = lab.upload(50, 70, lab.bucket.segment, leader_epoch=EPOCH + 1)
    lab.upload(70, 80, newest, leader_epoch=EPOCH + 1)
    assert lab.taken_back() == [(50, 70), (70, 80)]


def test_an_upload_counts_before_what_compaction_made_of_it(lab: UnnamedUploads) -> None:
    """The next upload names the uploaded one's root."""
    upload = lab.upload(50, 60, lab.bucket.segment)
    lab.upload(50, 60, lab.bucket.segment, value_bytes=1)
    lab.upload(60, 70, upload)
    assert lab.taken_back() == [(50, 60), (60, 70)]


def test_the_next_best_is_taken_where_the_best_is_damaged_and_so_many_are_looked_at(lab: UnnamedUploads) -> None:
    lab.upload(50, 60, lab.bucket.segment)
    for _ in range(MAX_CANDIDATES - 1):
        lab.upload(50, 70, lab.bucket.segment, cluster_id="another")
    assert lab.taken_back() == [(50, 60)]
    lab.upload(50, 70, lab.bucket.segment, cluster_id="another")
    assert lab.taken_back() == []


def test_older_objects_keep_no_upload_from_being_listed(lab: UnnamedUploads, tmp_path: Path) -> None:
    lab.upload(50, 60, lab.bucket.segment)
    for number in range(LIST_KEYS):
        key = object_key.segment_key(TOPIC, TOPIC_ID, PARTITION, 0, 10, 0, UUID(int=number))
        (tmp_path / "bucket" / key).write_bytes(b"retired")
    assert lab.taken_back() == [(50, 60)]


def test_uploads_from_before_an_earlier_restore_come_back_no_more(lab: UnnamedUploads) -> None:
    """Their offsets may have been written anew since."""
    upload = lab.upload(50, 60, lab.bucket.segment)
    lab.bucket.store.delete(upload.object_key)
    bucket = read_bucket(lab.bucket.store, parallel=PARALLEL)
    restore_claims.claim(lab.bucket.store, plan_restore(bucket, (1,)), bucket, parallel=PARALLEL)
    lab.upload(50, 60, lab.bucket.segment, cluster_id=CLUSTER)
    assert lab.taken_back() == []
