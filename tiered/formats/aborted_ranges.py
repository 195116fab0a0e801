"""Which batches belong to aborted transactions: ranges of offsets of a producer, looked up one batch at a time.

Owns the look-up. There may be as many ranges as whoever made the list likes, so each is looked at once,
not once for each batch. Must never know where the ranges come from.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedRange:
    """Batches of `producer_id` with `first_offset <= base_offset <= last_offset` belong to an aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int


class AbortedRanges:
    """All ranges that count for some batches, which may overlap."""

    def __init__(self, ranges: Iterable[AbortedRange]) -> None:
        self._sorted = sorted((each.producer_id, each.first_offset, each.last_offset) for each in ranges)
        self._reach: list[int] = []
        """How far those of the same producer up to each one reach."""
        producer, reach = None, 0
        for producer_id, _, last_offset in self._sorted:
            reach = max(reach, last_offset) if producer_id == producer else last_offset
            producer = producer_id
            self._reach.append(reach)

    def __bool__(self) -> bool:
        return bool(self._sorted)

    def hold(self, producer_id: int, base_offset: int) -> bool:
        """Whether the producer's transactional batch that begins there was aborted."""
        place = bisect_right(self._sorted, (producer_id, base_offset, math.inf)) - 1
        return place >= 0 and self._sorted[place][0] == producer_id and self._reach[place] >= base_offset
