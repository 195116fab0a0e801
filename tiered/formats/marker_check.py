"""What an object says of aborted transactions, compared with the markers among its batches.

Owns that comparison, for chunks that are whole, in the order of their offsets. Where chunks are left out it finds less,
and never something that is right. Pure. A transaction that ended in a later segment has no marker here, and one that
began in an earlier chunk than the first that is looked at may have no batch here: of these nothing is known.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tiered.errors import CorruptBatch
from tiered.formats import record_batch
from tiered.formats.chunk_table import ChunkRow
from tiered.formats.control_record import MarkerType, read_marker
from tiered.formats.record_batch import BatchHeader, Buffer
from tiered.formats.segment_check import Fault, FaultKind
from tiered.formats.segment_object import AbortedIndexEntry, SegmentTail

_LENGTH_AT: Final = struct.Struct(">8xi")
_LENGTH_ENDS: Final = 12
_ATTRIBUTES_AT: Final = 22
_TRANSACTIONAL: Final = 1 << 4


def check_aborted(tail: SegmentTail) -> Fault | None:
    """None when the entries are in the order of their markers, and each has an offset in the segment."""
    footer, last_offset = tail.footer, -1
    for each in tail.aborted:
        if not each.first_offset <= each.last_offset or each.last_offset < last_offset:
            message = "the aborted transactions are not in the order of their markers"
        elif each.first_offset >= footer.end_offset or each.last_offset < footer.base_offset:
            message = (
                f"an aborted transaction of offsets {each.first_offset} to {each.last_offset} is not of this segment"
            )
        else:
            last_offset = each.last_offset
            continue
        return Fault(
            kind=FaultKind.ABORTED,
            message=message,
            first_offset=footer.base_offset,
            last_offset=footer.end_offset - 1,
        )
    return None


class MarkerCheck:
    """The markers of one segment, chunk by chunk, beside its entries of aborted transactions."""

    def __init__(self, aborted: Sequence[AbortedIndexEntry]) -> None:
        self._ends = sorted((each.last_offset, each.producer_id) for each in aborted)
        self._open: frozenset[int] = frozenset()
        """Producers with records since their last marker, in the chunks without a gap up to this one."""
        self._next_offset = -1

    def check(self, row: ChunkRow, data: Buffer, start: int = 0, *, chunk: int) -> Fault | None:
        """None when every entry that ends in this chunk has its marker, and the marker of every aborted transaction
        whose records were seen has its entry. `data[start:start+row.length]` is the whole chunk. Harmless to repeat
        after a fault."""
        open_ = set(self._open) if row.first_offset == self._next_offset else set[int]()
        first = bisect_left(self._ends, (row.first_offset, -1))
        missing = set(self._ends[first : bisect_right(self._ends, (row.last_offset + 1, -1))])
        for position, header in _transactional(data, start, start + row.length):
            if not header.is_control:
                if header.record_count:
                    open_.add(header.producer_id)
                continue
            ended = (header.base_offset, header.producer_id)
            try:
                marker = read_marker(data, position, header)
            except CorruptBatch as error:
                found = _fault(row, chunk, header.base_offset, header.producer_id, str(error))
                return replace(found, kind=FaultKind.BATCH)
            if marker is not None and marker.type is MarkerType.ABORT:
                if ended not in missing and header.producer_id in open_:
                    return _fault(
                        row, chunk, header.base_offset, header.producer_id, "its marker is here, and no entry names it"
                    )
                missing.discard(ended)
            open_.discard(header.producer_id)
        for offset, producer_id in sorted(missing):
            return _fault(row, chunk, offset, producer_id, "an entry names it, and its marker is not here")
        self._open, self._next_offset = frozenset(open_), row.last_offset + 1
        return None


def _fault(row: ChunkRow, chunk: int, offset: int, producer_id: int, why: str) -> Fault:
    return Fault(
        kind=FaultKind.ABORTED,
        message=f"the transaction of producer {producer_id} that was aborted at offset {offset}: {why}",
        first_offset=row.first_offset,
        last_offset=row.last_offset,
        chunk=chunk,
    )


def _transactional(data: Buffer, start: int, end: int) -> list[tuple[int, BatchHeader]]:
    """The batches of transactions. Of the others, which most chunks have alone, only the length is read."""
    found = []
    position = start
    while position < end:
        if data[position + _ATTRIBUTES_AT] & _TRANSACTIONAL:
            found.append((position, record_batch.read_header(data, position, end)))
        (length,) = _LENGTH_AT.unpack_from(data, position)
        position += _LENGTH_ENDS + length
    return found
