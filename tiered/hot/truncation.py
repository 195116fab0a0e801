"""Cuts the end off one segment and finds out anew what is known of the rest; begins one where all others went.

Owns the cut and the rebuilding of the segment's state. The log orders it against everything else; must
never be used while the segment is appended to or flushed.
"""

from tiered.errors import CorruptFile
from tiered.formats.offset_index import OffsetIndex
from tiered.formats.time_index import TimeIndex
from tiered.hot.batch_walk import FAR_BLOCK_BYTES, walk
from tiered.hot.file_system import FileSystem, use_prepared
from tiered.hot.lookup import Lookup
from tiered.hot.segment import LOG_SUFFIX, NO_TIMESTAMP, SegmentState, Tail
from tiered.hot.segment_files import read_offset_index, read_time_index


def cut_position(fs: FileSystem, lookup: Lookup, segment: SegmentState, offset: int) -> tuple[int, int]:
    """Where a log that is to end at `offset` ends: (end offset, position), at the start of a batch of `segment`."""
    end_offset, size_bytes, _, _ = segment.extent
    if offset >= end_offset:
        return end_offset, size_bytes
    file, index = lookup.opened(segment)
    position, base_offset = segment.find_batch(fs, file, index, offset)
    return base_offset, position


def cut_segment(fs: FileSystem, segment: SegmentState, position: int, index_interval_bytes: int) -> None:
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
    segment.tail = Tail()
    segment.seam = (segment.base_offset, 0)
    # The last entry's batch is walked again: what comes after it is not in the index.
    start = segment.offset_index.last_position
    segment.bytes_since_index_entry = 0
    segment.extent = (segment.base_offset, 0, NO_TIMESTAMP, -1)
    for at, header in walk(fs, segment.file, start, position, block_bytes=FAR_BLOCK_BYTES):
        if at == start:
            greatest = (segment.time_index.last_timestamp_ms, segment.time_index.last_offset)
            segment.extent = (header.base_offset, start, *greatest)
        segment.note_batch(
            header.base_offset, header.last_offset, header.size_bytes, header.max_timestamp_ms, index_interval_bytes
        )
    if position == 0:
        segment.first_append_ms = None


def begin_segment(fs: FileSystem, path: str, offset: int, *, created_ms: int) -> SegmentState:
    """The first segment of a log that begins anew at `offset`, whose file was prepared. Raises OSError."""
    segment = SegmentState(path, offset, created_ms=created_ms)
    use_prepared(fs, path + LOG_SUFFIX)
    segment.file = fs.open(path + LOG_SUFFIX, writable=True)
    segment.offset_index, segment.time_index = OffsetIndex(), TimeIndex()
    return segment


def _keep_index_below(segment: SegmentState, position: int) -> None:
    assert segment.offset_index is not None
    assert segment.time_index is not None
    index = segment.offset_index
    while len(index) and index.last_position >= position:
        index.truncate(index.last_offset)
    segment.time_index.truncate(index.last_offset + 1)
