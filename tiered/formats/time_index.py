"""The time index of a segment: from which offset on to search for a timestamp.

Owns Kafka's on-disk form, entries of 12 bytes (timestamp i64, relative offset i32, big-endian), and the
search in memory. An entry is the greatest timestamp up to and including a batch, and the last offset of the
batch that brought it: every record before that batch is older. Never touches a file.

Migration: as with the offset index, the format is Kafka's; what does not fit is rebuilt from the batches.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from itertools import chain
from typing import Final

from tiered.errors import CorruptFile

ENTRY_BYTES: Final = 12
NO_TIMESTAMP: Final = -1
"""What Kafka says for "has no timestamp"; such records are not indexed."""

_ENTRY = struct.Struct(">qi")


class TimeIndex:
    """Entries in order, 16 bytes each in memory. Thread safety as in `OffsetIndex`."""

    __slots__ = ("_offsets", "_timestamps")

    def __init__(self) -> None:
        self._timestamps = array("q")
        self._offsets = array("q")

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._offsets)

    @property
    def last_timestamp_ms(self) -> int:
        """The timestamp of the newest entry, -1 when there is none."""
        return self._timestamps[len(self._offsets) - 1] if self._offsets else NO_TIMESTAMP

    @property
    def last_offset(self) -> int:
        """The offset of the newest entry, -1 when there is none."""
        return self._offsets[-1] if self._offsets else -1

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Adds the greatest timestamp so far and the last offset of its batch. Both grow from entry to entry."""
        timestamps, offsets = self._timestamps, self._offsets
        last_ms, last_offset = (timestamps[-1], offsets[-1]) if offsets else (NO_TIMESTAMP, -1)
        assert timestamp_ms > last_ms, f"timestamp {timestamp_ms} after {last_ms}"
        assert offset > last_offset, f"offset {offset} after {last_offset}"
        timestamps.append(timestamp_ms)
        offsets.append(offset)

    def lookup(self, timestamp_ms: int) -> int:
        """The offset in whose batch the search for the first record at or after `timestamp_ms` may begin.

        Everything before that batch is older. -1 when the search begins at the segment's start.
        """
        found = bisect_right(self._timestamps, timestamp_ms, hi=len(self._offsets))
        return self._offsets[found - 1] if found else -1

    def truncate(self, end_offset: int) -> None:
        """Drops the entries of batches that end at `end_offset` or later."""
        keep = bisect_left(self._offsets, end_offset)
        del self._offsets[keep:]
        del self._timestamps[keep:]

    def to_bytes(self, base_offset: int) -> bytes:
        """The index file of a segment that begins at `base_offset`."""
        count = len(self._offsets)
        pairs = zip(self._timestamps[:count], self._offsets[:count], strict=True)
        relative = chain.from_iterable((timestamp_ms, offset - base_offset) for timestamp_ms, offset in pairs)
        return struct.pack(">" + "qi" * count, *relative)

    @classmethod
    def from_bytes(cls, base_offset: int, data: bytes | bytearray | memoryview) -> "TimeIndex":
        """The index in a file's bytes. Raises CorruptFile when it has half an entry, or entries out of order."""
        if len(data) % ENTRY_BYTES:
            raise CorruptFile(f"a time index of {len(data)} bytes is not made of entries of {ENTRY_BYTES}")
        index = cls()
        last_timestamp_ms = last_offset = -1
        for timestamp_ms, offset in _ENTRY.iter_unpack(data):
            if timestamp_ms <= last_timestamp_ms or offset <= last_offset:
                raise CorruptFile("a time index is out of order; it is rebuilt from the batches")
            last_timestamp_ms, last_offset = timestamp_ms, offset
            index._timestamps.append(timestamp_ms)
            index._offsets.append(base_offset + offset)
        return index
