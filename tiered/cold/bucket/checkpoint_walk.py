"""A partition's committed segments as the bucket alone tells them, page by page: for partitions of any length.

Owns the way through a head and its pages, and what is wrong between them. Holds one page at a time. Every function
blocks. Must never take a page that moved away with a newer head for a lost one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from tiered.cold.bucket import checkpoints
from tiered.cold.object_store import ObjectStore
from tiered.errors import Corrupt, ObjectMissing, UnknownFormat
from tiered.formats import segment_check
from tiered.formats.checkpoint import CommittedSegment, PageRef, PartitionCheckpoint
from tiered.formats.segment_check import Fault, FaultKind

_HEAD_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkedPage:
    """Segments above the log start, oldest first, and the faults that stand in the checkpoints themselves."""

    head: PartitionCheckpoint
    segments: tuple[CommittedSegment, ...]
    faults: tuple[Fault, ...]


def walk(store: ObjectStore, topic_id: UUID, partition: int) -> Iterator[WalkedPage]:
    """The partition's pages, oldest first, then the head's own segments; nothing when there is no head.

    A page that is damaged or missing is a fault, and the walk goes on after it. Raises CorruptObject when the head is
    damaged, StoreUnavailable.
    """
    before: CommittedSegment | None = None
    reached: int | None = None
    for attempt in range(_HEAD_ATTEMPTS):
        stored = checkpoints.read_partition_checkpoint(store, topic_id, partition)
        if stored is None:
            return
        head = stored.checkpoint
        if reached is None or reached < head.log_start_offset:
            before, start = None, head.log_start_offset  # The segments between were retired meanwhile.
        else:
            start = reached
        try:
            for reference in head.pages:
                if reference.end_offset <= start:
                    continue
                page = _read_page(store, reference, head, is_last_try=attempt == _HEAD_ATTEMPTS - 1)
                if isinstance(page, Fault):
                    yield WalkedPage(head=head, segments=(), faults=(page,))
                    before, start = None, reference.end_offset
                else:
                    walked = _checked(head, page, before, start)
                    yield walked
                    before = walked.segments[-1] if walked.segments else before
                    start = reference.end_offset
                reached = start
        except ObjectMissing:
            continue  # The head may have moved on since it was read, and the page been removed.
        walked = _checked(head, head.segments, before, start)
        last = walked.segments[-1] if walked.segments else before
        end = segment_check.check_end(head, last) if last is not None or start == head.log_start_offset else None
        yield WalkedPage(
            head=head, segments=walked.segments, faults=(*walked.faults, *([end] if end is not None else []))
        )
        return


def find(store: ObjectStore, topic_id: UUID, partition: int, base_offset: int) -> CommittedSegment | None:
    """The segment that begins at `base_offset`, if the checkpoint still names one above the log start.

    Raises CorruptObject, ObjectMissing, StoreUnavailable.
    """
    stored = checkpoints.read_partition_checkpoint(store, topic_id, partition)
    if stored is None:
        return None
    head = stored.checkpoint
    segments = head.segments
    for reference in head.pages:
        if reference.first_base_offset <= base_offset < reference.end_offset:
            segments = checkpoints.read_page(store, reference, head.topic_id, head.partition)
    for segment in segments:
        if segment.base_offset == base_offset and segment.end_offset > head.log_start_offset:
            return segment
    return None


def _read_page(
    store: ObjectStore, reference: PageRef, head: PartitionCheckpoint, *, is_last_try: bool
) -> tuple[CommittedSegment, ...] | Fault:
    try:
        return checkpoints.read_page(store, reference, head.topic_id, head.partition)
    except Corrupt as error:
        if isinstance(error, ObjectMissing) and not is_last_try:
            raise
        return Fault(
            kind=FaultKind.UNKNOWN_FORMAT if isinstance(error.__cause__, UnknownFormat) else FaultKind.CHECKPOINT,
            message=f"the {reference.count} segments of these offsets are unknown: {error}",
            first_offset=reference.first_base_offset,
            last_offset=reference.end_offset - 1,
        )


def _checked(
    head: PartitionCheckpoint, found: tuple[CommittedSegment, ...], before: CommittedSegment | None, start: int
) -> WalkedPage:
    """The segments in `found` that are above `start`, compared with each other. Below it nothing is promised."""
    segments = tuple(segment for segment in found if segment.end_offset > start)
    faults: list[Fault] = []
    for segment in segments:
        faults.extend(segment_check.check_follows(before, segment, start))
        before = segment
    return WalkedPage(head=head, segments=segments, faults=tuple(faults))
