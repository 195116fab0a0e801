"""One partition as its bucket tells it, and nothing else: what a read replica answers from.

Owns what such a partition is: committed segments without a gap, from the log's start to where the store ends. Pure; a
value is replaced as a whole, so one look at it never mixes two states of the bucket.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from tiered.errors import CorruptObject
from tiered.formats import segment_check
from tiered.formats.checkpoint import CommittedSegment, PartitionCheckpoint
from tiered.formats.segment_check import ExpectedSegment
from tiered.rules.partition import read_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdPartition:
    """Every offset from `log_start_offset` to below `cold_end_offset` is in one of `segments`, oldest first."""

    topic: str
    topic_id: UUID
    partition: int
    log_start_offset: int = 0
    cold_end_offset: int = 0
    segments: tuple[CommittedSegment, ...] = ()
    cold_bytes: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cold_bytes", sum(each.size_bytes for each in self.segments))

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.topic}-{self.partition}"

    def plan_read(self, offset: int) -> read_plan.Plan:
        """Cold, CaughtUp, or OutOfRange; never Hot."""
        return read_plan.plan(
            offset,
            log_start_offset=self.log_start_offset,
            local_log_start_offset=self.cold_end_offset,
            cold_end_offset=self.cold_end_offset,
            readable_end_offset=self.cold_end_offset,
        )

    def place_of(self, segment: CommittedSegment) -> ExpectedSegment:
        """The segment as one of this partition's, which its object must say too."""
        return ExpectedSegment(topic=self.topic, topic_id=self.topic_id, partition=self.partition, segment=segment)

    def segment_at(self, offset: int) -> CommittedSegment:
        """The segment that holds `offset`, which lies in the log."""
        index = bisect_right(self.segments, offset, key=lambda each: each.base_offset) - 1
        assert index >= 0, f"{self.name}: no segment holds {offset}"
        assert offset < self.segments[index].end_offset, f"{self.name}: no segment holds {offset}"
        return self.segments[index]


def cold_partition(head: PartitionCheckpoint, segments: Sequence[CommittedSegment]) -> ColdPartition:
    """The partition of `head`, whose segments above the log start are `segments`.

    Raises CorruptObject when they are not all that the head promises: served like that, records would be left out.
    """
    before: CommittedSegment | None = None
    for segment in segments:
        foreign = segment_check.check_key(segment, head.topic_id, head.partition)
        if foreign is not None:
            raise _corrupt(head, foreign)
        for fault in segment_check.check_follows(before, segment, head.log_start_offset):
            raise _corrupt(head, fault)
        before = segment
    end = segment_check.check_end(head, before)
    if end is not None:
        raise _corrupt(head, end)
    return ColdPartition(
        topic=head.topic,
        topic_id=head.topic_id,
        partition=head.partition,
        log_start_offset=head.log_start_offset,
        cold_end_offset=head.log_start_offset if before is None else before.end_offset,
        segments=tuple(segments),
    )


def _corrupt(head: PartitionCheckpoint, fault: segment_check.Fault) -> CorruptObject:
    return CorruptObject(
        f"the checkpoint of {head.topic}-{head.partition} has a fault at offsets {fault.first_offset} to "
        f"{fault.last_offset}: {fault.message}; `tiered verify` tells more"
    )
