"""The differences between disk, metadata store and object store, and how fast the store is read to check it.

Owns these decisions. Pure: rows, listings, file sizes and times in, differences out; `broker.reconcile` looks once more
at each before it calls it one. Must never let anything be deleted for want of knowledge: what SQL does not name is its
word's to delete (`ObjectFate.SWEEP`), or nobody's.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from uuid import UUID

from tiered.errors import CorruptObject
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.object_key import SegmentKey, parse_segment_key
from tiered.ids import TopicId, TopicPartition
from tiered.rules.segments.segment_states import SegmentState
from tiered.rules.segments.tiering import LocalSegment

_LOG_SUFFIX = ".log"
_MS_PER_S = 1000.0


# The metadata store and the object store


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An object as a listing tells of it. `key` is its name taken apart."""

    name: str
    size_bytes: int
    key: SegmentKey


def by_partition(listed: Sequence[Listed]) -> tuple[tuple[Listed, ...], ...]:
    """The objects in their order, those of one partition together."""
    groups = groupby(listed, lambda row: (row.key.topic, row.key.topic_id, row.key.partition))
    return tuple(tuple(objects) for _, objects in groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Differences between one page of rows and one of objects, by base offset. `end_offset` is where the next page
    begins, None when this was the partition's last."""

    end_offset: int | None
    compared: int
    missing: tuple[CommittedSegment, ...]
    other_size: tuple[CommittedSegment, ...]
    unnamed: tuple[Listed, ...]


def listed_segments(listed: Sequence[tuple[str, int]]) -> tuple[Listed, ...]:
    """The segments among listed (key, size) pairs; what is nothing of ours is left out."""
    found = []
    for name, size_bytes in listed:
        try:
            found.append(Listed(name=name, size_bytes=size_bytes, key=parse_segment_key(name)))
        except CorruptObject:
            continue
    return tuple(found)


def compare_page(
    rows: Sequence[CommittedSegment],
    listed: Sequence[Listed],
    *,
    start_offset: int,
    rows_end: bool,
    listing_ends: bool,
) -> Comparison:
    """Committed rows and listed objects whose base offsets are `start_offset` or above, both by base offset.

    `rows_end` and `listing_ends` tell that there are no more. Where one of them stopped earlier the rest is for the
    next page. Rows that begin below `start_offset` are left out: the page before had them.
    """
    end_offset = _page_end(rows, listed, start_offset, rows_end=rows_end, listing_ends=listing_ends)
    wanted = [
        row for row in rows if row.base_offset >= start_offset and (end_offset is None or row.base_offset < end_offset)
    ]
    objects = {each.name: each for each in listed if end_offset is None or each.key.base_offset < end_offset}
    named = {row.object_key for row in rows}
    found = [(row, objects.get(row.object_key)) for row in wanted]
    return Comparison(
        end_offset=end_offset,
        compared=len(wanted),
        missing=tuple(row for row, there in found if there is None),
        other_size=tuple(row for row, there in found if there is not None and there.size_bytes != row.size_bytes),
        unnamed=tuple(each for name, each in objects.items() if name not in named),
    )


def _page_end(
    rows: Sequence[CommittedSegment],
    listed: Sequence[Listed],
    start_offset: int,
    *,
    rows_end: bool,
    listing_ends: bool,
) -> int | None:
    ends = []
    if not rows_end:
        ends.append(rows[-1].end_offset)
    if not listing_ends:
        # Others of the same base may follow: it is for the next page, unless all of the page has it.
        last = listed[-1].key.base_offset if listed else start_offset
        ends.append(max(last, start_offset + 1))
    return min(ends, default=None)


class ObjectFate(StrEnum):
    """The verdict on an object that no committed row names."""

    LEAVE = "it is being uploaded, or waits for the end of its grace: whoever does that knows"
    SWEEP = "SQL says that it was deleted, and will never name it again"
    REPORT = "SQL never had it, or lost it: only people can tell what it is"


def fate_of(name: str, *, state: SegmentState | None, object_key: str | None) -> ObjectFate:
    """The verdict on the object `name`, whose id has a row of that state and key, or none.

    Purged is the one state that nothing follows, and it is reached only after a deletion: such an object came back,
    from a put that was on its way, or a deletion that was not one. Without a row there is no knowing: the database may
    have been put back from an older copy.
    """
    if state is None or object_key != name:
        return ObjectFate.REPORT
    return ObjectFate.SWEEP if state is SegmentState.PURGED else ObjectFate.LEAVE


# The disk


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDifference:
    """Names of segment files that the log does not use, and closed segments whose file is gone or has another size."""

    unused: frozenset[str]
    lacking: frozenset[int]

    def seen_again(self, later: "FileDifference") -> "FileDifference":
        """Differences that a second look saw too: a log that rolls or deletes is between two states for a moment."""
        return FileDifference(unused=self.unused & later.unused, lacking=self.lacking & later.lacking)

    def __bool__(self) -> bool:
        return bool(self.unused or self.lacking)


def compare_files(sizes: Mapping[str, int], segments: Sequence[LocalSegment]) -> FileDifference:
    """The differences between a partition's folder and its log. `sizes` are those of all files by name."""
    used = {f"{segment.base_offset:020}{_LOG_SUFFIX}": segment for segment in segments}
    return FileDifference(
        unused=frozenset(name for name in sizes if name.endswith(_LOG_SUFFIX) and name not in used),
        lacking=frozenset(
            segment.base_offset
            for name, segment in used.items()
            if segment.closed and sizes.get(name) != segment.size_bytes
        ),
    )


def unknown_topics(on_disk: Collection[UUID], known: Collection[UUID]) -> frozenset[UUID]:
    """Topics that have a folder here and that nobody knows."""
    return frozenset(on_disk) - frozenset(known)


# Turns


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cursor:
    """Where a turn through all partitions is: what lies before it was looked at. Turns go by topic id, partition,
    offset and chunk, so that one goes on wherever it was, whatever has come or gone since."""

    topic_id: TopicId
    partition: int
    offset: int = 0
    chunk: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic_id, self.partition)


