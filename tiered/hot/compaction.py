"""One pass over a log that leaves only the newest record of each key.

Owns the pass: it finds the last offset of each key in the dirty part, writes the rest of each closed segment to another
file, and puts that in the segment's place. `rules.segments.compaction` decides what stays, `formats.batch_filter` how a
batch looks without its records. Offsets never change, and batches follow each other without a gap. Must never hold more
keys than it was allowed, nor go on after records were taken back.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from tiered.errors import CorruptBatch, LogDirFailed
from tiered.file_slice import OpenFile
from tiered.formats.aborted_ranges import AbortedRange, AbortedRanges
from tiered.formats.batch_filter import MAX_HOLE_OFFSETS, RawRecord, is_hole, keyed_records, the_hole
from tiered.formats.offset_index import OffsetIndex
from tiered.formats.record_batch import HEADER_BYTES, BatchHeader, read_header, verify_crc
from tiered.formats.time_index import TimeIndex
from tiered.hot.batch_walk import FAR_BLOCK_BYTES, BlockReader
from tiered.hot.file_system import TEMPORARY_SUFFIX, FileSystem, write_all
from tiered.hot.log import Log
from tiered.hot.segment import LOG_SUFFIX, BatchTail, LogSegment
from tiered.rules.segments import batch_compaction, compaction
from tiered.rules.segments.compaction import (
    NOT_FOUND,
    BatchFate,
    Compacted,
    Due,
    LastBatch,
    MarkerFate,
    TransactionsLeft,
)
from tiered.runtime import crash_point

CLEANED_SUFFIX: Final = ".cleaned" + TEMPORARY_SUFFIX
"""What a crash leaves of it is removed at the next start."""
STEP_BYTES: Final = 64 << 10
"""Some milliseconds of this thread: whatever else the process does waits no longer for the interpreter."""
KEY_BYTES: Final = 192
"""What one key takes of the memory that a pass may use: its hash, its offset and its place in the table."""
MAX_BAD_BATCHES: Final = 20
"""So many are named for one pass."""
_HASH_BYTES: Final = 16
_WRITE_BYTES: Final = 1 << 20


@dataclass(slots=True, kw_only=True)
class PassReport:
    """The progress of a pass. `removed_bytes` is by how much the files are smaller."""

    end_offset: int = 0
    read_bytes: int = 0
    removed_bytes: int = 0
    removed_records: int = 0
    replaced_segments: int = 0
    bad_batches: list[tuple[int, int]] = field(default_factory=list)
    """First and last offsets of batches whose records nobody can decode, at most `MAX_BAD_BATCHES`: they stay."""
    is_whole: bool = False
    """It came to its end, and the log remembers that."""


class CompactionPass:
    """One pass over one log. `steps` does the work, in a thread; no other pass may run meanwhile."""

    def __init__(
        self,
        log: Log,
        fs: FileSystem,
        due: Due,
        *,
        last_batches: Mapping[int, LastBatch],
        aborted: Iterable[AbortedRange],
        delete_retention_ms: int,
        keeps_tombstones: bool = False,
        now_ms: int,
        max_memory_bytes: int,
    ) -> None:
        """`aborted` has every aborted transaction with a batch below the end of what is due. `keeps_tombstones` where
        what they delete may be elsewhere too: then they, and markers, stay past their horizon."""
        self._log = log
        self._fs = fs
        self._due = due
        self._last_batches = last_batches
        self._aborted = AbortedRanges(aborted)
        self._transactions = TransactionsLeft()
        self._now_ms = now_ms
        self._delete_horizon_ms = now_ms + delete_retention_ms
        self._keeps_tombstones = keeps_tombstones
        self._max_keys = max(1, max_memory_bytes // KEY_BYTES)
        self._newest: dict[bytes, int] = {}
        self._tombstones_due_ms: int | None = None
        self._cuts = log.cuts
        self.report = PassReport(end_offset=due.first_dirty_offset)

    def steps(self) -> Iterator[int]:
        """Bytes read since the step before, again and again: the pass's driver may rest in between.

        Raises CorruptBatch for a batch that is damaged, LogDirFailed and OSError; the log goes on as it is then. Ends
        early when records were taken back, or segments removed, under the pass.
        """
        segments = self._log.segments_on_disk(self._due.end_offset)
        yield from self._find_newest(segments)
        for segment in segments:
            if segment.base_offset >= self.report.end_offset:
                break
            if self._log.holds(segment):  # Else retention was quicker.
                yield from self._clean(segment)
            if self._log.cuts != self._cuts:
                return
        self._log.keep_compacted(
            Compacted(clean_end_offset=self.report.end_offset, tombstones_due_ms=self._tombstones_due_ms)
        )
        self.report.is_whole = True

    # The newest offset of each key

    def _find_newest(self, segments: Sequence[LogSegment]) -> Iterator[int]:
        """Fills the table from the dirty part, up to its end or as far as the memory lasts: there the pass ends."""
        due = self._due
        for segment in segments:
            if segment.end_offset <= due.first_dirty_offset:
                continue
            with self._fs.open(segment.path + LOG_SUFFIX) as file:
                done = 0
                for position, header, block, index in _batches(self._fs, file, segment):
                    if header.end_offset > due.first_dirty_offset:
                        if len(self._newest) + header.record_count > self._max_keys and self._newest:
                            return
                        self.report.end_offset = self._note_keys(header, block, index)
                        if self.report.end_offset < header.end_offset:
                            return
                    if position + header.size_bytes - done >= STEP_BYTES:
                        yield self._read(position + header.size_bytes - done)
                        done = position + header.size_bytes
                yield self._read(segment.size_bytes - done)

    def _note_keys(self, header: BatchHeader, block: bytes, index: int) -> int:
        """The offset up to which the batch's keys are noted: its end, unless it has more keys than a pass may hold."""
        if header.is_control or compaction.is_aborted(header, self._aborted):
            return header.end_offset
        in_batch: dict[bytes, int] = {}
        end_offset = header.end_offset
        try:
            for record in keyed_records(block, index):
                if record.key is None or not self._due.first_dirty_offset <= record.offset < end_offset:
                    continue
                key = _hash(record.key)
                if key in in_batch or len(in_batch) < self._max_keys:
                    in_batch[key] = record.offset
                else:
                    end_offset = record.offset
        except CorruptBatch:
            # Where one record cannot be read, none counts as newer than what is there.
            if len(self.report.bad_batches) < MAX_BAD_BATCHES:
                self.report.bad_batches.append((header.base_offset, header.last_offset))
            return header.end_offset
        self._newest.update(in_batch)
        return end_offset

    # What stays

    def _clean(self, segment: LogSegment) -> Iterator[int]:
        """Writes what stays of the segment and puts it in the segment's place, if anything goes."""
        rewriter = _Rewriter(self._fs, segment, self._log.config.index_interval_bytes)
        try:
            done = 0
            with self._fs.open(segment.path + LOG_SUFFIX) as file:
                rewriter.source = file
                for position, header, block, index in _batches(self._fs, file, segment):
                    self._take(rewriter, header, block, index)
                    if position + header.size_bytes - done >= STEP_BYTES:
                        yield self._read(position + header.size_bytes - done)
                        done = position + header.size_bytes
                fresh = rewriter.finish()
            yield self._read(segment.size_bytes - done)
            if fresh is None or self._log.cuts != self._cuts:
                return
            crash_point("compaction.written")
            rewriter.is_taken = self._log.replace_segment(segment, fresh, rewriter.path)
            if rewriter.is_taken:
                self.report.replaced_segments += 1
                self.report.removed_bytes += segment.size_bytes - fresh.size_bytes
            elif self._log.holds(segment):
                raise LogDirFailed(
                    f"{segment.path}{LOG_SUFFIX} cannot be replaced now: the log is closed or has failed"
                )
            crash_point("compaction.replaced")
        finally:
            rewriter.clear()

    def _take(self, rewriter: "_Rewriter", header: BatchHeader, block: bytes, index: int) -> None:
        batch = memoryview(block)[index : index + header.size_bytes]
        if header.base_offset >= self.report.end_offset:
            rewriter.keep(batch, header)
            return
        if header.is_control:
            self._take_marker(rewriter, header, block, index)
            return
        if is_hole(header):
            rewriter.drop(header, batch)
            return
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None and header.end_offset <= self.report.end_offset:
            # Not where the pass ends within the batch: tombstones behind its end have not been compared yet.
            horizon_ms = self._delete_horizon_ms
        try:
            cleaned = batch_compaction.clean(
                block,
                index,
                header,
                lambda record: self.keeps(header, record),
                is_aborted=compaction.is_aborted(header, self._aborted),
                last_batches=self._last_batches,
                delete_horizon_ms=horizon_ms if header.delete_horizon_ms is None else None,
            )
        except CorruptBatch:
            self._transactions.left(header)
            rewriter.keep(batch, header)
            return
        self.report.removed_records += header.record_count - cleaned.kept_records
        if cleaned.fate is BatchFate.GO:
            rewriter.drop(header, None)
            return
        self._transactions.left(header)
        if cleaned.batch is not None:
            rewriter.change(cleaned.batch)
        else:
            rewriter.keep(batch, header)
        if cleaned.has_tombstones and horizon_ms is not None:
            self._note_due(horizon_ms)

    def _take_marker(self, rewriter: "_Rewriter", header: BatchHeader, block: bytes, index: int) -> None:
        horizon_ms = header.delete_horizon_ms
        fate = self._transactions.marker_fate(
            header, delete_horizon_ms=horizon_ms, last_batches=self._last_batches, now_ms=self._now_ms
        )
        if fate is MarkerFate.GO and not self._keeps_tombstones:
            rewriter.drop_marker(header)
        elif fate is MarkerFate.MARK and not self._keeps_tombstones:
            rewriter.change(batch_compaction.marked(block, index, self._delete_horizon_ms))
            self._note_due(self._delete_horizon_ms)
        else:
            rewriter.keep(memoryview(block)[index : index + header.size_bytes], header)
            if horizon_ms is not None and (horizon_ms > self._now_ms or fate is MarkerFate.GO):
                self._note_due(horizon_ms)  # One that stays after its horizon waits for something else.

    def _note_due(self, horizon_ms: int) -> None:
        due_ms = self._tombstones_due_ms
        self._tombstones_due_ms = horizon_ms if due_ms is None else min(due_ms, horizon_ms)

    def keeps(self, header: BatchHeader, record: RawRecord) -> bool:
        """Whether the record stays. One behind the end of the pass does: what came before it has not been compared."""
        if record.offset >= self.report.end_offset:
            return True
        key = record.key
        return compaction.keeps_record(
            offset=record.offset,
            newest_offset=NOT_FOUND if key is None else self._newest.get(_hash(key), NOT_FOUND),
            has_key=key is not None,
            has_value=record.has_value,
            delete_horizon_ms=None if self._keeps_tombstones else header.delete_horizon_ms,
            now_ms=self._now_ms,
        )

    def _read(self, count: int) -> int:
        self.report.read_bytes += count
        return count


