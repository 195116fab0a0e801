"""One batch after compaction: what stays of it, and what stands for the offsets of those that went.

Owns how the decisions of `rules.segments.compaction` become bytes, for both tiers. Pure. Must never change an offset,
nor leave one that no batch covers (decision 0014).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tiered.errors import CorruptBatch
from tiered.formats.aborted_ranges import AbortedRange, AbortedRanges
from tiered.formats.batch_filter import MAX_HOLE_OFFSETS, RawRecord, emptied, filtered, is_hole, the_hole
from tiered.formats.record_batch import BatchHeader, Buffer
from tiered.rules.segments import compaction
from tiered.rules.segments.compaction import BatchFate, LastBatch, MarkerFate, TransactionsLeft


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """The fate of a batch. `batch` takes its place; None where it stays unchanged, or goes."""

    fate: BatchFate
    batch: bytes | None
    kept_records: int
    has_tombstones: bool


def clean(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    keeps: Callable[[RawRecord], bool],
    *,
    is_aborted: bool,
    last_batches: Mapping[int, LastBatch],
    delete_horizon_ms: int | None,
) -> Cleaned:
    """The batch of `header` at `position` with the records that `keeps` says; no control batch.

    `delete_horizon_ms` is written into it where it has tombstones; None leaves what is written there. `last_batches` as
    `compaction.fate` has it. Raises CorruptBatch.
    """
    kept_records = tombstones = 0

    def counted(record: RawRecord) -> bool:
        nonlocal kept_records, tombstones
        stays = keeps(record)
        if stays:
            kept_records += 1
            tombstones += not record.has_value
        return stays

    changed: bytes | None = None
    if header.record_count and not is_aborted:
        changed = filtered(buffer, position, counted)
        if tombstones and delete_horizon_ms is not None:
            changed = filtered(buffer, position, keeps, delete_horizon_ms=delete_horizon_ms)
    fate = compaction.fate(header, kept_records=kept_records, last_batches=last_batches)
    if fate is BatchFate.EMPTY:
        changed = emptied(header) if header.record_count else None
    return Cleaned(
        fate=fate,
        batch=None if fate is BatchFate.GO else changed,
        kept_records=kept_records,
        has_tombstones=tombstones > 0,
    )


def marked(buffer: Buffer, position: int, delete_horizon_ms: int) -> bytes:
    """The marker at `position` with this horizon. Raises CorruptBatch."""
    batch = filtered(buffer, position, lambda _record: True, delete_horizon_ms=delete_horizon_ms)
    assert batch is not None
    return batch


class OffsetSet:
    """Some of the offsets from `start_offset` up to `end_offset`: a bit for each of all of them."""

    def __init__(self, start_offset: int, end_offset: int) -> None:
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._bits = bytearray((end_offset - start_offset + 7) // 8)

    def add(self, offset: int) -> None:
        assert self._start_offset <= offset < self._end_offset, offset
        index = offset - self._start_offset
        self._bits[index >> 3] |= 1 << (index & 7)

    def __contains__(self, offset: int) -> bool:
        index = offset - self._start_offset
        return self._start_offset <= offset < self._end_offset and bool(self._bits[index >> 3] & 1 << (index & 7))


class SegmentCleaning:
    """The batches of one segment, one after the other, as a pass over the cold tier leaves them.

    `newest` has the offsets that are the last of their keys. `is_marked` when an earlier pass over the cold tier wrote
    this segment: the delete horizons in it count from then. Others are a broker's, which had removed what a tombstone
    deletes from its own disk and from nowhere else.
    """

    def __init__(
        self,
        newest: OffsetSet,
        *,
        aborted: Iterable[AbortedRange],
        last_batches: Mapping[int, LastBatch],
        is_marked: bool,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._newest = newest
        self._aborted = AbortedRanges(aborted)
        self._last_batches = last_batches
        self._transactions = TransactionsLeft()
        self._is_marked = is_marked
        self._now_ms = now_ms
        self._delete_horizon_ms = now_ms + delete_retention_ms
        self._hole: tuple[int, int, int] | None = None
        self._hole_as_it_was: bytes | None = None
        self.removed_records = 0
        self.removed_markers: set[int] = set()
        """Their offsets. What tells of an aborted transaction must go with its marker: a consumer that is told of one
        skips all of the producer until it meets that."""
        self.is_changed = False
        self.bad_batches: list[tuple[int, int]] = []
        """First and last offsets of batches whose records nobody can decode: they stay as they are."""

    def take(self, buffer: bytes, position: int, header: BatchHeader) -> Iterator[bytes | memoryview]:
        """The batches that can be written now, up to this one. Its CRC was checked. Raises CorruptBatch."""
        batch = memoryview(buffer)[position : position + header.size_bytes]
        if is_hole(header):
            yield from self._drop(header, bytes(batch))
            return
        horizon_ms = header.delete_horizon_ms if self._is_marked else None

        def keeps(record: RawRecord) -> bool:
            offset = record.offset
            return compaction.keeps_record(
                offset=offset,
                newest_offset=offset if offset in self._newest else offset + 1,
                has_key=record.key is not None,
                has_value=record.has_value,
                delete_horizon_ms=horizon_ms,
                now_ms=self._now_ms,
            )

        if header.is_control:
            yield from self._take_marker(buffer, position, header, horizon_ms)
            return
        try:
            cleaned = clean(
                buffer,
                position,
                header,
                keeps,
                is_aborted=compaction.is_aborted(header, self._aborted),
                last_batches=self._last_batches,
                delete_horizon_ms=self._delete_horizon_ms if horizon_ms is None else None,
            )
        except CorruptBatch:
            yield from self.rest()
            self._transactions.left(header)
            self.bad_batches.append((header.base_offset, header.last_offset))
            yield batch
            return
        self.removed_records += header.record_count - cleaned.kept_records
        if cleaned.fate is BatchFate.GO:
            yield from self._drop(header, None)
            return
        yield from self.rest()
        self._transactions.left(header)
        self.is_changed |= cleaned.batch is not None
        yield batch if cleaned.batch is None else cleaned.batch

    def rest(self) -> Iterator[bytes]:
        """The empty batch for the offsets that went just before; to be written at the segment's end as well."""
        hole, as_it_was = self._hole, self._hole_as_it_was
        if hole is not None:
            self._hole = self._hole_as_it_was = None
            self.is_changed |= as_it_was is None
            yield the_hole(*hole) if as_it_was is None else as_it_was

    def _take_marker(
        self, buffer: bytes, position: int, header: BatchHeader, horizon_ms: int | None
    ) -> Iterator[bytes | memoryview]:
        """What other segments hold of its transaction needs no marker here: each has its own list of aborted ones."""
        match self._transactions.marker_fate(
            header, delete_horizon_ms=horizon_ms, last_batches=self._last_batches, now_ms=self._now_ms
        ):
            case MarkerFate.KEEP:
                yield from self.rest()
                yield memoryview(buffer)[position : position + header.size_bytes]
            case MarkerFate.MARK:
                yield from self.rest()
                self.is_changed = True
                yield marked(buffer, position, self._delete_horizon_ms)
            case MarkerFate.GO:
                self.removed_markers.add(header.base_offset)
                yield from self._drop(header, None)

    def _drop(self, header: BatchHeader, hole: bytes | None) -> Iterator[bytes]:
        known, epoch = self._hole, header.partition_leader_epoch
        # The first batch of a leader epoch tells where that began.
        if known is not None and known[2] == epoch and header.last_offset - known[0] <= MAX_HOLE_OFFSETS:
            self._hole, self._hole_as_it_was = (known[0], header.last_offset, epoch), None
            return
        yield from self.rest()
        self._hole, self._hole_as_it_was = (header.base_offset, header.last_offset, epoch), hole