def in_turn(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions in the order of turns."""
    return sorted(partitions, key=_place)


def next_partition(ordered: Sequence[TopicPartition], at: Cursor | None) -> TopicPartition | None:
    """The first partition that a turn at `at` has not been through; None when the turn is over."""
    index = 0 if at is None else bisect_left(ordered, _place(at.topic_partition), key=_place)
    return ordered[index] if index < len(ordered) else None


def _place(partition: TopicPartition) -> tuple[bytes, int]:
    # Of bytes: there may be ten thousand partitions, and UUIDs compare slowly.
    return partition.topic_id.bytes, partition.partition


def is_turn_due(*, began_ms: float | None, now_ms: float, period_ms: int) -> bool:
    """Whether the next turn may begin, the last one having begun then."""
    return began_ms is None or now_ms - began_ms >= period_ms


def scrub_credit(
    credit_bytes: float,
    *,
    elapsed_ms: float,
    total_bytes: int,
    period_ms: int,
    max_bytes_per_second: int,
    max_credit_ms: float,
) -> float:
    """How many bytes scrubbing may read now, `elapsed_ms` after it had `credit_bytes`: it reads while that is above 0,
    and what it reads too much is owed.

    As fast as reading `total_bytes` once in the period asks for, at most as fast as allowed. No more than what is
    earned in `max_credit_ms` is kept, so that a pause is not followed by a burst.
    """
    per_second = min(float(max_bytes_per_second), total_bytes * _MS_PER_S / period_ms)
    earned = per_second * elapsed_ms / _MS_PER_S
    return min(credit_bytes + earned, per_second * max_credit_ms / _MS_PER_S)
