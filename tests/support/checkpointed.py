"""Checkpoints of a cluster, and the segments of its bucket."""

import itertools
from dataclasses import replace
from uuid import UUID, uuid5

from tiered.formats.checkpoint import CommittedSegment, PartitionCheckpoint, TopicEntry
from tiered.formats.disk_report import DiskLog, DiskReport, OpenLogTransaction
from tiered.formats.group_checkpoint import GroupCheckpoint, GroupEntry, StoredOffset
from tiered.formats.pin_entries import PinEntry, PinnedOffsets
from tiered.rules.segments.restore_plan import FoundGroups, FoundPartition

TOPIC_ID = UUID(int=7)
CLUSTER = "old-cluster"


def segment(base_offset: int, end_offset: int, *, leader_epoch: int = 3) -> CommittedSegment:
    return CommittedSegment(
        base_offset=base_offset,
        end_offset=end_offset,
        leader_epoch=leader_epoch,
        object_key=f"segments/{base_offset}",
        object_id=UUID(int=base_offset),
        size_bytes=100,
        log_bytes=90,
        min_timestamp_ms=1,
        max_timestamp_ms=2,
        record_count=end_offset - base_offset,
        root_sha256="a" * 64,
        previous_root_sha256="b" * 64,
        committed_at_ms=5,
    )


def partition(
    *offsets: int,
    log_start_offset: int | None = None,
    leader_epoch: int = 4,
    high_watermark: int | None = None,
    newest_producer_id: int = -1,
    cluster_id: str = CLUSTER,
    partition_count: int = 1,
) -> FoundPartition:
    """Segments from each of the offsets to the next."""
    segments = tuple(segment(base, end) for base, end in itertools.pairwise(offsets))
    head = PartitionCheckpoint(
        version=9,
        cluster_id=cluster_id,
        topic="orders",
        topic_id=TOPIC_ID,
        partition=0,
        partition_count=partition_count,
        log_start_offset=offsets[0] if log_start_offset is None else log_start_offset,
        cold_end_offset=offsets[-1],
        leader_epoch=leader_epoch,
        pages=(),
        segments=segments,
        high_watermark=high_watermark,
    )
    return FoundPartition(head=head, etag="etag", segments=segments, newest_producer_id=newest_producer_id)


def disk_log(
    end: int,
    epochs: tuple[tuple[int, int], ...] = ((0, 0),),
    *,
    start: int = 0,
    local: int | None = None,
    open_transactions: tuple[OpenLogTransaction, ...] = (),
    newest_producer_id: int = -1,
) -> DiskLog:
    return DiskLog(
        topic_id=TOPIC_ID,
        partition=0,
        log_start_offset=start,
        local_log_start_offset=start if local is None else local,
        log_end_offset=end,
        leader_epochs=epochs,
        newest_producer_id=newest_producer_id,
        open_transactions=open_transactions,
    )


def disk(broker_id: int, *logs: DiskLog, cluster_id: str = CLUSTER, faults: tuple[str, ...] = ()) -> DiskReport:
    return DiskReport(cluster_id=cluster_id, broker_id=broker_id, broker_epoch=5, logs=logs, faults=faults)


def entry(**changes: object) -> TopicEntry:
    topic = TopicEntry(name="orders", topic_id=TOPIC_ID, partition_count=1, configs={}, replication_factor=1)
    return replace(topic, **changes)  # type: ignore[arg-type]


def groups(
    slot: int, *entries: GroupEntry, slot_count: int = 50, slot_epoch: int = 5 << 20, left_out: int = 0
) -> FoundGroups:
    checkpoint = GroupCheckpoint(
        cluster_id=CLUSTER, slot=slot, slot_count=slot_count, slot_epoch=slot_epoch, groups=entries, left_out=left_out
    )
    return FoundGroups(checkpoint=checkpoint, etag="etag")


def group(group_id: str, *offsets: int, topic_id: UUID = TOPIC_ID) -> GroupEntry:
    return GroupEntry(
        group_id=group_id,
        kind="classic",
        protocol_type="consumer",
        generation=3,
        offsets=tuple(
            StoredOffset(
                topic_id=topic_id, partition=number, offset=offset, leader_epoch=4, metadata="", committed_at_ms=1
            )
            for number, offset in enumerate(offsets)
        ),
    )


def pinned(name: str | None, *ranges: tuple[int, int, int], topic_id: UUID = TOPIC_ID) -> PinEntry:
    """A snapshot, or without a name a pin, of (partition, start offset, end offset)."""
    return PinEntry(
        pin_id=uuid5(topic_id, str(name)),
        name=name,
        topic_id=topic_id,
        owner="alice",
        created_at_ms=5,
        expires_at_ms=None if name is not None else 10,
        ranges=tuple(
            PinnedOffsets(partition=number, start_offset=start_offset, end_offset=end_offset)
            for number, start_offset, end_offset in ranges
        ),
    )
