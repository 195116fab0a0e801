"""The offset index of a segment: where in the file to begin the search for an offset.

Owns Kafka's on-disk form, entries of 8 bytes (relative offset i32, position i32, big-endian), and the search
in memory. Sparse: an entry is the last offset of a batch and the position of that batch. Never touches a file.

Migration: the format is Kafka's and has no version. An index that does not fit its segment is not repaired
but thrown away and rebuilt from the batches.
"""

import operator
import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from typing import Final

from tiered.errors import CorruptFile

ENTRY_BYTES: Final = 8
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
MAX_POSITION: Final = 2**31 - 1


class OffsetIndex:
    """Entries in order, 16 bytes each in memory.

    One thread may append while others look up or call `to_bytes`: a position is stored before its offset, and
    only entries with both are seen. `truncate` needs the index for itself.
    """

    __slots__ = ("_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._positions = array("q")

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._offsets)

    @property
    def last_offset(self) -> int:
        """The offset of the newest entry, -1 when there is none."""
        return self._offsets[-1] if self._offsets else -1

    @property
    def last_position(self) -> int:
        """The position of the newest entry, 0 when there is none."""
        return self._positions[len(self._offsets) - 1] if self._offsets else 0

    def append(self, offset: int, position: int) -> None:
        """Adds the batch at `position`, which ends with `offset`. Both grow from entry to entry."""
        offsets, positions = self._offsets, self._positions
        last_offset = offsets[-1] if offsets else -1
        assert offset > last_offset, f"offset {offset} after {last_offset}"
        assert not offsets or position > positions[-1], f"position {position} after {positions[-1]}"
        positions.append(position)
        offsets.append(offset)

    def lookup(self, offset: int) -> int:
        """The position of a batch at or before the one that holds `offset`: the nearest that is known, else 0."""
        found = bisect_right(self._offsets, offset)
        return self._positions[found - 1] if found else 0

    def floor_position(self, position: int) -> int:
        """The greatest indexed position that is not beyond `position`; 0 when there is none."""
        found = bisect_right(self._positions, position, hi=len(self._offsets))
        return self._positions[found - 1] if found else 0

    def offset_at(self, position: int) -> int | None:
        """The last offset of the first indexed batch that begins at `position` or beyond; None when none does."""
        count = len(self._offsets)
        found = bisect_left(self._positions, position, hi=count)
        return self._offsets[found] if found < count else None

    def truncate(self, end_offset: int) -> None:
        """Drops the entries of batches that end at `end_offset` or later."""
        keep = bisect_left(self._offsets, end_offset)
        del self._offsets[keep:]
        del self._positions[keep:]

    def to_bytes(self, base_offset: int) -> bytes:
        """The index file of a segment that begins at `base_offset`."""
        count = len(self._offsets)
        entries = array("i", bytes(ENTRY_BYTES * count))
        entries[0::2] = array("i", (offset - base_offset for offset in islice(self._offsets, count)))
        entries[1::2] = array("i", islice(self._positions, count))
        if sys.byteorder == "little":
            entries.byteswap()
        return entries.tobytes()

    @classmethod
    def from_bytes(cls, base_offset: int, data: bytes | bytearray | memoryview) -> "OffsetIndex":
        """The index in a file's bytes. Raises CorruptFile when it has half an entry, or entries out of order."""
        if len(data) % ENTRY_BYTES:
            raise CorruptFile(f"an offset index of {len(data)} bytes is not made of entries of {ENTRY_BYTES}")
        entries = array("i", bytes(data))
        if sys.byteorder == "little":
            entries.byteswap()
        offsets, positions = entries[0::2], entries[1::2]
        if not _rises(offsets) or not _rises(positions):
            raise CorruptFile("an offset index is out of order; it is rebuilt from the batches")
        index = cls()
        index._positions.extend(array("q", positions))
        index._offsets.extend(base_offset + offset for offset in offsets)
        return index


def _rises(values: "array[int]") -> bool:
    """True for non-negative values of which each is greater than the one before."""
    return not values or (values[0] >= 0 and all(map(operator.lt, values, islice(values, 1, None))))
