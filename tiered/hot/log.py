"""One partition's local log: appends, rolls, flushes, cuts and removes segments, and answers reads.

Owns the files of one directory and their state in memory. Appends, rolls and reads run on the event loop;
`open`, `flush`, `close`, `delete_local_before` and the truncations belong in threads, where a flush runs
beside appends. Must never answer an append whose bytes are only partly written, nor call flushed what one
failed fsync has made uncertain.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from tiered.errors import Corrupt, LogDirFailed, OffsetOutOfRange
from tiered.formats.offset_index import OffsetIndex
from tiered.formats.producer_snapshot import ProducerEntry
from tiered.formats.record_batch import BatchHeader
from tiered.formats.time_index import TimeIndex
from tiered.hot.file_system import FileSystem, OpenFile, prepare_file, write_all
from tiered.hot.log_view import LogConfig
from tiered.hot.marks import RecoveryPoint
from tiered.hot.recovery import Recoverer
from tiered.hot.recovery_report import Recovery
from tiered.hot.replaceable_log import ReplaceableLog
from tiered.hot.segment import LOG_SUFFIX, SegmentInfo, SegmentState, Tail, note_batches
from tiered.hot.segment_files import SHARED_OPEN_SEGMENTS, OpenSegments, SegmentFile, segment_path, unlink_segment
from tiered.hot.side_files import refusal, unless_full
from tiered.hot.truncation import begin_segment, cut_position, cut_segment
from tiered.rules.replication.leader_epochs import LeaderEpochs

__all__ = ["Log", "LogConfig", "Recovery", "SegmentFile", "SegmentInfo"]

log = logging.getLogger(__name__)


class Log(ReplaceableLog):
    """An open log that can be changed. One owner appends, rolls and truncates."""

    __slots__ = ()

    @classmethod
    def open(
        cls,
        directory: Path | str,
        fs: FileSystem,
        *,
        config: LogConfig,
        log_start_offset: int = 0,
        now_ms: int,
        first_needed_offset: int | None = None,
        open_segments: OpenSegments = SHARED_OPEN_SEGMENTS,
    ) -> "Log":
        """The log in `directory`, which is made when it is missing; `recovery` tells what had to be done.

        `first_needed_offset` is the end of what the object store holds: everything from there on must be
        here. A log that ends before it begins anew there. Blocking; may read the segments above the
        recovery point.

        Raises CorruptFile when flushed records are missing or damaged, LogDirFailed when the disk fails.
        """
        path = str(directory)
        try:
            recoverer = Recoverer(
                path,
                fs,
                index_interval_bytes=config.index_interval_bytes,
                log_start_offset=log_start_offset,
                first_needed_offset=first_needed_offset,
                now_ms=now_ms,
            )
            return cls(path, fs, config, recoverer, open_segments)
        except OSError as error:
            raise LogDirFailed(f"{path} cannot be opened: {error}; nothing was changed that a restart needs") from error

    def configure(self, config: LogConfig) -> None:
        """Takes new settings; they hold from the next append on."""
        self._config = config

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
        log_append_time_ms: int | None = None,
        may_roll: bool = True,
    ) -> None:
        """Writes the batches in `buffer[position:end]`, already stamped, at the log's end.

        `headers` are those of the batches in order; their offsets do not matter (they may be from before the
        stamping), their sizes and offset deltas do. `log_append_time_ms` is the time that was stamped, when
        the headers are from before. Rolls first when that is due, unless the owner decides about it (`may_roll`).

        Raises LogDirFailed when the disk refuses. Then nothing was appended; with space on the disk again
        the next append succeeds.
        """
        if self._failed is not None or self._closed:
            self._refuse()
        active = self._segments[-1]
        assert base_offset == active.extent[0], f"append at {base_offset}, the log ends at {active.extent[0]}"
        config = self._config
        size = active.extent[1]
        incoming = end - position
        if size and may_roll:
            last_offset = base_offset - 1
            for _, header in headers:
                last_offset += header.last_offset_delta + 1
            if self._roll_is_due(active, incoming, last_offset, now_ms):
                self._roll(now_ms)
                active = self._segments[-1]
                size = 0
        file = active.file
        assert file is not None
        try:
            written = self._fs.write(file, buffer[position:end], size)
            if written != incoming:
                write_all(self._fs, file, buffer[position + written : end], size + written)
        except OSError as error:
            self._cut_off(active, file, error)
        if active.first_append_ms is None:
            active.first_append_ms = now_ms
        note_batches(active, headers, base_offset, log_append_time_ms, config.index_interval_bytes)
        if self._flushing.waiting_since_ms is None:
            self._flushing.waiting_since_ms = now_ms

    def roll(self, now_ms: int) -> bool:
        """Closes the active segment and begins another; False when it is empty.

        Raises LogDirFailed, with nothing changed.
        """
        if self._failed is not None or self._closed:
            self._refuse()
        if self._segments[-1].size_bytes == 0:
            return False
        self._roll(now_ms)
        return True

    def roll_if_due(self, now_ms: int) -> bool:
        """Rolls when the active segment is old enough; whether it did. Raises LogDirFailed, nothing changed."""
        if self._failed is not None or self._closed:
            return False
        active = self._segments[-1]
        if not self._roll_is_due(active, 0, active.end_offset - 1, now_ms):
            return False
        self._roll(now_ms)
        return True

    def _roll(self, now_ms: int) -> None:
        with self._lock:
            active = self._segments[-1]
            assert active.file is not None
            assert active.offset_index is not None
            path = segment_path(self._directory, active.end_offset)
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
            fresh = SegmentState(path, active.end_offset, created_ms=now_ms)
            fresh.file, fresh.offset_index, fresh.time_index = file, OffsetIndex(), TimeIndex()
            # Its indexes stay in memory until the next flush writes them, in a thread.
            active.note_time()
            active.closed = True
            active.tail = Tail()
            self._segments = (*self._segments, fresh)
            self._flushing.note_closed_segment()

    def _cut_off(self, active: SegmentState, file: OpenFile, error: OSError) -> None:
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
            if self._failed is not None:
                self._refuse()
            if self._closed:
                return
            try:
                self._flushing.run(self._segments)
            except OSError as error:
                raise LogDirFailed(self.fail(f"fsync failed: {error}")) from error

    # Producers and leader epochs

    def write_snapshot(self, offset: int, entries: Iterable[ProducerEntry]) -> None:
        """Keeps the state of the producers as it was when the log ended at `offset`. Raises OSError."""
        self._side.write_snapshot(offset, entries, [segment.base_offset for segment in self._segments])

    def begin_leader_epoch(self, epoch: int) -> None:
        """From the log's present end on, batches are of this leader epoch. In memory only: their headers tell it."""
        self._side.change_leader_epochs(lambda epochs: epochs.assign(epoch, self.log_end_offset))

    def forget_empty_leader_epochs(self) -> None:
        """Drops epochs that began at the log's end and wrote nothing: whoever leads now knows what follows there."""
        self._side.change_leader_epochs(lambda epochs: epochs.truncate_to_end(self.log_end_offset))

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
            raise LogDirFailed(refusal(self._directory, error)) from error

    # Removal and truncation

    def set_log_start_offset(self, offset: int) -> None:
        """Deletes everything below `offset`, durably, for readers; a lower offset changes nothing.

        Raises OffsetOutOfRange beyond the log's end, LogDirFailed when the disk refuses (nothing changed).
        """
        with self._flushing.lock:  # Beside a truncation the two would undo each other's leader epochs.
            if offset <= self._side.log_start_offset:
                return
            if offset > self.log_end_offset:
                raise OffsetOutOfRange(f"the log start cannot be {offset}: the log ends at {self.log_end_offset}")
            self._side.keep_log_start(offset)

    def delete_local_before(self, offset: int) -> tuple[SegmentInfo, ...]:
        """Removes the closed segments that lie wholly below `offset`, oldest first; those that went.

        Who reads one of them now reads on. Raises LogDirFailed when a file cannot be removed: it is out of
        use, and found again at the next start.
        """
        with self._lock:
            count = 0
            while self._segments[count].closed and self._segments[count].end_offset <= offset:
                count += 1
            removed, self._segments = self._segments[:count], self._segments[count:]
            if count:
                self._flushing.directory_changed = True
        if removed:
            try:
                self._side.keep_leader_epochs(removed[-1].end_offset)
            except OSError as error:  # A full disk needs the removal; the next recovery point keeps them.
                log.warning("%s: leader epochs are not on disk yet: %s", self._directory, error)
        self._remove(removed)
        return tuple(segment.info() for segment in removed)

    def _remove(self, segments: Sequence[SegmentState]) -> None:
        try:
            for segment in segments:
                self._open_segments.drop(segment)
                unlink_segment(self._fs, segment.path)
        except OSError as error:
            raise LogDirFailed(f"{self._directory}: a segment could not be removed: {error}") from error

    def truncate_to(self, offset: int) -> int:
        """Cuts the log so that it ends at `offset`, or at the start of the batch that holds it; the new end.

        Durable when it returns. Only for the log's one owner, with no append under way. A log that begins
        above `offset` begins anew there. Raises LogDirFailed: full, nothing changed; else the log needs a restart.
        """
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return offset
        with self._flushing.lock, self._lock:
            if self._failed is not None or self._closed:
                self._refuse()
            try:
                if offset < self.log_end_offset:
                    self._truncate(offset)
            except (OSError, Corrupt) as error:
                raise LogDirFailed(self.fail(f"truncation to {offset} was not finished: {error}")) from error
            return self.log_end_offset

    def _truncate(self, offset: int) -> None:
        index = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        kept, last, dropped = self._segments[:index], self._segments[index], self._segments[index + 1 :]
        end_offset, position = cut_position(self._fs, self._lookup, last, offset)
        # First of all nobody may go on trusting what is going to be cut, and what needs space has to have it.
        flushed = tuple(segment.mark() for segment in takewhile(lambda segment: segment.synced, kept))
        with unless_full(self._directory):
            self._flushing.forget_point()
            self._side.prepare_cut(end_offset)
            self._side.keep_recovery_point(RecoveryPoint(segments=flushed))
        self._flushing.take_back(end_offset)
        for segment in (*reversed(dropped), last):
            self._open_segments.drop(segment)
        for segment in reversed(dropped):
            unlink_segment(self._fs, segment.path)
        cut_segment(self._fs, last, position, self._config.index_interval_bytes)
        assert last.extent[0] == end_offset, f"{last.path} ends at {last.extent[0]} after a cut at {end_offset}"
        self._segments = (*kept, last)
        self._fs.sync_directory(self._directory)
        self._side.cut(end_offset)

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
        with self._flushing.lock, self._lock:
            if self._failed is not None or self._closed:
                self._refuse()
            try:
                self._begin_anew(offset, LeaderEpochs().continued_by(tuple(leader_epochs)), producers)
            except OSError as error:
                raise LogDirFailed(self.fail(f"starting anew at {offset} was not finished: {error}")) from error

    def _begin_anew(self, offset: int, epochs: LeaderEpochs, producers: Iterable[ProducerEntry] | None) -> None:
        path = segment_path(self._directory, offset)
        with unless_full(self._directory):
            self._side.prepare_beginning(offset, epochs, producers)
            prepare_file(self._fs, path + LOG_SUFFIX, b"")
        self._side.forget_recovery_point()
        for segment in reversed(self._segments):
            self._open_segments.drop(segment)
            unlink_segment(self._fs, segment.path)
        self._side.begin_anew(offset, knows_producers=producers is not None)
        self._segments = (begin_segment(self._fs, path, offset, created_ms=self._segments[-1].created_ms),)
        self._fs.sync_directory(self._directory)
        self._flushing.begin_anew(offset)

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
                if self._failed is None:
                    self._close(producers)
            finally:
                self._release()

    def _close(self, producers: Iterable[ProducerEntry] | None) -> None:
        has_changed = self._has_changed()
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
