"""One partition's local log: appends, rolls, flushes, cuts and removes segments, and answers reads.

Owns the files of one directory and their state in memory. Appends, rolls and reads run on the event loop;
`flush`, `close`, `delete_local_before`, the truncations and what compaction asks for belong in threads, where a flush
runs beside appends. Reads may come from any thread. Must never answer an append whose bytes are only partly written,
nor call flushed what one failed fsync has made uncertain.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile

from tiered.errors import Corrupt, LogDirFailed, OffsetOutOfRange, ShuttingDown
from tiered.file_slice import FileSlice, OpenFile, ReadBatches
from tiered.formats.offset_index import OffsetIndex
from tiered.formats.producer_snapshot import ProducerEntry, encode_producers
from tiered.formats.record_batch import BatchHeader
from tiered.formats.segment_object import AbortedIndexEntry
from tiered.formats.time_index import TimeIndex
from tiered.hot.file_system import FileSystem, write_all
from tiered.hot.flush import FlushState, producers_of
from tiered.hot.lookup import Lookup, Segments
from tiered.hot.recovery_report import Recovered, Recovery
from tiered.hot.segment import INDEX_SUFFIXES, LOG_SUFFIX, BatchTail, LogConfig, LogSegment, SegmentInfo
from tiered.hot.segment_files import OpenSegments, SegmentFile, segment_path, unlink_segment
from tiered.hot.side_files import SideFiles, refusal
from tiered.hot.truncation import Truncation
from tiered.open_files import OUT_OF_FILES
from tiered.rules.partition.rolling import MAX_RELATIVE_OFFSET, NEVER_MS, SmallClosesState
from tiered.rules.replication.leader_epochs import LeaderEpochs
from tiered.rules.segments.compaction import Compacted

__all__ = ["Log", "LogConfig", "Recovery", "SegmentFile", "SegmentInfo"]


class Log:
    """An open log. One owner appends, rolls and truncates; anybody may read."""

    __slots__ = (
        "_closed",
        "_flushing",
        "_fs",
        "_lock",
        "_lookup",
        "_open_segments",
        "_segments",
        "_side",
        "_small_closes",
        "_truncation",
        "config",
        "directory",
        "failed",
        "on_failure",
        "producer_source",
        "recovery",
    )

    def __init__(
        self, directory: str, fs: FileSystem, config: LogConfig, found: Recovered, open_segments: OpenSegments
    ) -> None:
        """Of what `recovery` found in the directory; `opening` makes logs."""
        self.directory = directory
        self._fs = fs
        self.config = config
        """May be replaced; the new settings hold from the next append on."""
        self._open_segments = open_segments
        self._lookup = Lookup(fs, open_segments, config.index_interval_bytes)
        self._segments = tuple(found.segments)
        self._side = SideFiles(directory, fs, found)
        self._flushing = FlushState(directory, fs, self._side, open_segments, found)
        self._truncation = Truncation(directory, fs, self._side, self._flushing, self._lookup, open_segments)
        self._small_closes = SmallClosesState()
        self.failed: str | None = None
        """Why this log takes no more appends until the process restarts; None while it does."""
        self._closed = False
        self._lock = threading.Lock()
        """Held while the list of segments changes; after the flush's own lock where both are."""
        self.producer_source: Callable[[], Iterable[ProducerEntry]] | None = None
        """Gives the state of all producers at the log's end, when a segment is closed; the owner sets it."""
        self.on_failure: Callable[[], None] | None = None
        """Told, in whichever thread it happens, before anybody else can know that the log has failed; the owner sets
        it. Blocking."""
        self.recovery: Recovery = found.report

    # What is known

    @property
    def active_base_offset(self) -> int:
        """Where the active segment begins: everything below is closed."""
        return self._segments[-1].base_offset

    @property
    def active_since_ms(self) -> int | None:
        """When the first batch of the active segment was appended here; None while it is empty."""
        active = self._segments[-1]
        return active.first_append_ms if active.size_bytes else None

    @property
    def newest_ms(self) -> int | None:
        """The greatest timestamp of the newest segment that has a batch, or when that was written last, whichever is
        earlier; None while no segment has one."""
        for segment in reversed(self._segments):
            if segment.size_bytes:
                claimed_ms = segment.max_timestamp_ms
                return min(claimed_ms, segment.written_ms) if claimed_ms >= 0 else segment.written_ms
        return None

    def segment_base_offset(self, offset: int) -> int:
        """Where the segment begins that holds `offset`; the first one's or the last one's base outside the log."""
        return self._segment_at(offset).base_offset

    def times_proven_from(self, offset: int) -> int:
        """The first offset from which on batches have right headers, in the segment that holds `offset`."""
        return self._segment_at(offset).times_proven_from

    def _segment_at(self, offset: int) -> LogSegment:
        segments = self._segments
        if offset >= segments[-1].base_offset:
            return segments[-1]
        return segments[max(0, bisect_right(segments, offset, key=lambda each: each.base_offset) - 1)]

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._segments[-1].extent[0]

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read; below it everything is deleted."""
        return self._side.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """The first offset that this disk holds and that may be read."""
        return max(self._segments[0].base_offset, self._side.log_start_offset)

    @property
    def flushed_offset(self) -> int:
        """Everything below survives a power loss."""
        return self._flushing.flushed_offset

    @property
    def unflushed_messages(self) -> int:
        """How many records a power loss could take."""
        return self.log_end_offset - self._flushing.flushed_offset

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """Oldest first; the last one is active."""
        return tuple(segment.info() for segment in self._segments)

    @property
    def segment_count(self) -> int:
        """How many segments there are, the active one included."""
        return len(self._segments)

    @property
    def size_bytes(self) -> int:
        return sum(segment.extent[1] for segment in self._segments)

    @property
    def leader_epochs(self) -> LeaderEpochs:
        return self._side.leader_epochs

    @property
    def compacted(self) -> Compacted:
        """How far the log is compacted."""
        return self._side.compacted

    # Failure

    def _refuse(self) -> None:
        if self.failed is not None:
            raise LogDirFailed(self.failed)
        raise ShuttingDown(f"{self.directory} is closed; refresh metadata and retry")

    def fail(self, reason: str) -> str:
        """Stops appends and flushes for the life of this process: only a restart finds out what is on disk."""
        if self.failed is None:
            self.failed = f"{self.directory}: {reason}. Check the disk, then restart the broker to recover this log"
            if self.on_failure is not None:
                self.on_failure()
        return self.failed

    # Append and roll

    def append(
        self,
        buffer: memoryview,
        position: int,
        end: int,
        headers: Sequence[tuple[int, BatchHeader]],
        *,
        base_offset: int,
        now_ms: int,
        may_roll: bool = True,
        aborted: Sequence[AbortedIndexEntry] = (),
        times_proven_from: int | None = None,
    ) -> None:
        """Writes the batches in `buffer[position:end]`, already stamped, at the log's end. `headers` are those of the
        batches in order; their offsets may be from before the stamping. Rolls first when that is due, unless the owner
        decides about it (`may_roll`). `aborted` are the transactions that markers among the batches abort, known before
        any reader finds the batches. `times_proven_from`: where some of their headers were not checked, the offset from
        which all were; beyond the last one if none was.

        Raises LogDirFailed when the disk refuses. Then nothing was appended; with space on the disk again
        the next append succeeds.
        """
        if self.failed is not None or self._closed:
            self._refuse()
        active = self._segments[-1]
        assert base_offset == active.extent[0], f"append at {base_offset}, the log ends at {active.extent[0]}"
        config = self.config
        size = active.extent[1]
        incoming = end - position
        if size and may_roll:
            last_offset = base_offset - 1
            for _, header in headers:
                last_offset += header.last_offset_delta + 1
            must_close = active.must_close(config, incoming, last_offset, now_ms)
            is_far = last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            if must_close and (is_far or self._small_closes.may_close(size + incoming, now_ms)):
                self._roll(now_ms)
                active = self._segments[-1]
                size = 0
        file = active.file
        assert file is not None
        if size + incoming > active.reserved_bytes:
            active.reserve(self._fs, file, size + incoming, config)
        try:
            written = self._fs.write(file, buffer[position:end], size)
            if written != incoming:
                write_all(self._fs, file, buffer[position + written : end], size + written)
        except OSError as error:
            self._cut_off(active, file, error)
        if active.first_append_ms is None:
            active.first_append_ms = now_ms
        active.written_ms = now_ms
        for entry in aborted:
            active.aborted.append(entry)
        if times_proven_from is not None and times_proven_from > base_offset:
            last_offset = base_offset + sum(header.last_offset_delta + 1 for _, header in headers) - 1
            active.prove_times_from(min(times_proven_from, last_offset + 1))
        for _, header in headers:
            last_offset = base_offset + header.last_offset_delta
            active.note_batch(
                base_offset, last_offset, header.size_bytes, header.max_timestamp_ms, config.index_interval_bytes
            )
            base_offset = last_offset + 1
        if self._flushing.waiting_since_ms is None:
            self._flushing.waiting_since_ms = now_ms

    def roll(self, now_ms: int) -> bool:
        """Closes the active segment and begins another; False when it is empty.

        Raises LogDirFailed, with nothing changed.
        """
        if self.failed is not None or self._closed:
            self._refuse()
        if self._segments[-1].size_bytes == 0:
            return False
        self._roll(now_ms)
        return True

    def roll_if_due(self, now_ms: int) -> bool:
        """Rolls when the active segment is old enough; whether it did. Raises LogDirFailed, nothing changed."""
        active = self._segments[-1]
        is_due = active.must_close(self.config, 0, active.end_offset - 1, now_ms)
        if not is_due or self.failed is not None or self._closed:
            return False
        # One that grew on for the sake of the bound has no other way around it.
        if now_ms < active.outdated_ms(self.config) and not self._small_closes.may_close(active.size_bytes, now_ms):
            return False
        self._roll(now_ms)
        return True

    def _roll(self, now_ms: int) -> None:
        with self._lock:
            active = self._segments[-1]
            assert active.file is not None
            assert active.offset_index is not None
            path = segment_path(self.directory, active.end_offset)
            file: OpenFile | None = None
            try:
                file = self._fs.create(path + LOG_SUFFIX)
                if self.producer_source is not None:
                    self.write_snapshot(active.end_offset, self.producer_source())
            except OSError as error:
                if file is not None:
                    with suppress(OSError):
                        self._fs.unlink(path + LOG_SUFFIX)
                raise LogDirFailed(refusal(path + LOG_SUFFIX, error)) from error
            fresh = LogSegment(path, active.end_offset, created_ms=now_ms)
            fresh.file, fresh.offset_index, fresh.time_index = file, OffsetIndex(), TimeIndex()
            # Its indexes stay in memory until the next flush writes them, in a thread.
            active.note_time()
            active.give_back_reserved(self._fs)
            active.closed = True
            active.tail = BatchTail()
            self._segments = (*self._segments, fresh)
            self._flushing.note_closed_segment()

    def _cut_off(self, active: LogSegment, file: OpenFile, error: OSError) -> None:
        """Takes a partial write back; raises LogDirFailed."""
        try:
            self._fs.truncate(file, active.size_bytes)
        except OSError as second:
            self.fail(f"a partial write could not be taken back ({second}) after {error}")
        raise LogDirFailed(refusal(active.path + LOG_SUFFIX, error)) from error

    # Flush

    def flush(self) -> None:
        """Returns when everything that was appended before the call survives a power loss. Blocking; safe
        beside appends.

        Raises LogDirFailed when the disk fails. After that nothing can be known about the unflushed bytes,
        so that the log takes no more appends and never flushes again until it is recovered by a restart.
        """
        with self._flushing.lock:
            if self.failed is not None:
                self._refuse()
            if self._closed:
                return
            try:
                self._flushing.run(self._segments)
            except OSError as error:
                if error.errno in OUT_OF_FILES:  # No fsync was tried and failed: the next flush begins with all of it.
                    raise LogDirFailed(refusal(self.directory, error)) from error
                raise LogDirFailed(self.fail(f"fsync failed: {error}")) from error

    def due_ms(self, *, may_roll: bool) -> int:
        """When a flush is due or, if the log `may_roll` by itself, another segment; from NEVER_MS on it is never."""
        if self.failed is not None or self._closed:
            return NEVER_MS
        active = self._segments[-1]
        flush_ms = self._flushing.due_ms(active, self.config.flush_ms)
        return min(flush_ms, active.outdated_ms(self.config)) if may_roll else flush_ms

    # Producers and leader epochs

    def write_snapshot(self, offset: int, entries: Iterable[ProducerEntry]) -> None:
        """Keeps the state of the producers as it was when the log ended at `offset`. Raises OSError."""
        self._side.write_snapshot(offset, entries, [segment.base_offset for segment in self._segments])

    def begin_leader_epoch(self, epoch: int, *, leaves_word: bool = False) -> None:
        """From the log's present end on, batches are of this leader epoch. In memory only: their headers tell it. With
        `leaves_word` a file does too, where no batch comes."""
        self._side.change_leader_epochs(lambda epochs: epochs.assign(epoch, self.log_end_offset))
        if leaves_word:
            self._side.keep_begun_epoch(epoch, self.log_end_offset)

    def forget_empty_leader_epochs(self) -> None:
        """Drops epochs that began at the log's end and wrote nothing: the present leader knows what follows there."""
        self._side.change_leader_epochs(lambda epochs: epochs.truncate_to_end(self.log_end_offset))
        with suppress(OSError):  # A cut tries again.
            self._side.forget_begun_epoch()

    def restore_leader_epochs(self, entries: Iterable[tuple[int, int]]) -> None:
        """Takes over what the object store knows of the epochs of a log that began anew. No batch that is here tells
        them, so `keep_leader_epochs` is due before the next append."""
        known = tuple(entries)
        self._side.change_leader_epochs(lambda epochs: epochs.continued_by(known))

    def keep_leader_epochs(self) -> None:
        """Returns when every epoch known now survives a power loss. Blocking. Raises LogDirFailed, nothing changed."""
        try:
            self._side.keep_leader_epochs()
        except OSError as error:
            raise LogDirFailed(refusal(self.directory, error)) from error

    def latest_snapshot(self, at_or_below: int) -> tuple[int, tuple[ProducerEntry, ...]] | None:
        """The newest good snapshot not above the offset, and its offset; None when there is none."""
        return self._side.latest_snapshot(at_or_below)

    def producers_at_end(self) -> tuple[ProducerEntry, ...]:
        """The state of all producers at the log's end, from the newest snapshot and the batches after it."""
        return producers_of(self._fs, self.directory, self._side, self._segments, self.log_end_offset)

    # Read

    def read(self, offset: int, max_bytes: int, *, end_offset: int, min_one_batch: bool = True) -> FileSlice | None:
        """Whole batches from the one that holds `offset`, of one segment, none of them at or beyond `end_offset`.

        At most `max_bytes`, but with `min_one_batch` one batch at least. None when there is nothing (yet).
        Raises OffsetOutOfRange outside the local log, FileNotFoundError where retention has just taken the segment,
        any other OSError when the disk fails.
        """
        return self._read(self._segments, offset, max_bytes, end_offset, min_one_batch)

    def _read(
        self, segments: Segments, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool
    ) -> FileSlice | None:
        log_end_offset = segments[-1].extent[0]
        if offset < segments[0].base_offset or offset > log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not in the local log, which begins at {segments[0].base_offset} and ends before "
                f"{log_end_offset}"
            )
        if offset >= end_offset or offset == log_end_offset:
            return None
        return self._lookup.read(segments, offset, max_bytes, end_offset, min_one_batch)

    def read_committed(
        self, offset: int, max_bytes: int, *, end_offset: int, min_one_batch: bool = True
    ) -> ReadBatches | None:
        """The same, with the aborted transactions that a reader has to know of. Also raises CorruptBatch."""
        segments = self._segments  # Retention and compaction put others there, also between the two looks at them.
        records = self._read(segments, offset, max_bytes, end_offset, min_one_batch)
        if records is None:
            return None
        return ReadBatches(records=records, aborted=self._lookup.aborted_in(segments, records, offset, end_offset))

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedIndexEntry]:
        """The aborted transactions with a part in these local offsets, in the order of their markers."""
        return self._lookup.aborted_between(self._segments, start_offset, end_offset)

    def offset_for_timestamp(self, timestamp_ms: int, end_offset: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first local record below `end_offset` with at least this timestamp. Raises
        CorruptBatch when its batch is damaged, OSError."""
        return self._lookup.first_at_or_after(self._segments, timestamp_ms, self._side.log_start_offset, end_offset)

    def max_timestamp_offset(self) -> tuple[int, int] | None:
        """Offset and timestamp of the first local record with the greatest timestamp; None when none has one."""
        return self._lookup.greatest(self._segments, self._side.log_start_offset)

    def segment_for_upload(self, base_offset: int) -> SegmentFile:
        """A closed segment with all that its object needs, open until its `close`. Raises OSError."""
        with self._lock:  # Compaction puts another file in the place of a segment's.
            segments = self._segments
            segment = next((each for each in segments if each.base_offset == base_offset), None)
            assert segment is not None, f"no segment begins at {base_offset}"
            assert segment.closed, f"the segment at {base_offset} is still appended to"
            file = self._fs.open(segment.path + LOG_SUFFIX)
        return SegmentFile(
            segment,
            file,
            leader_epochs=self._side.leader_epochs.covering(base_offset, segment.end_offset),
            aborted=self._lookup.aborted_between(segments, base_offset, segment.end_offset),
            snapshot_source=lambda: encode_producers(
                producers_of(self._fs, self.directory, self._side, segments, segment.end_offset)
            ),
        )

    # Removal and truncation

    def set_log_start_offset(self, offset: int) -> None:
        """Deletes everything below `offset`, durably, for readers; a lower offset changes nothing. Raises
        OffsetOutOfRange beyond the log's end, LogDirFailed when the disk refuses (nothing changed)."""
        with self._flushing.lock:  # Beside a truncation the two would undo each other's leader epochs.
            if offset <= self._side.log_start_offset:
                return
            if offset > self.log_end_offset:
                raise OffsetOutOfRange(f"the log start cannot be {offset}: the log ends at {self.log_end_offset}")
            self._side.keep_log_start(offset)

    def delete_local_before(self, offset: int) -> tuple[SegmentInfo, ...]:
        """Removes the closed segments that lie wholly below `offset`, oldest first, and returns them. Open readers read
        on. Raises LogDirFailed when a file cannot be removed: it is out of use, and found again at the next start. All
        stay where the disk does not keep what they say of producers and epochs: then the log has failed, unless only a
        descriptor was missing."""
        below = _closed_below(self._segments, offset)
        if not below:
            return ()
        offset = below[-1].end_offset
        try:
            self._side.keep_before_removal(offset)
        except OSError as error:
            if error.errno in OUT_OF_FILES:
                raise LogDirFailed(refusal(self.directory, error)) from error
            raise LogDirFailed(self.fail(f"what removed segments say was not kept: {error}")) from error
        with self._lock:
            removed = _closed_below(self._segments, offset)
            self._segments = self._segments[len(removed) :]
            self._flushing.directory_changed = True
        try:
            for segment in removed:
                self._open_segments.drop(segment)
                unlink_segment(self._fs, segment.path)
        except OSError as error:
            raise LogDirFailed(f"{self.directory}: a segment could not be removed: {error}") from error
        return tuple(segment.info() for segment in removed)

    def truncate_to(self, offset: int) -> int:
        """Cuts the log so that it ends at `offset`, or at the start of the batch that holds it; the new end.

        Durable when it returns. Only for the log's one owner, with no append under way. A log that begins
        above `offset` begins anew there. Raises LogDirFailed: full, nothing changed; else the log needs a restart.
        """
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return offset
        with self._cutting(f"truncation to {offset}"):
            if offset < self.log_end_offset:
                self._segments = self._truncation.cut(self._segments, offset, self.config.index_interval_bytes)
                self._truncation.settle(self.log_end_offset)
            return self.log_end_offset

    def truncate_fully_and_start_at(
        self,
        offset: int,
        *,
        leader_epochs: Iterable[tuple[int, int]] = (),
        producers: Iterable[ProducerEntry] | None = None,
    ) -> None:
        """Drops everything local; the log begins and ends at `offset`, with what somebody else knows of its past.

        Durable. `log_start_offset` stays where it is, unless it was above. Raises LogDirFailed as `truncate_to` does.
        """
        with self._cutting(f"starting anew at {offset}"):
            epochs = LeaderEpochs().continued_by(tuple(leader_epochs))
            self._segments = self._truncation.begin_anew(self._segments, offset, epochs, producers)
            self._fs.sync_directory(self.directory)
            self._flushing.begin_anew(offset)

    @contextmanager
    def _cutting(self, what: str) -> Iterator[None]:
        with self._flushing.lock, self._lock:
            if self.failed is not None or self._closed:
                self._refuse()
            try:
                yield
            except (OSError, Corrupt) as error:
                raise LogDirFailed(self.fail(f"{what} was not finished: {error}")) from error

    # Compaction, in one thread at a time

    @property
    def cuts(self) -> int:
        """How often records were taken back since the log was opened."""
        return self._side.cuts

    def segments_on_disk(self, end_offset: int) -> tuple[LogSegment, ...]:
        """The closed segments that begin below `end_offset`, oldest first, after a flush: for compaction alone.

        Raises LogDirFailed while one of them is not on disk for good.
        """
        self.flush()
        found = tuple(each for each in self._segments if each.closed and each.base_offset < end_offset)
        if not all(each.synced for each in found):
            raise LogDirFailed(f"{self.directory}: the recovery point is not written; the next flush tries again")
        return found

    def holds(self, segment: LogSegment) -> bool:
        """Whether the segment is still one of the log's."""
        return any(each is segment for each in self._segments)

    def replace_segment(self, old: LogSegment, fresh: LogSegment, path: str) -> bool:
        """Puts the file at `path`, which is on disk for good and which `fresh` describes, in the place of `old`'s.

        False when `old` is not the log's any more, or not as it was: then nothing was changed. The two hold the same
        offsets. Raises LogDirFailed: the log goes on with the old file, or with the new one and without an index.
        """
        assert (fresh.base_offset, fresh.end_offset) == (old.base_offset, old.end_offset), fresh.path
        assert fresh.file is not None
        with self._flushing.lock:  # A recovery point must tell of one of the two.
            if self.failed is not None or self._closed or not self._may_be_replaced(old):
                return False
            try:
                self._lookup.keep_open(old)
                unlink_segment(self._fs, old.path, INDEX_SUFFIXES)
                self._fs.sync_directory(self.directory)
                with self._lock:
                    if not self._may_be_replaced(old):
                        return False
                    self._fs.rename(path, old.path + LOG_SUFFIX)
                    self._segments = tuple(fresh if each is old else each for each in self._segments)
                    # The next flush writes its indexes and a recovery point that knows its size.
                    self._flushing.note_closed_segment()
            except OSError as error:
                raise LogDirFailed(refusal(old.path + LOG_SUFFIX, error)) from error
            self._open_segments.drop(old)
            return True

    def keep_compacted(self, compacted: Compacted) -> None:
        """Remembers how far the log is compacted. Raises LogDirFailed; then it is compacted once more."""
        with self._flushing.lock:
            try:
                self._side.keep_compacted(compacted)
            except OSError as error:
                raise LogDirFailed(refusal(self.directory, error)) from error

    def _may_be_replaced(self, old: LogSegment) -> bool:
        return old.closed and old.synced and self.holds(old)

    # The end

    def close(self, producers: Iterable[ProducerEntry] | None = None) -> None:
        """Flushes everything and records that nothing needs to be looked at next time. Blocking; harmless twice.

        `producers` is their state at the log's end; without it `producer_source` is asked. A log that has
        failed is only let go. Raises OSError when the disk refuses: the next start then recovers. Where records may
        be lost the log has failed, and its owner has heard of it.
        """
        with self._flushing.lock:
            if self._closed:
                return
            self._closed = True
            try:
                if self.failed is None:
                    self._close(producers)
            finally:
                self._release()

    def _close(self, producers: Iterable[ProducerEntry] | None) -> None:
        active = self._segments[-1]
        # False when a restart would find everything as it is, or nothing at all.
        is_empty = len(self._segments) == 1 and active.size_bytes == 0
        has_changed = not is_empty and self._flushing.has_changed(active)
        if has_changed:
            try:
                # Before everything else may fail: after a failed write-back this process is the last one to hear of it.
                self._flushing.run(self._segments)
            except OSError as error:
                self.fail(f"fsync failed: {error}")
                raise
        self._side.keep_leader_epochs(self.log_end_offset)
        if not has_changed:
            return
        if producers is None:
            producers = self.producers_at_end() if self.producer_source is None else self.producer_source()
        self.write_snapshot(self.log_end_offset, producers)
        self._flushing.run(self._segments, closing=True)

    def discard(self) -> None:
        """Lets go of the files without a flush: the directory is about to be deleted."""
        self._closed = True
        with self._flushing.lock:
            self._release()

    def _release(self) -> None:
        for segment in self._segments:
            self._open_segments.drop(segment)
            segment.file = None


def _closed_below(segments: Segments, offset: int) -> Segments:
    return tuple(takewhile(lambda segment: segment.closed and segment.end_offset <= offset, segments))
