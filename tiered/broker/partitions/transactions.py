"""The transactions of one replica of a partition: how far readers may see, and which producers may begin another.

Owns the last stable offset, and the questions to coordinators that are on their way. Must never let the last stable
offset pass a transaction that is open, or whose end is not committed, nor go back (X4).
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary

from tiered.errors import TieredError
from tiered.formats import record_batch
from tiered.formats.control_record import TransactionMarker, encode_marker
from tiered.formats.producer_snapshot import ProducerEntry
from tiered.formats.record_batch import BatchHeader
from tiered.formats.segment_object import AbortedIndexEntry
from tiered.rules.partition import producer_state
from tiered.rules.partition.open_transactions import OpenTransactions, PlacedBatch
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Verification:
    """A question to a coordinator, whether the producer's transaction is ongoing, from before it was asked.

    Worth nothing any more once a marker of the producer has come: the answer may be from before the transaction ended.
    """

    producer_id: int
    producer_epoch: int


class AskedMarker(NamedTuple):
    """The end of a producer's transaction, and the batch that says so: the same in all of its partitions."""

    marker: TransactionMarker
    producer: ProducerIdAndEpoch
    raises_epoch: bool
    """Each transaction has an epoch of its own, which the marker ends."""
    batch: bytearray
    header: BatchHeader

    @classmethod
    def of(
        cls, marker: TransactionMarker, producer: ProducerIdAndEpoch, *, raises_epoch: bool, now_ms: int
    ) -> "AskedMarker":
        producer_id, producer_epoch = producer.producer_id, producer.producer_epoch
        batch = encode_marker(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=now_ms)
        return cls(marker, producer, raises_epoch, batch, record_batch.read_header(batch, 0))


def in_their_places(
    due: Sequence[AskedMarker], base_offset: int, leader_epoch: int, log_append_time_ms: int | None
) -> tuple[memoryview, list[tuple[int, BatchHeader]], list[PlacedBatch]]:
    """The markers' batches one after the other, stamped for the offsets from `base_offset` on, and where each is.
    `log_append_time_ms` where that is stamped, too."""
    buffer = bytearray().join(each.batch for each in due)
    headers: list[tuple[int, BatchHeader]] = []
    placed: list[PlacedBatch] = []
    position = 0
    for offset, each in enumerate(due, base_offset):
        header = each.header
        record_batch.stamp_offsets(buffer, position, offset, leader_epoch)
        if log_append_time_ms is not None:
            record_batch.stamp_log_append_time(buffer, position, header.size_bytes, log_append_time_ms)
            header = record_batch.read_header(buffer, position)
        headers.append((position, header))
        placed.append((header, offset, each.marker))
        position += header.size_bytes
    return memoryview(buffer), headers, placed


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingTransaction:
    """The open transaction at which the last stable offset stands. `since_ms` is when its first record came, as far as
    that is known: after a restart, the time of the oldest of its last batches."""

    producer_id: int
    first_offset: int
    since_ms: int | None


