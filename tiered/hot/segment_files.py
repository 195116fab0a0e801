"""The files of a segment: their names, its indexes on disk, and which closed segments are open.

Owns the process's bound on open closed segments and on the memory of their indexes. An index can always be
rebuilt from the batches; must never answer from one that does not fit its segment.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tiered.errors import CorruptFile
from tiered.file_slice import OpenFile
from tiered.formats.offset_index import OffsetIndex
from tiered.formats.segment_object import AbortedIndexEntry
from tiered.formats.time_index import TimeIndex
from tiered.formats.transaction_index import ENTRY_BYTES, TransactionIndex
from tiered.hot.batch_walk import FAR_BLOCK_BYTES, walk
from tiered.hot.file_system import FileSystem, read_whole, replace_file
from tiered.hot.marks import SegmentMark
from tiered.hot.segment import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    LogSegment,
)

MAX_INDEX_FILE_BYTES = 1 << 30


def segment_path(directory: str, base_offset: int) -> str:
    """The common part of the names of a segment's files."""
    return f"{directory}/{base_offset:020}"


def write_indexes(fs: FileSystem, segment: LogSegment) -> tuple[int, int]:
    """Puts both indexes that are in memory into their files, not durably; their sizes in bytes. Raises OSError."""
    assert segment.offset_index is not None
    assert segment.time_index is not None
    offsets = segment.offset_index.to_bytes(segment.base_offset)
    times = segment.time_index.to_bytes(segment.base_offset)
    replace_file(fs, segment.path + OFFSET_INDEX_SUFFIX, offsets, durable=False)
    replace_file(fs, segment.path + TIME_INDEX_SUFFIX, times, durable=False)
    return len(offsets), len(times)


def write_indexes_below(fs: FileSystem, segment: LogSegment, end_offset: int) -> tuple[int, int]:
    """As `write_indexes`, with the entries below `end_offset` only; the segment may be appended to meanwhile."""
    assert segment.offset_index is not None
    assert segment.time_index is not None
    part = LogSegment(segment.path, segment.base_offset, created_ms=0)
    part.offset_index = OffsetIndex.from_bytes(segment.base_offset, segment.offset_index.to_bytes(segment.base_offset))
    part.time_index = TimeIndex.from_bytes(segment.base_offset, segment.time_index.to_bytes(segment.base_offset))
    part.offset_index.truncate(end_offset)
    part.time_index.truncate(end_offset)
    return write_indexes(fs, part)


def write_transaction_index(fs: FileSystem, segment: LogSegment, end_offset: int) -> int:
    """Returns when the entries below `end_offset` are in the segment's file for good; its size. Most segments have no
    entry, and then no file. Raises OSError.

    Durable, unlike the other indexes: a reader who missed an entry would be given what was aborted.
    """
    data = segment.aborted.to_bytes(end_offset)
    if data:
        replace_file(fs, segment.path + TRANSACTION_INDEX_SUFFIX, data, durable=True)
    return len(data)


def read_transaction_index(fs: FileSystem, segment: LogSegment, mark: SegmentMark) -> TransactionIndex:
    """The index of the part of a segment that `mark` tells of. Raises CorruptFile when the file has not all of it."""
    if not mark.transaction_index_bytes:
        return TransactionIndex()
    data = read_whole(fs, segment.path + TRANSACTION_INDEX_SUFFIX, max_bytes=MAX_INDEX_FILE_BYTES) or b""
    index = TransactionIndex.from_bytes(data)
    index.truncate(mark.end_offset)
    if ENTRY_BYTES * len(index) != mark.transaction_index_bytes or len(index.to_bytes(mark.base_offset)):
        raise CorruptFile(
            f"{segment.path}{TRANSACTION_INDEX_SUFFIX} is not the segment's; it is rebuilt from the batches"
        )
    return index


def read_offset_index(fs: FileSystem, segment: LogSegment) -> OffsetIndex:
    """The offset index of a segment from its file. Raises CorruptFile when it is missing or not an index."""
    data = read_whole(fs, segment.path + OFFSET_INDEX_SUFFIX, max_bytes=MAX_INDEX_FILE_BYTES)
    if data is None:
        raise CorruptFile(f"{segment.path}{OFFSET_INDEX_SUFFIX} is missing; it is rebuilt from the batches")
    if data[4:8] == bytes(4):
        # No log begins its index with its first batch: these are the zeros of what a power loss took.
        raise CorruptFile(f"{segment.path}{OFFSET_INDEX_SUFFIX} begins with nothing; it is rebuilt from the batches")
    return OffsetIndex.from_bytes(segment.base_offset, data)


def read_time_index(fs: FileSystem, segment: LogSegment) -> TimeIndex:
    """The time index of a segment from its file. Raises CorruptFile when it is missing or not an index."""
    data = read_whole(fs, segment.path + TIME_INDEX_SUFFIX, max_bytes=MAX_INDEX_FILE_BYTES)
    if data is None:
        raise CorruptFile(f"{segment.path}{TIME_INDEX_SUFFIX} is missing; it is rebuilt from the batches")
    return TimeIndex.from_bytes(segment.base_offset, data)


