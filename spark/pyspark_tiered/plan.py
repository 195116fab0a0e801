"""Which task reads what: offset ranges become splits, decided from values alone.

Owns where a range is cut: at the seam between bucket and brokers, by the cost of reading, by records, and what a
filter makes unnecessary. All cuts are at offsets, so every offset of a range is in exactly one split. Must never talk
to anybody, and never leave out an offset that may hold a wanted record.
"""

import heapq
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from tiered.errors import InvalidConfig
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.segment_check import ExpectedSegment

TAIL_SPLIT_RECORDS = 1 << 20
MAX_SPLITS = 100_000
"""Tasks of one job or micro-batch: Spark's driver holds every one of them."""
_SNAP = 8
"""A cut that lies within this part of a task's cost from an object's border is made at the border."""
_FIRST_TIMESTAMP_MS = -(2**63)
_LAST_TIMESTAMP_MS = 2**63 - 1

TopicAndPartition = tuple[str, int]
OffsetVector = Mapping[TopicAndPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """The readable offsets of one partition: `[log_start_offset, end_offset)`, below `cold_end_offset` from the bucket.

    Without a store `cold_end_offset` is 0 and `topic_id` None; without brokers it equals `end_offset`. With
    `is_store_alone` there are no brokers, and the last two say what the partition's checkpoint knows: where the log
    ended when the checkpoint was written, and when the newest segment was uploaded (None where there is none).
    """

    topic: str
    topic_id: UUID | None
    partition: int
    log_start_offset: int
    cold_end_offset: int
    end_offset: int
    is_store_alone: bool = False
    known_log_end: int | None = None
    latest_upload_ms: int | None = None

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
class ColdSplit:
    """One task's read from the bucket: the segments' records with `start_offset <= offset < end_offset`.

    A chunk that lies across a cut is fetched by the tasks on both sides.
    """

    topic: str
    topic_id: UUID
    partition: int
    start_offset: int
    end_offset: int
    segments: tuple[CommittedSegment, ...]
    bounds: FilterBounds = NO_BOUNDS

    def place_of(self, segment: CommittedSegment) -> ExpectedSegment:
        """The segment as one of this partition's, which its object must say too."""
        return ExpectedSegment(topic=self.topic, topic_id=self.topic_id, partition=self.partition, segment=segment)


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
    """How large splits may become. An object costs `open_cost_bytes` besides its bytes, but at most `split_bytes`: its
    opening alone fills no second task."""

    split_bytes: int
    open_cost_bytes: int = 0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """Neighbouring offsets of one object, or of a tail (no segment), and what reading them costs, in bytes."""

    start_offset: int
    end_offset: int
    cost_bytes: int
    segment: CommittedSegment | None = None

    @property
    def offset_count(self) -> int:
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """What is read of one partition's cold part, or of its tail: spans in order, at least one."""

    view: PartitionView
    spans: tuple[_Span, ...]
    cost_bytes: int
    offset_count: int
    fewest_tasks: int


def splits(
    cold: Sequence[tuple[OffsetRange, Sequence[CommittedSegment]]],
    tail: Sequence[OffsetRange],
    sizes: SplitSizes,
    bounds: FilterBounds = NO_BOUNDS,
) -> list[Split]:
    """One split per task. `cold` pairs each range below the seam with its segments in order; `tail` lies above it.

    There are at least `sizes.min_partitions`, where there are that many offsets. Raises InvalidConfig when it would be
    more than `MAX_SPLITS`.
    """
    stretches = _cold_stretches(cold, sizes, bounds)
    stretches += _tail_stretches(tail, sizes, record_bytes=_record_bytes(stretches))
    counts = _task_counts(stretches, sizes.min_partitions or 0)
    if sum(counts) <= MAX_SPLITS:
        cut = (
            split
            for stretch, count in zip(stretches, counts, strict=True)
            for split in _splits_of(stretch, count, sizes.max_records, bounds)
        )
        planned = list(itertools.islice(cut, MAX_SPLITS + 1))
        if len(planned) <= MAX_SPLITS:
            return planned
    raise InvalidConfig(
        f"the offsets to read make more than {MAX_SPLITS:,} tasks; raise splitBytes or maxRecordsPerPartition, "
        "lower minPartitions, or read less at once (in a stream: maxOffsetsPerTrigger)"
    )


def _cold_stretches(
    cold: Sequence[tuple[OffsetRange, Sequence[CommittedSegment]]], sizes: SplitSizes, bounds: FilterBounds
) -> list[_Stretch]:
    """The ranges as far as a segment is left in them that `bounds` may want."""
    stretches = []
    for wanted, segments in cold:
        spans = tuple(
            span
            for segment in segments
            if bounds.may_hold_times(segment.proven_min_timestamp_ms, segment.proven_max_timestamp_ms)
            and (span := _span_of(segment, wanted, sizes)) is not None
        )
        if spans:
            stretches.append(_stretch(wanted.view, spans, sizes))
    return stretches


def _tail_stretches(tail: Sequence[OffsetRange], sizes: SplitSizes, *, record_bytes: int) -> list[_Stretch]:
    stretches = []
    for wanted in tail:
        count = wanted.end_offset - wanted.start_offset
        span = _Span(start_offset=wanted.start_offset, end_offset=wanted.end_offset, cost_bytes=count * record_bytes)
        stretches.append(_stretch(wanted.view, (span,), sizes))
    return stretches


def _stretch(view: PartitionView, spans: tuple[_Span, ...], sizes: SplitSizes) -> _Stretch:
    cost_bytes, offset_count = sum(span.cost_bytes for span in spans), sum(span.offset_count for span in spans)
    if spans[0].segment is None:
        tasks = -(-offset_count // TAIL_SPLIT_RECORDS)
    else:
        # To the nearest: with one more, ten objects of just over splitBytes would all be cut.
        tasks = min(offset_count, (cost_bytes + sizes.split_bytes // 2) // sizes.split_bytes)
    by_records = 1 if sizes.max_records is None else -(-offset_count // sizes.max_records)
    return _Stretch(
        view=view,
        spans=spans,
        cost_bytes=cost_bytes,
        offset_count=offset_count,
        fewest_tasks=max(1, tasks, by_records),
    )


def _span_of(segment: CommittedSegment, wanted: OffsetRange, sizes: SplitSizes) -> _Span | None:
    """The part of the segment in the range; its bytes are guessed from its offsets. None where they do not touch."""
    start = max(segment.base_offset, wanted.start_offset)
    end = min(segment.end_offset, wanted.end_offset)
    if start >= end:
        return None
    log_bytes = segment.log_bytes * (end - start) // (segment.end_offset - segment.base_offset)
    cost_bytes = min(sizes.open_cost_bytes, sizes.split_bytes) + max(1, log_bytes)
    return _Span(start_offset=start, end_offset=end, cost_bytes=cost_bytes, segment=segment)


def _record_bytes(cold: Sequence[_Stretch]) -> int:
    """What a record of a tail costs, of which no size is known: as much as the cold ones cost on average."""
    offset_count = sum(stretch.offset_count for stretch in cold)
    return max(1, sum(stretch.cost_bytes for stretch in cold) // max(1, offset_count))


def _task_counts(stretches: Sequence[_Stretch], fewest: int) -> list[int]:
    """How many tasks read each stretch: at least `fewest` in all, where there are that many offsets.

    Always the stretch with the costliest tasks gets one more, so that the costliest task of all costs as little as can
    be. Stops above `MAX_SPLITS`.
    """
    counts = [stretch.fewest_tasks for stretch in stretches]
    total = sum(counts)
    costliest = [
        (-stretch.cost_bytes / counts[number], number)
        for number, stretch in enumerate(stretches)
        if counts[number] < stretch.offset_count
    ]
    heapq.heapify(costliest)
    while total < min(fewest, MAX_SPLITS + 1) and costliest:
        _, number = costliest[0]
        counts[number] += 1
        total += 1
        if counts[number] < stretches[number].offset_count:
            heapq.heapreplace(costliest, (-stretches[number].cost_bytes / counts[number], number))
        else:
            heapq.heappop(costliest)
    return counts


def _splits_of(stretch: _Stretch, count: int, max_records: int | None, bounds: FilterBounds) -> Iterator[Split]:
    """The stretch in `count` splits of about the same cost, and in more where one had more than `max_records`."""
    view = stretch.view
    before = [0, *itertools.accumulate(span.offset_count for span in stretch.spans)]
    for start, end in _by_records(itertools.pairwise(_cuts(stretch, before, count)), max_records):
        first, last = bisect_right(before, start) - 1, bisect_left(before, end) - 1
        spans = stretch.spans[first : last + 1]
        start_offset = spans[0].start_offset + start - before[first]
        end_offset = spans[-1].start_offset + end - before[last]
        segments = tuple(span.segment for span in spans if span.segment is not None)
        if not segments:
            yield TailSplit(
                topic=view.topic,
                topic_id=view.topic_id,
                partition=view.partition,
                start_offset=start_offset,
                end_offset=end_offset,
            )
            continue
        assert view.topic_id is not None, "a cold range has a topic id"
        yield ColdSplit(
            topic=view.topic,
            topic_id=view.topic_id,
            partition=view.partition,
            start_offset=start_offset,
            end_offset=end_offset,
            segments=segments,
            bounds=bounds,
        )


def _cuts(stretch: _Stretch, before: Sequence[int], count: int) -> list[int]:
    """Where the stretch is cut into `count` parts of about the same cost, its two ends included.

    A place is the number of the stretch's offsets below it; `before` has those of the spans. No part is without an
    offset: `count` is at most the number of offsets.
    """
    costs = list(itertools.accumulate(span.cost_bytes for span in stretch.spans))
    total = costs[-1]
    snap = total // (_SNAP * count)
    cuts = [0]
    for number in range(1, count):
        wanted = total * number // count
        at = bisect_right(costs, wanted)
        span = stretch.spans[at]
        into = wanted - (costs[at] - span.cost_bytes)
        if into <= snap:
            place = before[at]
        elif span.cost_bytes - into <= snap:
            place = before[at + 1]
        else:
            place = before[at] + span.offset_count * into // span.cost_bytes
        cuts.append(min(max(place, cuts[-1] + 1), before[-1] - (count - number)))
    return [*cuts, before[-1]]


def _by_records(parts: Iterable[tuple[int, int]], max_records: int | None) -> Iterator[tuple[int, int]]:
    """Each part in the fewest parts of nearly equal length, none with more than `max_records` offsets."""
    for start, end in parts:
        count = 1 if max_records is None else -(-(end - start) // max_records)
        for number in range(count):
            yield start + (end - start) * number // count, start + (end - start) * (number + 1) // count
