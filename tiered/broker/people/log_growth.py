"""When a log grew past an offset, as far as this broker has watched it: how old a lag is, without reading a record.

Owns points of one partition, each with a time and the high watermark that was first seen then. Points thin out with
their age, so that a bounded number reaches far back. Must never answer a time before the one at which the log grew.
"""

from array import array
from bisect import bisect_right

MAX_POINTS = 64
ROOM_AFTER_THINNING = 48
AGE_RATIO = 1.4
"""Two neighbours of a point that is dropped are no further apart than this, by age."""


class LogGrowth:
    """The points of one partition, oldest first. Times are monotonic milliseconds."""

    __slots__ = ("_at_ms", "_is_lower", "_offsets")

    def __init__(self) -> None:
        self._at_ms = array("q")
        self._offsets = array("q")
        self._is_lower = False

    def observe(self, high_watermark: int, at_ms: int) -> None:
        """Adds a point where the log has grown. A lower high watermark is that of a replica that is a moment behind; of
        two in a row the log went back, and what was seen above is forgotten."""
        was_lower, self._is_lower = self._is_lower, bool(self._offsets) and high_watermark < self._offsets[-1]
        if was_lower and self._is_lower:
            keep = bisect_right(self._offsets, high_watermark)
            self._at_ms, self._offsets, self._is_lower = self._at_ms[:keep], self._offsets[:keep], False
        if self._offsets and high_watermark <= self._offsets[-1]:
            return
        self._at_ms.append(at_ms)
        self._offsets.append(high_watermark)
        if len(self._offsets) > MAX_POINTS:
            self._thin(at_ms)

    def grew_past(self, offset: int) -> int | None:
        """When the log was first seen to have a record at `offset`; None while it has none.

        No earlier than the record was written. Later by up to the time between two looks, or by as much of its age as
        `AGE_RATIO` allows; what was there at the first look counts from then on.
        """
        index = bisect_right(self._offsets, offset)
        return self._at_ms[index] if index < len(self._offsets) else None

    def _thin(self, now_ms: int) -> None:
        """Drops points whose neighbours are about as old as each other, and then the oldest ones."""
        last = len(self._at_ms) - 1
        kept = [last]
        for index in range(last - 1, 0, -1):
            if now_ms - self._at_ms[index - 1] > AGE_RATIO * (now_ms - self._at_ms[kept[-1]]):
                kept.append(index)
        kept.append(0)
        indexes = kept[:ROOM_AFTER_THINNING][::-1]
        self._at_ms = array("q", [self._at_ms[index] for index in indexes])
        self._offsets = array("q", [self._offsets[index] for index in indexes])
