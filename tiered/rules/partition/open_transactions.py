"""The transactions of one partition that are open, as its batches tell, and what each end leaves for readers.

Owns their order. The same for a leader that appends, a follower that copies, and a log that is opened: what they find
out depends on the batches alone. Must never know how far anything is committed.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace

from tiered.formats.control_record import MarkerType, TransactionMarker
from tiered.formats.producer_snapshot import ProducerEntry
from tiered.formats.record_batch import BatchHeader
from tiered.formats.segment_object import AbortedIndexEntry

PlacedBatch = tuple[BatchHeader, int, TransactionMarker | None]
"""A batch, the offset where it stands or is about to, and what it says if it is a marker."""


class OpenTransactions:
    """The first offset of each producer's open transaction, the oldest first."""

    __slots__ = ("_first_offsets",)

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        found = [
            (entry.current_transaction_first_offset, entry.producer_id)
            for entry in entries
            if entry.current_transaction_first_offset is not None
        ]
        self._first_offsets = OrderedDict((producer_id, offset) for offset, producer_id in sorted(found))

    def __len__(self) -> int:
        return len(self._first_offsets)

    def first_offsets(self) -> list[int]:
        """Of all, the oldest first."""
        return list(self._first_offsets.values())

    def oldest(self) -> tuple[int, int] | None:
        """The producer and the first offset of the oldest; None where none is open."""
        return next(iter(self._first_offsets.items()), None)

    def note(self, header: BatchHeader, base_offset: int, marker: TransactionMarker | None) -> AbortedIndexEntry | None:
        """Takes over the next batch. When that is a marker which ends a transaction: the row of it, for the index of
        aborted transactions if it was aborted. Kafka's rows are the same."""
        if not header.is_transactional:
            return None
        producer_id = header.producer_id
        if not header.is_control:
            if producer_id not in self._first_offsets:
                self._first_offsets[producer_id] = base_offset
            return None
        if marker is None:
            return None
        first_offset = self._first_offsets.pop(producer_id, None)
        if first_offset is None:
            return None
        oldest = next(iter(self._first_offsets.values()), None)
        return AbortedIndexEntry(
            producer_id=producer_id,
            first_offset=first_offset,
            last_offset=base_offset,
            last_stable_offset=base_offset + 1 if oldest is None else oldest,
        )

    def aborted_in(self, batches: Iterable[PlacedBatch]) -> list[AbortedIndexEntry]:
        """The rows of the aborted transactions that end in these next batches; changes nothing. Takes no longer where
        many are open."""
        begun, over = OpenTransactions(), set[int]()
        rows = []
        for header, base_offset, marker in batches:
            producer_id = header.producer_id
            if producer_id in over or producer_id not in self._first_offsets:
                ended = begun.note(header, base_offset, marker)
            elif marker is None or not header.is_transactional:
                continue
            else:
                over.add(producer_id)
                ended = AbortedIndexEntry(
                    producer_id=producer_id,
                    first_offset=self._first_offsets[producer_id],
                    last_offset=base_offset,
                    last_stable_offset=next(iter(begun._first_offsets.values()), base_offset + 1),
                )
            if ended is not None and marker is not None and marker.type is MarkerType.ABORT:
                # What was open before these batches is older than what began in them.
                oldest = next((first for each, first in self._first_offsets.items() if each not in over), None)
                rows.append(ended if oldest is None else replace(ended, last_stable_offset=oldest))
        return rows
