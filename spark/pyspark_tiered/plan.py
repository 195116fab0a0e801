"""Which task reads what: offset ranges become splits, decided from values alone.

Owns where a range is cut: at the seam between bucket and brokers, by bytes, by records, and what a filter
makes unnecessary. Every offset of a range is in exactly one split. Must never talk to anybody, and never
leave out an offset that may hold a wanted record.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from tiered.errors import InvalidConfig
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.segment_check import ExpectedSegment

TAIL_SPLIT_RECORDS = 1 << 20
MAX_SPLITS = 100_000
"""Tasks of one job or micro-batch: Spark's driver holds every one of them."""
_SMALLEST_SPLIT_BYTES = 1 << 20  # About one chunk: nothing smaller is read alone.
_FIRST_TIMESTAMP_MS = -(2**63)
_LAST_TIMESTAMP_MS = 2**63 - 1

TopicAndPartition = tuple[str, int]
OffsetVector = Mapping[TopicAndPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """The readable offsets of one partition: `[log_start_offset, end_offset)`, below `cold_end_offset` from the bucket.

    Without a store `cold_end_offset` is 0 and `topic_id` None; without brokers it equals `end_offset`.
    """

    topic: str
    topic_id: UUID | None
    partition: int
    log_start_offset: int
    cold_end_offset: int
    end_offset: int

    @property
    def key(self) -> TopicAndPartition:
        return (self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets `[start_offset, end_offset)` of one partition."""

    view: PartitionView
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterBounds:
    """The range that filters leave: a row outside is not wanted. First and last are inclusive, timestamps in ms."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_offset: int = 0
    last_offset: int = 2**63 - 2
    first_timestamp_ms: int = _FIRST_TIMESTAMP_MS
    last_timestamp_ms: int = _LAST_TIMESTAMP_MS

    def may_hold(self, topic: str, partition: int) -> bool:
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )

    def may_hold_times(self, min_timestamp_ms: int | None, max_timestamp_ms: int | None) -> bool:
        """Whether a record may be wanted. None where no bound of the records' times is proven."""
        return (max_timestamp_ms is None or max_timestamp_ms >= self.first_timestamp_ms) and (
            min_timestamp_ms is None or min_timestamp_ms <= self.last_timestamp_ms
        )


NO_BOUNDS = FilterBounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPiece:
    """The chunks of one object that begin at a position in `[start_position, end_position)`.

    A cut by position needs no chunk table at planning time, and yet each chunk falls into exactly one piece.
    """

    segment: CommittedSegment
    start_position: int
    end_position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdSplit:
    """One task's read from the bucket: records in the pieces' chunks with `start_offset <= offset < end_offset`."""

    topic: str
    topic_id: UUID
    partition: int
    start_offset: int
    end_offset: int
    pieces: tuple[SegmentPiece, ...]
    bounds: FilterBounds = NO_BOUNDS

    def place_of(self, piece: SegmentPiece) -> ExpectedSegment:
        """The piece's segment as one of this partition's, which its object must say too."""
        return ExpectedSegment(
            topic=self.topic, topic_id=self.topic_id, partition=self.partition, segment=piece.segment
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TailSplit:
    """One task's fetch from the brokers."""

    topic: str
    topic_id: UUID | None
    partition: int
    start_offset: int
    end_offset: int


Split = ColdSplit | TailSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSizes:
    """How large splits may become."""

    split_bytes: int
    min_partitions: int | None = None
    max_records: int | None = None


# Ranges


def fit(view: PartitionView, start_offset: int, end_offset: int) -> tuple[OffsetRange, tuple[str, ...]]:
    """The part of `[start_offset, end_offset)` that is left in the partition, and a sentence for each missing part."""
    lost: list[str] = []
    if start_offset < view.log_start_offset:
        lost.append(
            f"partition {view}: offsets {start_offset} to {min(end_offset, view.log_start_offset) - 1} are gone, "
            f"the log begins at {view.log_start_offset} (retention or DeleteRecords removed them)"
        )
    if max(start_offset, end_offset) > view.end_offset:
        lost.append(
            f"partition {view}: offset {max(start_offset, end_offset)} was asked for, "
            f"what can be read ends at {view.end_offset}"
        )
    start = min(max(start_offset, view.log_start_offset), view.end_offset)
    return OffsetRange(view=view, start_offset=start, end_offset=max(start, min(end_offset, view.end_offset))), (*lost,)


def uncovered(segments: Sequence[CommittedSegment], start_offset: int, end_offset: int) -> list[tuple[int, int]]:
    """The parts of `[start_offset, end_offset)` that no segment covers, as half-open pairs. `segments` are in order."""
    holes, reached = [], start_offset
    for segment in segments:
        if segment.end_offset <= reached:
            continue
        if segment.base_offset >= end_offset:
            break
        if segment.base_offset > reached:
            holes.append((reached, segment.base_offset))
        reached = segment.end_offset
    if reached < end_offset:
        holes.append((reached, end_offset))
    return holes


def limited(starts: OffsetVector, ends: OffsetVector, max_offsets: int) -> dict[TopicAndPartition, int]:
    """End offsets that hold at most `max_offsets` in all, each partition's share as large as its part of the backlog.

    Every partition of `ends` is in the answer; none goes below its start. When there is a backlog, at least
    one offset is given, so a stream always moves.
    """
    backlog = {key: max(0, end - starts.get(key, end)) for key, end in ends.items()}
    total = sum(backlog.values())
    if total <= max_offsets:
        return {key: max(end, starts.get(key, end)) for key, end in ends.items()}
    share = {key: size * max_offsets // total for key, size in backlog.items()}
    left = max_offsets - sum(share.values())
    # Largest remainder first; ties by name, so that planning twice gives the same.
    for key in sorted(backlog, key=lambda each: (-(backlog[each] * max_offsets % total), each))[:left]:
        share[key] = min(backlog[key], share[key] + 1)
    return {key: starts.get(key, end) + share[key] for key, end in ends.items()}


def bounded(ranges: Iterable[OffsetRange], bounds: FilterBounds) -> list[OffsetRange]:
    """The ranges as far as `bounds` may want them; empty ones are left out."""
    found = []
    for each in ranges:
        if not bounds.may_hold(each.view.topic, each.view.partition):
            continue
        start = max(each.start_offset, bounds.first_offset)
        end = min(each.end_offset, bounds.last_offset + 1)
        if start < end:
            found.append(OffsetRange(view=each.view, start_offset=start, end_offset=end))
    return found


def parts(wanted: OffsetRange) -> tuple[OffsetRange | None, OffsetRange | None]:
    """The cold and the tail part of a range: cut at `cold_end_offset`, so that neither overlaps the other."""
    seam = min(max(wanted.view.cold_end_offset, wanted.start_offset), wanted.end_offset)
    cold = OffsetRange(view=wanted.view, start_offset=wanted.start_offset, end_offset=seam)
    tail = OffsetRange(view=wanted.view, start_offset=seam, end_offset=wanted.end_offset)
    return (cold if cold.start_offset < seam else None), (tail if seam < tail.end_offset else None)


# Splits


def splits(
    cold: Sequence[tuple[OffsetRange, Sequence[CommittedSegment]]],
    tail: Sequence[OffsetRange],
    sizes: SplitSizes,
    bounds: FilterBounds = NO_BOUNDS,
) -> list[Split]:
    """One split per task. `cold` pairs each range below the seam with its segments in order; `tail` lies above it.

    Raises InvalidConfig when it would be more than `MAX_SPLITS`.
    """
    pruned = [
        (
            each,
            [
                one
                for one in segments
                if bounds.may_hold_times(one.proven_min_timestamp_ms, one.proven_max_timestamp_ms)
            ],
        )
        for each, segments in cold
    ]
    split_bytes, tail_records = sizes.split_bytes, TAIL_SPLIT_RECORDS
    if sizes.min_partitions is not None:
        total_bytes = sum(_bytes_in(one, each) for each, segments in pruned for one in segments)
        total_records = sum(each.end_offset - each.start_offset for each in tail)
        tail_records = min(tail_records, max(1, total_records // sizes.min_partitions))
        split_bytes = min(split_bytes, max(_SMALLEST_SPLIT_BYTES, total_bytes // sizes.min_partitions))
    cold_splits = (
        split
        for each, segments in pruned
        for part in _by_records(each, sizes.max_records)
        for split in _cold_splits(part, segments, split_bytes, bounds)
    )
    tail_splits = (
        TailSplit(
            topic=part.view.topic,
            topic_id=part.view.topic_id,
            partition=part.view.partition,
            start_offset=part.start_offset,
            end_offset=part.end_offset,
        )
        for each in tail
        for part in _by_records(each, min(tail_records, sizes.max_records or tail_records))
    )
    found: list[Split] = list(itertools.islice(itertools.chain(cold_splits, tail_splits), MAX_SPLITS + 1))
    if len(found) > MAX_SPLITS:
        raise InvalidConfig(
            f"the offsets to read make more than {MAX_SPLITS:,} tasks; raise splitBytes or maxRecordsPerPartition, "
            "lower minPartitions, or read less at once (in a stream: maxOffsetsPerTrigger)"
        )
    return found


def _by_records(wanted: OffsetRange, max_records: int | None) -> Iterator[OffsetRange]:
    """The range in the fewest parts of nearly equal length, none with more than `max_records` offsets."""
    length = wanted.end_offset - wanted.start_offset
    count = 1 if max_records is None else -(-length // max_records)
    for number in range(count):
        start = wanted.start_offset + length * number // count
        end = wanted.start_offset + length * (number + 1) // count
        yield OffsetRange(view=wanted.view, start_offset=start, end_offset=end)


def _cold_splits(
    wanted: OffsetRange, segments: Sequence[CommittedSegment], split_bytes: int, bounds: FilterBounds
) -> Iterator[ColdSplit]:
    """Small neighbours go together, large objects are cut by position. Nothing where no segment is left."""
    topic_id = wanted.view.topic_id
    assert topic_id is not None, "a cold range has a topic id"

    def split(pieces: Sequence[SegmentPiece]) -> ColdSplit:
        return ColdSplit(
            topic=wanted.view.topic,
            topic_id=topic_id,
            partition=wanted.view.partition,
            start_offset=wanted.start_offset,
            end_offset=wanted.end_offset,
            pieces=tuple(pieces),
            bounds=bounds,
        )

    gathered: list[SegmentPiece] = []
    gathered_bytes = 0
    for segment in segments:
        size = _bytes_in(segment, wanted)
        if size == 0:
            continue
        if gathered and gathered_bytes + size > split_bytes:
            yield split(gathered)
            gathered, gathered_bytes = [], 0
        pieces = _pieces(segment, wanted, size, split_bytes)
        if len(pieces) > 1:
            for piece in pieces:
                yield split([piece])
        else:
            gathered += pieces
            gathered_bytes += size
    if gathered:
        yield split(gathered)


def _pieces(segment: CommittedSegment, wanted: OffsetRange, size: int, split_bytes: int) -> list[SegmentPiece]:
    """The segment in as many pieces as `size` needs; one that is a quarter over stays whole.

    Positions are guessed from offsets, so pieces may differ in size. The first and the last reach to the
    object's ends: whatever the guess, all chunks are in some piece.
    """
    count = -(-size // split_bytes) if size > split_bytes + split_bytes // 4 else 1
    count = min(count, MAX_SPLITS + 1)
    before = _position_of(segment, max(wanted.start_offset, segment.base_offset))
    cuts = [0, *(before + size * number // count for number in range(1, count)), segment.log_bytes]
    return [
        SegmentPiece(segment=segment, start_position=start, end_position=end) for start, end in itertools.pairwise(cuts)
    ]


def _position_of(segment: CommittedSegment, offset: int) -> int:
    """About where `offset` lies in the segment's batches."""
    return segment.log_bytes * (offset - segment.base_offset) // max(1, segment.end_offset - segment.base_offset)


def _bytes_in(segment: CommittedSegment, wanted: OffsetRange) -> int:
    """About how many bytes of the segment's batches the range takes; 0 only when they do not touch."""
    start = max(segment.base_offset, wanted.start_offset)
    end = min(segment.end_offset, wanted.end_offset)
    if start >= end:
        return 0
    return max(1, _position_of(segment, end) - _position_of(segment, start))
