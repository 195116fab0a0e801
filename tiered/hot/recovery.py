"""Opens what a process left on disk: decides what to trust, scans the rest, cuts a torn tail.

Owns the order of these steps and the report of what was done. Trusted are segments whose files have the
sizes that the recovery point recorded; whatever lies above it has every CRC checked. Must never drop bytes
below the recovery point on its own: records that were on disk and are gone are for people to decide about.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tiered.errors import CorruptBatch, CorruptFile, MissingOffsets
from tiered.formats.batch_times import UNPROVEN
from tiered.formats.leader_epoch_file import decode_leader_epochs
from tiered.formats.offset_index import OffsetIndex
from tiered.formats.producer_snapshot import ProducerEntry
from tiered.formats.time_index import TimeIndex
from tiered.hot.batch_walk import FAR_BLOCK_BYTES, until_stopped, walk
from tiered.hot.file_system import TEMPORARY_SUFFIX, FileSystem, read_whole
from tiered.hot.marks import (
    BEGUN_EPOCH_FILE,
    COMPACTED_FILE,
    LEADER_EPOCHS_FILE,
    LOG_START_FILE,
    MAX_MARK_BYTES,
    RECOVERY_POINT_FILE,
    SegmentMark,
    decode_begun_epoch,
    decode_compacted,
    decode_log_start_offset,
    decode_recovery_point,
)
from tiered.hot.producer_files import SNAPSHOT_SUFFIX, producers_at
from tiered.hot.recovery_report import Recovered, Recovery
from tiered.hot.segment import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    NO_TIMESTAMP,
    OFFSET_ENTRY_BYTES,
    OFFSET_INDEX_SUFFIX,
    TIME_ENTRY_BYTES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    BatchTail,
    LogSegment,
)
from tiered.hot.segment_files import (
    read_offset_index,
    read_time_index,
    read_transaction_index,
    segment_path,
    unlink_segment,
    write_indexes,
    write_transaction_index,
)
from tiered.rules.replication.leader_epochs import LeaderEpochs

DROPPED_SUFFIX = ".deleted"


class Recoverer:
    """One run over one directory. Sync, and may read whole segments: call it in a thread.

    `needed` below is the first offset that only this disk has: what is under it was deleted or is in the
    object store. With `first_needed_offset` None the caller does not know, and the log may begin anywhere.
    What is stopped in between leaves what a kill would, and the next run begins again.
    """

    def __init__(
        self,
        directory: str,
        fs: FileSystem,
        *,
        index_interval_bytes: int,
        log_start_offset: int,
        first_needed_offset: int | None,
        now_ms: int,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._directory = directory
        self._fs = fs
        self._index_interval_bytes = index_interval_bytes
        self._now_ms = now_ms
        self._is_stopping = is_stopping
        self._report = Recovery()
        try:
            self._sizes = self._fs.sizes(directory)
        except FileNotFoundError:
            path = Path(directory)
            self._fs.make_directories(str(path.parent), (path.name,))
            self._sizes = {}
        for name in [name for name in self._sizes if name.endswith(TEMPORARY_SUFFIX)]:
            self._unlink(name)
        stored_start = decode_log_start_offset(self._read(LOG_START_FILE))
        self._log_start_offset = max(log_start_offset, stored_start or 0)
        self._beginning_known = first_needed_offset is not None
        self._needed = max(self._log_start_offset, first_needed_offset or 0)
        point = decode_recovery_point(self._read(RECOVERY_POINT_FILE))
        self._marks: dict[int, SegmentMark] = {}
        self._flushed_offset = 0
        if point is not None:
            self._marks = {mark.base_offset: mark for mark in point.segments}
            self._flushed_offset = point.offset
        self._aborted_from: int | None = None
        """From here on the entries of transaction indexes have to be found in the batches."""
        self._may_have_producers = False
        """A batch that was scanned has a producer id, or one that was not may have."""
        self._epochs = LeaderEpochs()
        self._epochs_on_disk: LeaderEpochs | None = None
        self._read_leader_epochs()

    def run(self) -> Recovered:
        """The log's parts.

        Raises CorruptFile when records that were on disk are missing or damaged, OSError when the disk fails, and
        ShuttingDown.
        """
        segments = self._segments(sorted(_numbers(self._sizes, LOG_SUFFIX)))
        end_offset = segments[-1].end_offset if segments else 0
        if segments and end_offset < self._needed:
            self._drop(segments, f"the local log ends at {end_offset}; everything below {self._needed} is elsewhere")
            segments = []
        self._check_nothing_is_lost(segments)
        if self._epochs_on_disk is None and self._marks:
            self._collect_epochs(segments)  # Records below a recovery point were not scanned.
        if not segments:
            segments = [self._create_first()]
        self._activate(segments[-1])
        end_offset = segments[-1].end_offset
        first_local = segments[0].base_offset
        self._remove_orphans({segment.base_offset for segment in segments})
        snapshot_offsets = sorted(_numbers(self._sizes, SNAPSHOT_SUFFIX))
        for offset in [offset for offset in snapshot_offsets if offset > end_offset]:
            self._unlink(f"{offset:020}{SNAPSHOT_SUFFIX}")
            snapshot_offsets.remove(offset)
        self._finish_closed(segments[:-1])
        self._report.began_anew = first_local == end_offset > 0 and end_offset not in snapshot_offsets
        producers = self._producers_and_aborted(segments, snapshot_offsets, end_offset)
        self._report.producers = tuple(producers.values())
        if self._report.clean:
            for name in [name for name in self._sizes if name.endswith(DROPPED_SUFFIX)]:
                self._unlink(name)
        epochs = self._epochs.truncate_to_end(end_offset)
        self._report.begun_epoch = self._begun_epoch(epochs.latest, end_offset)
        return Recovered(
            segments=segments,
            flushed_offset=end_offset
            if self._report.clean
            else max(first_local, min(self._flushed_offset, end_offset)),
            log_start_offset=self._log_start_offset,
            leader_epochs=epochs,
            leader_epochs_kept=self._epochs_on_disk or LeaderEpochs(),
            point_is_current=self._report.clean and bool(self._marks),
            snapshot_offsets=snapshot_offsets,
            compacted=decode_compacted(self._read(COMPACTED_FILE)),
            report=self._report,
        )

    def _segments(self, bases: list[int]) -> list[LogSegment]:
        """The segments that follow each other without a hole, up to the first byte that cannot be trusted."""
        kept: list[LogSegment] = []
        for index, base_offset in enumerate(bases):
            next_base = bases[index + 1] if index + 1 < len(bases) else None
            segment, problem = self._segment(base_offset, not_before_ms=kept[-1].written_ms if kept else self._now_ms)
            kept.append(segment)
            end_offset = segment.end_offset
            if problem is None and (next_base is None or next_base == end_offset):
                continue
            path = segment.path + LOG_SUFFIX
            if next_base is not None and next_base < end_offset:
                raise CorruptFile(
                    f"{path} holds offsets up to {end_offset - 1}, but the next segment begins at {next_base}: two "
                    "files claim the same offsets. Move the one that does not belong here away and start again"
                )
            if next_base is not None and next_base <= self._needed:
                self._drop(kept, f"offsets {end_offset} to {next_base - 1} are missing here; they are not needed")
                kept = []
                continue
            reason = problem or f"offsets {end_offset} to {(next_base or 0) - 1} are missing"
            if end_offset < self._flushed_offset and self._needed < self._flushed_offset:
                raise CorruptFile(
                    f"{path} is damaged at byte {segment.size_bytes}, offset {end_offset}: {reason}. Everything below "
                    f"offset {self._flushed_offset} had been on disk, so this is loss and not a torn write. Put the "
                    f"file back from a replica or a backup; or remove {self._directory}/{RECOVERY_POINT_FILE} and "
                    f"start again: that cuts the log at offset {end_offset} and keeps later files as *{DROPPED_SUFFIX}"
                )
            self._cut(segment, reason)
            self._drop_files(bases[index + 1 :])
            break
        return kept

    def _segment(self, base_offset: int, *, not_before_ms: int) -> tuple[LogSegment, str | None]:
        """One segment up to its last valid batch, and what is wrong with the bytes after that.

        The time of its first append stands in its mark alone. Without one it is the earliest that it may have been, the
        last append to the segment before: a record must not wait longer for its upload because a broker was killed.
        """
        path = segment_path(self._directory, base_offset)
        segment = LogSegment(path, base_offset, created_ms=self._now_ms)
        segment.times_proven_from = UNPROVEN
        size_bytes = self._size(base_offset, LOG_SUFFIX)
        if size_bytes:
            segment.written_ms = min(self._now_ms, self._fs.modified_ms(path + LOG_SUFFIX))
            segment.created_ms = min(segment.written_ms, not_before_ms)
        mark = self._marks.get(base_offset)
        index_bytes = (self._size(base_offset, OFFSET_INDEX_SUFFIX), self._size(base_offset, TIME_INDEX_SUFFIX))
        if mark is None:
            self._reset_indexes(segment)
            self._forget_aborted(segment)
            if size_bytes == 0:
                return segment, None
            return segment, self._scan(segment, size_bytes, verify_from=0)
        self._may_have_producers = True
        segment.first_append_ms = mark.first_append_ms
        indexes_fit = index_bytes == (mark.offset_index_bytes, mark.time_index_bytes)
        if size_bytes == mark.size_bytes and (indexes_fit or size_bytes == 0):
            _take_over(segment, mark)
            self._load_aborted(segment, mark)
            segment.index_bytes = index_bytes
            segment.synced = segment.closed = True
            return segment, None
        if size_bytes < mark.size_bytes or not self._load_indexes(segment, mark):
            self._reset_indexes(segment)
            self._forget_aborted(segment)
            self._report.rebuilt_indexes.append(base_offset)
        else:
            self._load_aborted(segment, mark)
            self._find_aborted_from(mark.end_offset)
        return segment, self._scan(segment, size_bytes, verify_from=mark.size_bytes)

    def _scan(self, segment: LogSegment, size_bytes: int, *, verify_from: int) -> str | None:
        """Walks from the segment's present extent to `size_bytes`; what stopped it, or None at the end."""
        self._report.clean = False
        if segment.file is None:
            segment.file = self._fs.open(segment.path + LOG_SUFFIX, writable=True)
        segment.synced = False
        if segment.first_append_ms is None and size_bytes:
            segment.first_append_ms = segment.created_ms
        expected_offset, position, _, _ = segment.extent
        self._report.scanned_bytes += max(0, size_bytes - position)
        batches = walk(
            self._fs, segment.file, position, size_bytes, verify_from=verify_from, block_bytes=FAR_BLOCK_BYTES
        )
        try:
            for position, header in until_stopped(batches, self._is_stopping):
                if header.base_offset != expected_offset or header.last_offset_delta < 0:
                    return f"the batch at position {position} has offset {header.base_offset}, not {expected_offset}"
                segment.note(header, self._index_interval_bytes)
                segment.times_proven_from = UNPROVEN  # Nobody knows which version appended it.
                self._may_have_producers = self._may_have_producers or header.producer_id >= 0
                if header.partition_leader_epoch > self._epochs.latest:
                    self._epochs = self._epochs.assign(header.partition_leader_epoch, expected_offset)
                expected_offset = header.end_offset
        except CorruptBatch as error:
            return str(error)
        return None

    def _load_indexes(self, segment: LogSegment, mark: SegmentMark) -> bool:
        """Takes over the flushed part of the segment with its indexes; False when they do not fit it."""
        try:
            offset_index = read_offset_index(self._fs, segment)
            time_index = read_time_index(self._fs, segment)
        except CorruptFile:
            return False
        offset_index.truncate(mark.end_offset)
        time_index.truncate(mark.end_offset)
        # Later entries of the index may be missing; those before the mark must be there.
        if OFFSET_ENTRY_BYTES * len(offset_index) != mark.offset_index_bytes:
            return False
        if TIME_ENTRY_BYTES * len(time_index) < mark.time_index_bytes:
            return False
        segment.offset_index, segment.time_index = offset_index, time_index
        _take_over(segment, mark)
        segment.bytes_since_index_entry = mark.size_bytes - offset_index.last_position
        return True

    def _load_aborted(self, segment: LogSegment, mark: SegmentMark) -> None:
        """Takes over the transaction index of the flushed part of the segment, unless it has to be made anew."""
        try:
            segment.aborted = read_transaction_index(self._fs, segment, mark)
        except CorruptFile as error:
            self._report.notes.append(str(error))
            self._report.rebuilt_indexes.append(segment.base_offset)
            self._forget_aborted(segment)

    def _forget_aborted(self, segment: LogSegment) -> None:
        self._unlink(f"{segment.base_offset:020}{TRANSACTION_INDEX_SUFFIX}")
        self._find_aborted_from(segment.base_offset)

    def _find_aborted_from(self, offset: int) -> None:
        self._aborted_from = offset if self._aborted_from is None else min(offset, self._aborted_from)

    def _producers_and_aborted(
        self, segments: list[LogSegment], snapshot_offsets: list[int], end_offset: int
    ) -> dict[int, ProducerEntry]:
        """The producers at the log's end. Also gives the segments what is missing of their transaction indexes, and
        those that are not going to be flushed again the file."""
        if not self._may_have_producers and not snapshot_offsets:
            return {}  # Without another look at the headers.
        aborted_from, notes = self._aborted_from, self._report.notes
        if aborted_from is not None:
            for segment in segments:
                segment.aborted.truncate(aborted_from)
        producers = producers_at(
            self._fs, self._directory, segments, snapshot_offsets, end_offset, notes,
            aborted_from=aborted_from, is_stopping=self._is_stopping,
        )  # fmt: skip
        if aborted_from is not None:
            for segment in segments:
                if segment.synced and segment.end_offset > aborted_from:
                    write_transaction_index(self._fs, segment, segment.end_offset)
        return producers

    def _reset_indexes(self, segment: LogSegment) -> None:
        segment.offset_index, segment.time_index = OffsetIndex(), TimeIndex()

    def _cut(self, segment: LogSegment, reason: str) -> None:
        """Removes what follows the segment's last valid batch, durably."""
        surplus = self._size(segment.base_offset, LOG_SUFFIX) - segment.size_bytes
        if surplus > 0:
            assert segment.file is not None
            self._fs.truncate(segment.file, segment.size_bytes)
            try:
                self._fs.sync(segment.file)
            except OSError as error:  # Never only a full disk: what was to be written may be lost.
                raise OSError(errno.EIO, f"fsync failed ({error.strerror})", error.filename) from error
            self._report.truncated_bytes += surplus
        self._report.notes.append(
            f"{segment.path}{LOG_SUFFIX} was cut at byte {segment.size_bytes}, offset {segment.end_offset} "
            f"({surplus} bytes that had never been flushed): {reason}"
        )

    def _drop(self, segments: list[LogSegment], reason: str) -> None:
        self._report.notes.append(f"{self._directory}: {reason}")
        self._drop_files([segment.base_offset for segment in segments])

    def _drop_files(self, bases: list[int]) -> None:
        """Puts whole segments aside, newest first, so that a crash in between leaves no hole."""
        self._report.clean = False
        for base_offset in sorted(bases, reverse=True):
            path = segment_path(self._directory, base_offset)
            self._fs.rename(path + LOG_SUFFIX, path + LOG_SUFFIX + DROPPED_SUFFIX)
            self._report.dropped_files.append(path + LOG_SUFFIX + DROPPED_SUFFIX)
            unlink_segment(self._fs, path)
        if bases:
            self._fs.sync_directory(self._directory)

    def _check_nothing_is_lost(self, segments: list[LogSegment]) -> None:
        end_offset = segments[-1].end_offset if segments else self._needed
        if end_offset < self._flushed_offset:
            raise CorruptFile(
                f"{self._directory} ends at offset {end_offset}, but everything below {self._flushed_offset} had been "
                "on disk. Put the segment files back; or remove its recovery-point file and start again without them"
            )
        if self._beginning_known and segments and segments[0].base_offset > self._needed:
            raise MissingOffsets(
                f"{self._directory} begins at offset {segments[0].base_offset}, but offsets from {self._needed} on are "
                "neither deleted nor in the object store, as far as the metadata store knows",
                start_offset=self._needed,
                end_offset=segments[0].base_offset,
            )

    def _create_first(self) -> LogSegment:
        path = segment_path(self._directory, self._needed)
        segment = LogSegment(path, self._needed, created_ms=self._now_ms)
        segment.file = self._fs.create(path + LOG_SUFFIX)
        self._reset_indexes(segment)
        return segment

    def _activate(self, active: LogSegment) -> None:
        """Opens the last segment for appends."""
        if active.times_proven_from == UNPROVEN:
            active.times_proven_from = active.end_offset
        if active.file is None:
            active.file = self._fs.open(active.path + LOG_SUFFIX, writable=True)
        if active.offset_index is None and active.size_bytes == 0:
            self._reset_indexes(active)
        elif active.offset_index is None:
            mark = active.mark()
            if not self._load_indexes(active, mark):
                self._report.rebuilt_indexes.append(active.base_offset)
                active.extent = (active.base_offset, 0, NO_TIMESTAMP, -1)
                self._reset_indexes(active)
                problem = self._scan(active, mark.size_bytes, verify_from=mark.size_bytes)
                if problem is not None or active.end_offset != mark.end_offset:
                    raise CorruptFile(f"{active.path}{LOG_SUFFIX} was flushed whole and is damaged: {problem}")
        active.closed = active.synced = False

    def _finish_closed(self, segments: list[LogSegment]) -> None:
        """Gives closed segments that were scanned their index files; they are flushed with the next flush."""
        for segment in segments:
            if segment.offset_index is not None and segment.time_index is not None:
                segment.note_time()
                segment.index_bytes = write_indexes(self._fs, segment)
                segment.offset_index = segment.time_index = None
                segment.tail = BatchTail()
            segment.closed = True

    def _collect_epochs(self, segments: list[LogSegment]) -> None:
        """Without a leader epoch file every batch's header tells the epoch it was written in."""
        self._epochs = LeaderEpochs()
        for segment in segments:
            file = segment.file or self._fs.open(segment.path + LOG_SUFFIX)
            batches = walk(self._fs, file, 0, segment.size_bytes, block_bytes=FAR_BLOCK_BYTES)
            for _, header in until_stopped(batches, self._is_stopping):
                if header.partition_leader_epoch > self._epochs.latest:
                    self._epochs = self._epochs.assign(header.partition_leader_epoch, header.base_offset)

    def _read_leader_epochs(self) -> None:
        data = self._read(LEADER_EPOCHS_FILE)
        if data is None:
            return
        try:
            self._epochs = self._epochs_on_disk = LeaderEpochs(decode_leader_epochs(data))
        except CorruptFile as error:
            self._report.notes.append(
                f"{self._directory}/{LEADER_EPOCHS_FILE}: {error}; taken from the batches instead"
            )

    def _begun_epoch(self, latest: int, end_offset: int) -> int | None:
        """The epoch of the file, which goes where it says nothing that the batches do not."""
        begun = decode_begun_epoch(self._read(BEGUN_EPOCH_FILE))
        if begun is not None and begun[0] > latest and begun[1] == end_offset:
            return begun[0]
        self._unlink(BEGUN_EPOCH_FILE)
        return None

    def _remove_orphans(self, bases: set[int]) -> None:
        """Indexes without a segment: the rest of an unfinished removal."""
        for suffix in INDEX_SUFFIXES:
            for base_offset in _numbers(self._sizes, suffix):
                if base_offset not in bases:
                    self._unlink(f"{base_offset:020}{suffix}")

    def _read(self, name: str) -> bytes | None:
        return (
            read_whole(self._fs, f"{self._directory}/{name}", max_bytes=MAX_MARK_BYTES) if name in self._sizes else None
        )

    def _size(self, base_offset: int, suffix: str) -> int:
        return self._sizes.get(f"{base_offset:020}{suffix}", 0)

    def _unlink(self, name: str) -> None:
        if name in self._sizes:
            with suppress(FileNotFoundError):
                self._fs.unlink(f"{self._directory}/{name}")


def _take_over(segment: LogSegment, mark: SegmentMark) -> None:
    segment.extent = (mark.end_offset, mark.size_bytes, mark.max_timestamp_ms, mark.offset_of_max_timestamp)
    segment.first_append_ms = mark.first_append_ms
    segment.times_proven_from = UNPROVEN if mark.times_proven_from is None else mark.times_proven_from
    segment.tail = BatchTail()


def _numbers(names: dict[str, int], suffix: str) -> list[int]:
    """The offsets in names such as 00000000000000000042.log."""
    found = []
    for name in names:
        stem, dot, rest = name.partition(".")
        if dot + rest == suffix and len(stem) == 20 and stem.isascii() and stem.isdigit():
            found.append(int(stem))
    return found
