"""Finds records in a log's segments: by offset for a read, by timestamp for ListOffsets.

Owns the searches over several segments. Reads only; may be called in any thread, also while the log is
appended to. Must never answer with part of a batch, nor with anything at or beyond the end it is given.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO

from tiered.errors import CorruptBatch, CorruptFile
from tiered.file_slice import FileSlice
from tiered.formats.batch_times import record_times
from tiered.formats.offset_index import OffsetIndex
from tiered.formats.record_batch import BatchHeader, verify_crc
from tiered.formats.segment_object import AbortedIndexEntry
from tiered.formats.time_index import TimeIndex
from tiered.hot.batch_walk import FAR_BLOCK_BYTES, walk
from tiered.hot.file_system import FileSystem
from tiered.hot.segment import NO_TIMESTAMP, LogSegment
from tiered.hot.segment_files import OpenSegments, read_time_index

Segments = tuple[LogSegment, ...]


class Lookup:
    """Searches through the segments of one log; holds nothing but what it needs to open them."""

    __slots__ = ("_fs", "_index_interval_bytes", "_open_segments")

    def __init__(self, fs: FileSystem, open_segments: OpenSegments, index_interval_bytes: int) -> None:
        self._fs = fs
        self._open_segments = open_segments
        self._index_interval_bytes = index_interval_bytes

    def opened(self, segment: LogSegment) -> tuple[FileIO, OffsetIndex]:
        """The segment's file and offset index, read from disk when it is closed and not in memory."""
        file, index = segment.file, segment.offset_index
        if file is not None and index is not None:
            return file, index
        found = self._open_segments.get(self._fs, segment, self._index_interval_bytes)
        return found.file, found.offset_index

    def keep_open(self, segment: LogSegment) -> None:
        """Gives the segment what its readers would look for under its name, where another file will be. Raises
        OSError."""
        opened, time_index = (
            self._open_segments.get(self._fs, segment, self._index_interval_bytes),
            self.time_index(segment),
        )
        segment.file, segment.time_index = opened.file, time_index
        segment.offset_index = opened.offset_index

    def read(
        self, segments: Segments, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool
    ) -> FileSlice | None:
        """Whole batches of one segment from the one that holds `offset`; the offset is in the log."""
        segment = segments[-1]
        if offset < segment.base_offset:
            segment = segments[bisect_right(segments, offset, key=_base_offset) - 1]
        file, index = self.opened(segment)
        start, _ = segment.find_batch(self._fs, file, index, offset)
        segment_end, end, _, _ = segment.extent
        if end_offset < segment_end:
            end, _ = segment.find_batch(self._fs, file, index, end_offset)
            if end <= start:
                return None
        if end - start > max_bytes:
            end, next_offset = segment.find_boundary(self._fs, file, index, start, start + max_bytes)
            if next_offset is not None:
                segment.seam = (next_offset, end)
            elif not min_one_batch:
                return None
        return FileSlice(file=file, position=start, length=end - start)

    def aborted_between(self, segments: Segments, start_offset: int, end_offset: int) -> list[AbortedIndexEntry]:
        """The aborted transactions with a part in these offsets, in the order of their markers, some of which may be
        in later segments."""
        found: list[AbortedIndexEntry] = []
        for segment in _from_offset(segments, start_offset):
            if segment.aborted and segment.aborted.find(start_offset, end_offset, found):
                break
        return found

    def aborted_in(self, segments: Segments, part: FileSlice, offset: int, end_offset: int) -> list[AbortedIndexEntry]:
        """The same for a part of one segment that begins with the batch of `offset`. Where it ends is known as well as
        the offset index knows it, and never beyond `end_offset`. Raises OSError, CorruptBatch."""
        following = _from_offset(segments, offset)
        if not any(segment.aborted for segment in following):
            return []
        _, index = self.opened(following[0])
        beyond = index.offset_at(part.position + part.length)
        part_end_offset = following[0].end_offset if beyond is None else beyond + 1
        return self.aborted_between(segments, offset, min(end_offset, part_end_offset))

    def first_at_or_after(
        self, segments: Segments, timestamp_ms: int, start_offset: int, end_offset: int
    ) -> tuple[int, int] | None:
        """Offset and timestamp of the first record in `[start_offset, end_offset)` that is not older than asked for.

        Timestamps need not rise with offsets: segments are chosen by their greatest one, not by order. Batches whose
        headers are not proven are looked into.
        """
        for segment in segments:
            segment_end, size_bytes, _, _ = segment.extent
            if segment_end <= start_offset or not segment.may_hold(timestamp_ms):
                continue
            if segment.base_offset >= end_offset:
                break
            file, index = self.opened(segment)
            # As in Kafka, every record before the batch of a time index entry is older than the entry.
            known = self.time_index(segment).lookup(timestamp_ms) if segment.times_are_proven else 0
            position = index.lookup(max(start_offset, known))
            for at, header in walk(self._fs, file, position, size_bytes):
                if header.base_offset >= end_offset:
                    break
                if header.last_offset < start_offset or not segment.batch_may_hold(header, timestamp_ms):
                    continue
                for offset, record_ms in self._times(file, at, header):
                    if record_ms >= timestamp_ms and start_offset <= offset < end_offset:
                        return offset, record_ms
            if start_offset <= segment.base_offset and segment_end <= end_offset:
                segment.looked(timestamp_ms - 1)
        return None

    def greatest(self, segments: Segments, start_offset: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record from `start_offset` on with the greatest timestamp of all."""
        best: tuple[int, int] | None = None
        # Segments that have to be looked into come first.
        for segment in sorted(segments, key=lambda each: (each.times_are_proven, -each.greatest_ms, each.base_offset)):
            if segment.end_offset <= start_offset or segment.greatest_ms < 0:
                continue
            if best is not None and segment.greatest_ms < best[1]:
                continue
            if segment.times_are_proven:
                found = self._greatest_in(segment, start_offset)
            else:
                found = self._greatest_by_looking(segment, start_offset)
            if found is not None and (best is None or (-found[1], found[0]) < (-best[1], best[0])):
                best = found
        return best

    def _greatest_by_looking(self, segment: LogSegment, start_offset: int) -> tuple[int, int] | None:
        size_bytes = segment.size_bytes
        file, index = self.opened(segment)
        best: tuple[int, int] | None = None
        for at, header in walk(self._fs, file, index.lookup(start_offset), size_bytes, block_bytes=FAR_BLOCK_BYTES):
            if header.last_offset < start_offset or not segment.batch_may_hold(header, best[1] + 1 if best else 0):
                continue
            for offset, record_ms in self._times(file, at, header):
                if offset >= start_offset and record_ms > (best[1] if best else NO_TIMESTAMP):
                    best = offset, record_ms
        if start_offset <= segment.base_offset:
            segment.looked(best[1] if best else NO_TIMESTAMP)
        return best

    def _greatest_in(self, segment: LogSegment, start_offset: int) -> tuple[int, int] | None:
        _, size_bytes, _, offset_of_greatest = segment.extent
        file, index = self.opened(segment)
        if start_offset <= segment.base_offset:
            at, _ = segment.find_batch(self._fs, file, index, offset_of_greatest)
            return self._greatest_of(file, *next(walk(self._fs, file, at, size_bytes)), start_offset)
        best: tuple[int, int] | None = None
        greatest: tuple[int, BatchHeader] | None = None
        for at, header in walk(self._fs, file, index.lookup(start_offset), size_bytes, block_bytes=FAR_BLOCK_BYTES):
            if header.base_offset < start_offset <= header.last_offset:
                best = self._greatest_of(file, at, header, start_offset)
            elif header.base_offset >= start_offset and (
                greatest is None or header.max_timestamp_ms > greatest[1].max_timestamp_ms
            ):
                greatest = at, header
        if greatest is not None and (best is None or greatest[1].max_timestamp_ms > best[1]):
            best = self._greatest_of(file, *greatest, start_offset)
        return best

    def _greatest_of(
        self, file: FileIO, position: int, header: BatchHeader, start_offset: int
    ) -> tuple[int, int] | None:
        best: tuple[int, int] | None = None
        for offset, record_ms in self._times(file, position, header):
            if offset >= start_offset and record_ms > (best[1] if best else NO_TIMESTAMP):
                best = offset, record_ms
        return best

    def _times(self, file: FileIO, position: int, header: BatchHeader) -> Iterator[tuple[int, int]]:
        """Offset and time of the batch's records; ends early where nobody can decode them. Raises CorruptBatch where
        the batch is damaged."""
        data = self._fs.read(file, header.size_bytes, position)
        verify_crc(data, 0, header.size_bytes)
        with suppress(CorruptBatch):
            yield from record_times(data)

    def time_index(self, segment: LogSegment) -> TimeIndex:
        """The segment's time index, from memory or from its file; an empty one when that is damaged. Raises OSError."""
        if segment.time_index is not None:
            return segment.time_index
        try:
            return read_time_index(self._fs, segment)
        except CorruptFile:
            return TimeIndex()  # Slower, as right: the search begins at the segment's first batch.


def _from_offset(segments: Segments, offset: int) -> Segments:
    """The segment that holds `offset`, and those after it."""
    return segments[max(0, bisect_right(segments, offset, key=_base_offset) - 1) :]


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset
