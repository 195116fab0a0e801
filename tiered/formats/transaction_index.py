"""The transaction index of a segment: the transactions that were aborted by a marker in it.

Owns Kafka's on-disk form, entries of 34 bytes, and the search in memory. Entries are in the order of their markers.
Never touches a file.

    entry := version i16 (0) | producer id i64 | first offset i64 | last offset i64 (of the marker)
             | last stable offset i64 (as it was after the marker)                                  (big-endian)

Migration: the format is Kafka's, with the version in each entry; what does not fit is rebuilt from the batches.
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Collection
from typing import Final

from tiered.errors import CorruptFile
from tiered.formats.segment_object import AbortedIndexEntry

ENTRY_BYTES: Final = 34

_ENTRY = struct.Struct(">hqqqq")
_NATIVE = struct.Struct("=qqqq")
_VERSION: Final = 0
_FIELDS: Final = 4
_LAST_OFFSET: Final = 2
assert _ENTRY.size == ENTRY_BYTES


class TransactionIndex:
    """Entries in order, 32 bytes each in memory. One thread appends; any may search meanwhile."""

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields = array("q")

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._fields) // _FIELDS

    def append(self, entry: AbortedIndexEntry) -> None:
        """Adds the transaction whose marker comes next."""
        fields = self._fields
        assert not fields or entry.last_offset > fields[_LAST_OFFSET - _FIELDS], f"{entry} is out of order"
        # In one step, so that no other thread sees half an entry.
        fields.frombytes(
            _NATIVE.pack(entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset)
        )

    def find(self, start_offset: int, end_offset: int, found: list[AbortedIndexEntry]) -> bool:
        """Adds to `found` the entries of transactions with a part in the offsets from `start_offset` to `end_offset`,
        exclusive. True when no later entry can have one: all that began before the end had ended by then."""
        fields = self._fields
        for place in range(self._place_of(start_offset), len(self)):
            producer_id, first_offset, last_offset, stable_offset = fields[_FIELDS * place : _FIELDS * (place + 1)]
            if first_offset < end_offset:
                found.append(
                    AbortedIndexEntry(
                        producer_id=producer_id,
                        first_offset=first_offset,
                        last_offset=last_offset,
                        last_stable_offset=stable_offset,
                    )
                )
            if stable_offset >= end_offset:
                return True
        return False

    def without(self, markers: Collection[int]) -> "TransactionIndex":
        """A copy without the transactions that ended at these offsets."""
        kept = TransactionIndex()
        fields = self._fields
        for first in range(0, len(fields), _FIELDS):
            if fields[first + _LAST_OFFSET] not in markers:
                kept._fields.extend(fields[first : first + _FIELDS])
        return kept

    def truncate(self, end_offset: int) -> None:
        """Drops the entries whose markers are at `end_offset` or later."""
        del self._fields[_FIELDS * self._place_of(end_offset) :]

    def _place_of(self, offset: int) -> int:
        """The first entry whose marker is at `offset` or later."""
        fields = self._fields
        return bisect_left(range(len(self)), offset, key=lambda place: fields[_FIELDS * place + _LAST_OFFSET])

    def to_bytes(self, end_offset: int) -> bytes:
        """The index file of a segment that ends at `end_offset`, or of its part below that."""
        fields = self._fields[: _FIELDS * self._place_of(end_offset)]
        places = range(0, len(fields), _FIELDS)
        return b"".join(_ENTRY.pack(_VERSION, *fields[place : place + _FIELDS]) for place in places)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> "TransactionIndex":
        """The index in a file's bytes. Raises CorruptFile when it has half an entry, or one that cannot be."""
        if len(data) % ENTRY_BYTES:
            raise CorruptFile(f"a transaction index of {len(data)} bytes is not made of entries of {ENTRY_BYTES}")
        index = cls()
        before = -1
        for version, producer_id, first_offset, last_offset, stable_offset in _ENTRY.iter_unpack(data):
            is_possible = producer_id >= 0 and 0 <= first_offset < last_offset and 0 <= stable_offset <= last_offset + 1
            if version != _VERSION or last_offset <= before or not is_possible:
                raise CorruptFile("a transaction index has an entry that cannot be; it is rebuilt from the batches")
            before = last_offset
            index._fields.frombytes(_NATIVE.pack(producer_id, first_offset, last_offset, stable_offset))
        return index
