"""Who goes through which partition in order, and how far ahead of each the store is asked.

Owns the pace of each reader (`rules.pacing.read_ahead`), known by the offset at which it would go on: several may read
one partition at different places, and go on from one segment to the next. Must never remember more than so many of
them.
"""

from collections import OrderedDict
from typing import TypeAlias

from tiered.rules.pacing import read_ahead
from tiered.rules.pacing.read_ahead import ReadAhead, ReadAheadLimits

REMEMBERED_READERS = 1024

_Place: TypeAlias = tuple[str, int, int]
"""Topic, partition, and the offset after the chunk that a reader had last."""


class SequentialReaders:
    """The paces of at most `REMEMBERED_READERS` readers; those that moved last stay."""

    def __init__(self, limits: ReadAheadLimits) -> None:
        self._limits = limits
        self._paces: OrderedDict[_Place, ReadAhead] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paces)

    def moved(
        self, topic: str, partition: int, *, first_offset: int, last_offset: int, chunk_bytes: int, waited: bool
    ) -> ReadAhead:
        """The pace of the reader that asks for the chunk of these offsets now. `waited`: it is not here yet."""
        place = (topic, partition, last_offset + 1)
        pace = self._paces.pop((topic, partition, first_offset), None)
        if pace is not None:
            pace = read_ahead.moved_on(pace, self._limits, chunk_bytes=chunk_bytes, waited=waited)
        else:
            # It reads on in the same chunk, or nothing is known of it.
            pace = self._paces.get(place) or read_ahead.began(self._limits)
        self._paces[place] = pace
        self._paces.move_to_end(place)
        if len(self._paces) > REMEMBERED_READERS:
            self._paces.popitem(last=False)
        return pace
