"""Cuts the end off a log and finds out anew what is known of the rest; begins one where all segments went.

Owns the order in which files are cut and removed: a crash at any moment leaves nothing trusted that was cut. The log
orders it against everything else; must never be used while it is appended to or flushed.
"""

from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from itertools import takewhile

from tiered.errors import CorruptFile
from tiered.formats.offset_index import OffsetIndex
from tiered.formats.producer_snapshot import ProducerEntry
from tiered.formats.time_index import TimeIndex
from tiered.hot.batch_walk import FAR_BLOCK_BYTES, walk
from tiered.hot.file_system import FileSystem, prepare_file, use_prepared
from tiered.hot.flush import FlushState
from tiered.hot.lookup import Lookup, Segments
from tiered.hot.marks import RecoveryPoint
from tiered.hot.segment import LOG_SUFFIX, NO_TIMESTAMP, TRANSACTION_INDEX_SUFFIX, BatchTail, LogSegment
from tiered.hot.segment_files import OpenSegments, read_offset_index, read_time_index, segment_path, unlink_segment
from tiered.hot.side_files import SideFiles, unless_full
from tiered.rules.replication.leader_epochs import LeaderEpochs


class Truncation:
    """Takes records of one log back. The log calls it under its locks, and fails for good when it raises OSError."""

    __slots__ = ("_directory", "_flushing", "_fs", "_lookup", "_open_segments", "_side")

    def __init__(
        self,
        directory: str,
        fs: FileSystem,
        side: SideFiles,
        flushing: FlushState,
        lookup: Lookup,
        open_segments: OpenSegments,
    ) -> None:
        self._directory = directory
        self._fs = fs
        self._side = side
        self._flushing = flushing
        self._lookup = lookup
        self._open_segments = open_segments

    def cut(self, segments: Segments, offset: int, index_interval_bytes: int) -> Segments:
        """The segments that are left when the log ends at `offset`, or at the start of the batch that holds it;
        `settle` is due next. Raises LogDirFailed when the disk is full: then nothing was changed."""
        index = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
        kept, last, dropped = segments[:index], segments[index], segments[index + 1 :]
        # First of all nobody may go on trusting what is going to be cut, and what needs space has to have it.
        flushed = tuple(segment.mark() for segment in takewhile(lambda segment: segment.synced, kept))
        with unless_full(self._directory):
            end_offset, position = _cut_position(self._fs, self._lookup, last, offset)
            self._flushing.forget_point()
            self._side.prepare_cut(end_offset)
            self._side.keep_recovery_point(RecoveryPoint(segments=flushed))
        self._flushing.take_back(end_offset)
        for segment in (*reversed(dropped), last):
            self._open_segments.drop(segment)
        for segment in reversed(dropped):
            unlink_segment(self._fs, segment.path)
        _cut_segment(self._fs, last, position, index_interval_bytes)
        assert last.extent[0] == end_offset, f"{last.path} ends at {last.extent[0]} after a cut at {end_offset}"
        return (*kept, last)

    def settle(self, end_offset: int) -> None:
        """Forgets what the side files say of records at or beyond the log's new end, durably."""
        self._fs.sync_directory(self._directory)
        self._side.cut(end_offset)

    def begin_anew(
        self, segments: Segments, offset: int, epochs: LeaderEpochs, producers: Iterable[ProducerEntry] | None
    ) -> Segments:
        """The one empty segment of a log that begins at `offset`, where these were; a sync of the directory is due.
        Raises LogDirFailed as `cut`."""
        path = segment_path(self._directory, offset)
        with unless_full(self._directory):
            self._side.prepare_beginning(offset, epochs, producers)
            prepare_file(self._fs, path + LOG_SUFFIX, b"")
        self._side.forget_recovery_point()
        for segment in reversed(segments):
            self._open_segments.drop(segment)
            unlink_segment(self._fs, segment.path)
        self._side.begin_anew(offset, knows_producers=producers is not None)
        return (_begin_segment(self._fs, path, offset, created_ms=segments[-1].created_ms),)


def _cut_position(fs: FileSystem, lookup: Lookup, segment: LogSegment, offset: int) -> tuple[int, int]:
    """Where a log that is to end at `offset` ends: (end offset, position), at the start of a batch of `segment`."""
    end_offset, size_bytes, _, _ = segment.extent
    if offset >= end_offset:
        return end_offset, size_bytes
    file, index = lookup.opened(segment)
    position, base_offset = segment.find_batch(fs, file, index, offset)
    return base_offset, position


def _cut_segment(fs: FileSystem, segment: LogSegment, position: int, index_interval_bytes: int) -> None:
    """Makes the segment end at `position`, a boundary between batches, durably, and ready for appends.

    Raises OSError, CorruptBatch.
    """
    if segment.closed or segment.file is None:
        segment.file = fs.open(segment.path + LOG_SUFFIX, writable=True)
    if segment.offset_index is None or segment.time_index is None:
        try:
            segment.offset_index, segment.time_index = read_offset_index(fs, segment), read_time_index(fs, segment)
        except CorruptFile:
            segment.offset_index, segment.time_index = OffsetIndex(), TimeIndex()
    fs.truncate(segment.file, position)
    fs.sync(segment.file)
    _keep_index_below(segment, position)
    segment.closed = segment.synced = False
    segment.tail = BatchTail()
    segment.seam = (segment.base_offset, 0)
    # The last entry's batch is walked again: what comes after it is not in the index.
    start = segment.offset_index.last_position
    segment.bytes_since_index_entry = 0
    segment.extent = (segment.base_offset, 0, NO_TIMESTAMP, -1)
    for at, header in walk(fs, segment.file, start, position, block_bytes=FAR_BLOCK_BYTES):
        if at == start:
            greatest = (segment.time_index.last_timestamp_ms, segment.time_index.last_offset)
            segment.extent = (header.base_offset, start, *greatest)
        segment.note(header, index_interval_bytes)
    segment.aborted.truncate(segment.end_offset)
    with suppress(FileNotFoundError):
        fs.unlink(segment.path + TRANSACTION_INDEX_SUFFIX)
    if position == 0:
        segment.first_append_ms = None


def _begin_segment(fs: FileSystem, path: str, offset: int, *, created_ms: int) -> LogSegment:
    """The first segment of a log that begins anew at `offset`, whose file was prepared. Raises OSError."""
    segment = LogSegment(path, offset, created_ms=created_ms)
    use_prepared(fs, path + LOG_SUFFIX)
    segment.file = fs.open(path + LOG_SUFFIX, writable=True)
    segment.offset_index, segment.time_index = OffsetIndex(), TimeIndex()
    return segment


def _keep_index_below(segment: LogSegment, position: int) -> None:
    assert segment.offset_index is not None
    assert segment.time_index is not None
    index = segment.offset_index
    while len(index) and index.last_position >= position:
        index.truncate(index.last_offset)
    segment.time_index.truncate(index.last_offset + 1)