def rebuild_indexes(fs: FileSystem, segment: LogSegment, file: OpenFile, index_interval_bytes: int) -> LogSegment:
    """A copy of a closed segment's state with both indexes made anew from the headers of its batches.

    Reads the whole file's headers. Raises CorruptBatch when they do not lead through the file.
    """
    fresh = LogSegment(segment.path, segment.base_offset, created_ms=segment.created_ms)
    fresh.offset_index, fresh.time_index = OffsetIndex(), TimeIndex()
    for _, header in walk(fs, file, 0, segment.size_bytes, block_bytes=FAR_BLOCK_BYTES):
        fresh.note(header, index_interval_bytes)
    fresh.note_time()
    return fresh


def unlink_segment(fs: FileSystem, path: str, suffixes: tuple[str, ...] = (*INDEX_SUFFIXES, LOG_SUFFIX)) -> None:
    """Removes a segment's files, the batches last: what is half removed is still found, and removed again."""
    for suffix in suffixes:
        with suppress(FileNotFoundError):
            fs.unlink(path + suffix)


class SegmentFile:
    """A closed segment for its upload: the open file, and what its object says beside the batches.

    The file stays readable if the segment is removed meanwhile. `end_offset` is exclusive.
    """

    def __init__(
        self,
        segment: LogSegment,
        file: OpenFile,
        *,
        leader_epochs: tuple[tuple[int, int], ...],
        aborted: Sequence[AbortedIndexEntry],
        snapshot_source: Callable[[], bytes],
    ) -> None:
        self.path = segment.path + LOG_SUFFIX
        self.file = file
        self.base_offset, self.end_offset = segment.base_offset, segment.end_offset
        self.size_bytes = segment.size_bytes
        self.times_proven_from = segment.times_proven_from
        self.leader_epochs = leader_epochs
        """`(leader_epoch, start_offset)` of those that wrote into the segment."""
        self.aborted = tuple(aborted)
        """The aborted transactions that have records in the segment, also where the marker is in a later one."""
        self._snapshot_source = snapshot_source
        self._snapshot: bytes | None = None

    def fileno(self) -> int:
        return self.file.fileno()

    @property
    def producer_snapshot(self) -> bytes:
        """The producers at `end_offset`. Read when first asked for: ask in a thread. Raises OSError, CorruptBatch."""
        if self._snapshot is None:
            self._snapshot = self._snapshot_source()
        return self._snapshot

    def close(self) -> None:
        self.file.close()


@dataclass(frozen=True, slots=True, eq=False)
class OpenSegment:
    """A closed segment's file and offset index. The file closes when the last reader is done with it."""

    file: OpenFile
    offset_index: OffsetIndex
    index_bytes: int


class OpenSegments:
    """The closed segments that are open in this process, least recently read first. Safe between threads."""

    def __init__(self, *, max_files: int = 512, max_index_bytes: int = 32 << 20) -> None:
        self._max_files = max_files
        self._max_index_bytes = max_index_bytes
        self._index_bytes = 0
        self._open: OrderedDict[LogSegment, OpenSegment] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, fs: FileSystem, segment: LogSegment, index_interval_bytes: int) -> OpenSegment:
        """The segment, opened when it was not. Raises OSError, or CorruptBatch when its index can't be rebuilt."""
        with self._lock:
            found = self._open.get(segment)
            if found is not None:
                self._open.move_to_end(segment)
                return found
        file = segment.file or fs.open(segment.path + LOG_SUFFIX)
        try:
            index = read_offset_index(fs, segment)
        except CorruptFile:
            index = None
        if segment.file is not None and segment.offset_index is not None:
            # Compaction has put another file in this one's place, and left to it what it had before.
            return OpenSegment(segment.file, segment.offset_index, 0)
        if index is None:
            rebuilt = rebuild_indexes(fs, segment, file, index_interval_bytes)
            assert rebuilt.offset_index is not None
            index = rebuilt.offset_index
            with suppress(OSError):  # A full disk: it is rebuilt again next time.
                segment.index_bytes = write_indexes(fs, rebuilt)
        return self.put(segment, file, index)

    def put(self, segment: LogSegment, file: OpenFile, index: OffsetIndex) -> OpenSegment:
        """Takes over a segment that has just been closed or opened; the least recently read ones make room."""
        opened = OpenSegment(file, index, 16 * len(index))
        with self._lock:
            replaced = self._open.pop(segment, None)
            self._open[segment] = opened
            self._index_bytes += opened.index_bytes - (replaced.index_bytes if replaced else 0)
            while len(self._open) > 1 and (
                len(self._open) > self._max_files or self._index_bytes > self._max_index_bytes
            ):
                _, evicted = self._open.popitem(last=False)
                self._index_bytes -= evicted.index_bytes
        return opened

    def drop(self, segment: LogSegment) -> None:
        """Forgets a segment whose files are removed or changed."""
        with self._lock:
            dropped = self._open.pop(segment, None)
            if dropped is not None:
                self._index_bytes -= dropped.index_bytes


SHARED_OPEN_SEGMENTS = OpenSegments()
"""The one of this process."""