class _Rewriter:
    """The file that a segment becomes. Nothing is written before something changes: what comes before is copied."""

    def __init__(self, fs: FileSystem, segment: LogSegment, index_interval_bytes: int) -> None:
        self._fs = fs
        self._segment = segment
        self._index_interval_bytes = index_interval_bytes
        self.path = segment.path + LOG_SUFFIX + CLEANED_SUFFIX
        self.source: OpenFile | None = None
        self.is_taken = False
        self._file: OpenFile | None = None
        self._fresh = LogSegment(segment.path, segment.base_offset, created_ms=segment.created_ms)
        self._fresh.offset_index, self._fresh.time_index = OffsetIndex(), TimeIndex()
        self._fresh.first_append_ms = segment.first_append_ms
        self._fresh.written_ms = segment.written_ms
        self._fresh.times_proven_from = segment.times_proven_from
        self._pending = bytearray()
        self._written_bytes = 0
        self._hole: tuple[int, int, int] | None = None
        self._hole_as_it_was: bytes | None = None
        self._removed_markers: set[int] = set()

    def keep(self, batch: memoryview, header: BatchHeader) -> None:
        """The batch as it is."""
        self._end_hole()
        self._keep(batch, header)

    def change(self, batch: bytes) -> None:
        """A batch of the same offsets in the place of what was there."""
        self._end_hole()
        self._change(batch)

    def drop(self, header: BatchHeader, hole: memoryview | None) -> None:
        """Nothing in the place of a batch; `hole` is the batch when it has been nothing already."""
        known, epoch = self._hole, header.partition_leader_epoch
        # The first batch of a leader epoch tells where that began.
        if known is not None and known[2] == epoch and header.last_offset - known[0] <= MAX_HOLE_OFFSETS:
            self._hole, self._hole_as_it_was = (known[0], header.last_offset, epoch), None
            return
        self._end_hole()
        self._hole = (header.base_offset, header.last_offset, epoch)
        self._hole_as_it_was = None if hole is None else bytes(hole)

    def drop_marker(self, header: BatchHeader) -> None:
        """Nothing in the place of a marker. What tells readers of its transaction goes with it: told of one, they
        skip its producer until they meet the marker."""
        self._removed_markers.add(header.base_offset)
        self.drop(header, None)

    def finish(self) -> LogSegment | None:
        """The new segment, whose file is on disk for good; None when nothing has changed. Raises OSError."""
        self._end_hole()
        if self._file is None:
            return None
        self._write_pending()
        self._fs.sync(self._file)
        fresh = self._fresh
        fresh.note_time()
        fresh.aborted = self._segment.aborted.without(self._removed_markers)
        fresh.file, fresh.closed, fresh.tail = self._file, True, BatchTail()
        return fresh

    def clear(self) -> None:
        """Removes the file, unless it has become the segment's."""
        if self._file is not None and not self.is_taken:
            with suppress(OSError):
                self._fs.unlink(self.path)

    def _end_hole(self) -> None:
        hole, as_it_was = self._hole, self._hole_as_it_was
        if hole is None:
            return
        self._hole = self._hole_as_it_was = None
        if as_it_was is not None:
            self._keep(memoryview(as_it_was), read_header(as_it_was))
        else:
            self._change(the_hole(*hole))

    def _keep(self, batch: memoryview, header: BatchHeader) -> None:
        if self._file is not None:
            self._write(batch)
        self._note(header)

    def _change(self, batch: bytes) -> None:
        if self._file is None:
            self._begin()
        self._write(batch)
        self._note(read_header(batch))

    def _begin(self) -> None:
        with suppress(FileNotFoundError):
            self._fs.unlink(self.path)
        self._file = self._fs.create(self.path)
        assert self.source is not None
        position, end = 0, self._fresh.size_bytes
        while position < end:
            data = self._fs.read(self.source, min(_WRITE_BYTES, end - position), position)
            if not data:
                raise CorruptBatch(f"{self._segment.path}{LOG_SUFFIX} ends before byte {end}")
            self._write(data)
            position += len(data)

    def _write(self, data: bytes | memoryview) -> None:
        self._pending += data
        if len(self._pending) >= _WRITE_BYTES:
            self._write_pending()

    def _write_pending(self) -> None:
        assert self._file is not None
        write_all(self._fs, self._file, self._pending, self._written_bytes)
        self._written_bytes += len(self._pending)
        self._pending = bytearray()

    def _note(self, header: BatchHeader) -> None:
        self._fresh.note(header, self._index_interval_bytes)


def _batches(fs: FileSystem, file: OpenFile, segment: LogSegment) -> Iterator[tuple[int, BatchHeader, bytes, int]]:
    """Each batch of the segment: its position and header, and a buffer with the index where it begins there. Raises
    CorruptBatch at the first that is damaged: what is not known for certain is not rewritten."""
    blocks = BlockReader(fs, file, FAR_BLOCK_BYTES, segment.size_bytes)
    position, end = 0, segment.size_bytes
    while position < end:
        block, index = blocks.at(position, HEADER_BYTES)
        header = read_header(block, index)
        if header.size_bytes > end - position:
            raise CorruptBatch(f"{segment.path}{LOG_SUFFIX}: the batch at byte {position} goes beyond the file's end")
        block, index = blocks.at(position, header.size_bytes)
        verify_crc(block, index, header.size_bytes)
        yield position, header, block, index
        position += header.size_bytes


def _hash(key: bytes) -> bytes:
    """16 bytes that stand for a longer key, and a shorter key itself: no two keys have the same by accident."""
    return key if len(key) < _HASH_BYTES else blake2b(key, digest_size=_HASH_BYTES).digest()
