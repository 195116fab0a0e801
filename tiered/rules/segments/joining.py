"""Which small segments in the store are put together to one (decision 0032).

Owns that choice. Segments that were closed for their age are many and small: objects, rows and requests of readers are
counted, not weighed. A run of neighbours is joined once there are `JOINED_AT_ONCE` of one generation: uploads first,
then what was joined of so many uploads, and so on. So no record is written again more often than the logarithm of their
number says. Pure: values in, neighbours out. Must never choose what compaction has been through (`is_compacted`).
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from tiered.rules.partition.rolling import NEVER_MS
from tiered.rules.segments.retention import UNLIMITED, ColdSegment, newest_of_committed_ms

JOINED_AT_ONCE = 16
MAX_JOINED_BYTES = 30 << 20
"""Such an object is stored with one request. Larger ones cost hardly less for a GiB (docs/costs.md)."""
RETENTION_SHARE = 8
"""Joined records go together, when the newest of them may: retention keeps an eighth more at the most."""


class StoredSegment(ColdSegment, Protocol):
    """A committed segment, and what has become of it since its upload."""

    @property
    def joined_count(self) -> int | None: ...

    @property
    def is_compacted(self) -> bool: ...


T = TypeVar("T", bound=StoredSegment)


def next_join(
    committed: Sequence[T],
    *,
    segment_bytes: int,
    retention_bytes: int,
    retention_ms: int,
    is_free: Callable[[T], bool] = lambda _segment: True,
) -> tuple[T, ...]:
    """The oldest neighbours that are to be joined now, oldest first; nothing where none are.

    `committed` has all segments of one partition in order. The newest stays as it is: the next upload and followers
    that begin at the store's end stand on it. The joined segment keeps to the topic's `segment_bytes`, and to an
    eighth of its retention, of which -1 is no limit. One that `is_free` refuses stays as it is. Speed: some 3 us for
    each segment, so a caller with many asks in a thread.
    """
    max_bytes = min(MAX_JOINED_BYTES, segment_bytes, *_shares(retention_bytes))
    max_span_ms = min((NEVER_MS, *_shares(retention_ms)))
    run: deque[T] = deque()
    run_bytes = 0
    for segment in committed[:-1]:
        if segment.is_compacted or segment.log_bytes > max_bytes or not is_free(segment):
            run.clear()
            continue
        if run and (run[-1].end_offset != segment.base_offset or _generation(run[-1]) != _generation(segment)):
            run.clear()
        run_bytes = segment.log_bytes + (run_bytes if run else 0)
        run.append(segment)
        while run_bytes > max_bytes or (len(run) == JOINED_AT_ONCE and _span_ms(run) > max_span_ms):
            run_bytes -= run.popleft().log_bytes
        if len(run) == JOINED_AT_ONCE:
            return tuple(run)
    return ()


def _shares(limit: int) -> tuple[int, ...]:
    return () if limit == UNLIMITED else (limit // RETENTION_SHARE,)


def _generation(segment: StoredSegment) -> int:
    """0 for an upload, 1 for what was joined of 16 to 255, and so on."""
    return ((segment.joined_count or 1).bit_length() - 1) // (JOINED_AT_ONCE.bit_length() - 1)


def _span_ms(run: Sequence[StoredSegment]) -> int:
    """How much longer joining lets the first of them live at the most."""
    ages = [newest_of_committed_ms(segment) for segment in run]
    return max(ages) - min(ages)