class PartitionTransactions:
    """Part of one partition, which tells it of every transactional batch."""

    __slots__ = (
        "_ended",
        "_known_from_offset",
        "_open",
        "_stable_offset",
        "_unstable",
        "_verifications",
        "is_any_open",
    )

    def __init__(self, entries: Iterable[ProducerEntry], *, end_offset: int, stable_offset: int) -> None:
        self._verifications: WeakValueDictionary[tuple[int, int], Verification] = WeakValueDictionary()
        """Those that somebody holds on to, by producer id and epoch."""
        self.begin_anew(entries, end_offset=end_offset, stable_offset=stable_offset)

    def begin_anew(self, entries: Iterable[ProducerEntry], *, end_offset: int, stable_offset: int) -> None:
        """The log ends at `end_offset` with these producers. Of transactions that ended below nothing else is known:
        the last stable offset stays at `stable_offset` until all of their markers are committed."""
        entries = tuple(entries)
        self._open = OpenTransactions(entries)
        self._known_from_offset = end_offset
        self._stable_offset = stable_offset
        known = {entry.current_transaction_first_offset: _oldest_ms(entry) for entry in entries}
        self._unstable = OrderedDict((offset, known[offset]) for offset in self._open.first_offsets())
        """The first offsets of transactions that are open or end in `_ended`, the smallest first, and since when."""
        self._ended: deque[tuple[int, int]] = deque()
        """Offset of the marker and first offset of those whose marker is not known to be committed."""
        self.is_any_open = bool(self._unstable)
        self._verifications.clear()

    def last_stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        """As far as a read_committed reader may see."""
        if self._unstable:
            while self._ended and self._ended[0][0] < high_watermark:
                del self._unstable[self._ended.popleft()[1]]
        if high_watermark < self._known_from_offset:
            stable_offset = self._stable_offset
        else:
            stable_offset = next(iter(self._unstable), high_watermark)
        return min(high_watermark, max(log_start_offset, stable_offset))

    def note(self, header: BatchHeader, base_offset: int, marker: TransactionMarker | None, now_ms: int) -> None:
        """A transactional batch came into the log at `now_ms`. Its own time may be what the producer has copied."""
        if marker is None:
            before = len(self._open)
            self._open.note(header, base_offset, marker)
            if len(self._open) > before:
                self._unstable[base_offset] = now_ms
                self.is_any_open = True
            return
        self._end_verifications(header.producer_id)
        ended = self._open.note(header, base_offset, marker)
        if ended is not None:
            self._ended.append((base_offset, ended.first_offset))
            self.is_any_open = bool(len(self._open))

    def holder(self, high_watermark: int, log_start_offset: int) -> HoldingTransaction | None:
        """The open transaction that keeps the last stable offset below the high watermark. None where nothing does, or
        one that has ended and waits for its marker to be committed."""
        stable_offset = self.last_stable_offset(high_watermark, log_start_offset)
        oldest = self._open.oldest()
        if oldest is None or stable_offset >= high_watermark or oldest[1] > stable_offset:
            return None
        producer_id, first_offset = oldest
        return HoldingTransaction(
            producer_id=producer_id, first_offset=first_offset, since_ms=self._unstable.get(first_offset)
        )

    def aborted_in(self, batches: Iterable[PlacedBatch]) -> Sequence[AbortedIndexEntry]:
        """The rows of aborted transactions that end in batches which are about to be appended."""
        return self._open.aborted_in(batches)

    def begin_verification(
        self, entry: ProducerEntry | None, producer_id: int, producer_epoch: int
    ) -> Verification | None:
        """Holds for as long as no marker ends it; None when the producer's transaction is open here already."""
        if producer_state.has_open_transaction(entry, producer_epoch):
            return None
        found = self._verifications.get((producer_id, producer_epoch))
        if found is None:
            found = Verification(producer_id=producer_id, producer_epoch=producer_epoch)
            self._verifications[producer_id, producer_epoch] = found
        return found

    def due_markers(
        self, entries: Mapping[int, ProducerEntry], asked: Sequence[AskedMarker]
    ) -> tuple[list[AskedMarker], dict[int, TieredError]]:
        """Those to append, and by their places why others are refused: TransactionCoordinatorFenced or
        StaleProducerEpoch. What stands already is neither. Whatever was asked about their producers counts no more."""
        due, refused = list[AskedMarker](), dict[int, TieredError]()
        for place, each in enumerate(asked):
            producer_id = each.producer.producer_id
            try:
                is_due = producer_state.must_append_marker(
                    entries.get(producer_id), each.marker, each.producer, raises_epoch=each.raises_epoch
                )
            except TieredError as error:
                refused[place] = error.without_frames()
                continue
            self._end_verifications(producer_id)
            if is_due:
                due.append(each)
        return due, refused

    def _end_verifications(self, producer_id: int) -> None:
        if not self._verifications:  # Mostly: where the coordinator is this broker, none outlives its batch.
            return
        for key in [key for key in self._verifications if key[0] == producer_id]:
            del self._verifications[key]

    def check(self, entry: ProducerEntry | None, header: BatchHeader, verified: Verification | None) -> None:
        """Returns when the batch may stand where its producer's transaction is now. Raises InvalidTransactionState."""
        key = header.producer_id, header.producer_epoch
        is_verified = verified is not None and self._verifications.get(key) is verified
        producer_state.check_transaction(entry, header, is_verified=is_verified)


def _oldest_ms(entry: ProducerEntry) -> int | None:
    first_offset = entry.current_transaction_first_offset
    if first_offset is None:
        return None
    return min((each.timestamp_ms for each in entry.batches if each.base_offset >= first_offset), default=None)
