"""Committed rows on their way from SQL into partitions, and what SQL is to know of objects that replace others.

Owns how they look there, and what they set off: a partition whose objects were replaced has a checkpoint that names
others. Must never be given rows that are older than what the feed has applied.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from tiered.broker.partitions.partition import Partition
from tiered.broker.tiering.checkpoints import CheckpointWriter
from tiered.cold.bucket.rewrite import Rewritten
from tiered.formats.checkpoint import CommittedSegment
from tiered.ids import TopicId, TopicPartition
from tiered.meta.replacements import WrittenObject
from tiered.meta.segments import SegmentRow
from tiered.rules.segments.segment_states import SegmentState


def by_partition(rows: Iterable[SegmentRow]) -> dict[TopicPartition, list[CommittedSegment]]:
    """The committed segments among `rows`, oldest first. Retired ones leave with the partition's log start, or with
    those that come in their places."""
    found: dict[TopicPartition, list[CommittedSegment]] = {}
    for row in rows:
        if row.state is SegmentState.COMMITTED:
            found.setdefault(TopicPartition(TopicId(row.topic_id), row.partition), []).append(committed_segment(row))
    for segments in found.values():
        segments.sort(key=lambda each: each.base_offset)
    return found


def apply(checkpoints: CheckpointWriter, partition: Partition, committed: Sequence[CommittedSegment]) -> None:
    """Tells the partition, and the checkpoints where something was replaced: no object may be purged that the bucket
    still names."""
    if partition.apply_segments(committed):
        checkpoints.partition_changed(partition)


def committed_segment(row: SegmentRow) -> CommittedSegment:
    """The row as checkpoints and readers know it."""
    assert row.committed_at_ms is not None
    return CommittedSegment(
        base_offset=row.base_offset,
        end_offset=row.end_offset,
        leader_epoch=row.leader_epoch,
        object_key=row.object_key,
        object_id=row.object_id,
        size_bytes=row.size_bytes,
        log_bytes=row.log_bytes,
        min_timestamp_ms=row.min_timestamp_ms,
        max_timestamp_ms=row.max_timestamp_ms,
        record_count=row.record_count,
        root_sha256=row.root_sha256,
        previous_root_sha256=row.previous_root_sha256,
        committed_at_ms=row.committed_at_ms,
        uploaded_root_sha256=row.uploaded_root_sha256,
        joined_count=row.joined_count,
        max_timestamp_is_proven=row.max_timestamp_is_proven or None,
    )


def written_object(done: Rewritten, *, object_id: UUID, before: Sequence[UUID]) -> WrittenObject:
    """What SQL is to know of an object that takes the places of those before it."""
    return WrittenObject(
        object_id=object_id,
        before=tuple(before),
        size_bytes=done.size_bytes,
        log_bytes=done.log_bytes,
        min_timestamp_ms=done.min_timestamp_ms,
        max_timestamp_ms=done.max_timestamp_ms,
        max_timestamp_is_proven=done.max_timestamp_is_proven,
        record_count=done.record_count,
        root_sha256=done.root_sha256,
    )
