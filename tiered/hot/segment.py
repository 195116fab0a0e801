"""One segment of a log: a file of batches, and what is known of it in memory.

Owns the segment's state and the search for a position in its file. The log orders writes, syncs and
removals; a segment must never delete itself, nor roll.
"""

from array import array
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO

from tiered.errors import CorruptBatch
from tiered.file_slice import OpenFile
from tiered.formats.batch_times import is_proven
from tiered.formats.offset_index import OffsetIndex
from tiered.formats.record_batch import BatchHeader
from tiered.formats.time_index import TimeIndex
from tiered.formats.transaction_index import ENTRY_BYTES as TRANSACTION_ENTRY_BYTES
from tiered.formats.transaction_index import TransactionIndex
from tiered.hot.batch_walk import walk
from tiered.hot.file_system import FileSystem
from tiered.hot.marks import SegmentMark
from tiered.rules.partition.rolling import NEVER_MS, should_roll

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
NO_TIMESTAMP = -1
MAX_MS = 2**63 - 1

RESERVED_FROM_BYTES = 8 << 20
RESERVED_AT_ONCE_BYTES = 16 << 20
"""A segment that has grown to the first takes disk ahead of its appends, an eighth of its size and at most the second:
so the file system looks for blocks once for many pages. A partition with little in it takes none."""

TAIL_BATCHES = 1024
"""At least so many of the newest batches have their place in memory, so that a consumer near the end costs
no read at all; at most twice as many, 16 bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one log; Kafka's names and defaults. Replaceable while the log is open."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    max_index_bytes: int = 10 << 20
    flush_messages: int = NEVER_MS
    flush_ms: int = NEVER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentInfo:
    """A segment as others see it. `max_timestamp_ms` is -1 when no record has one; `path` is the `.log` file.

    `created_ms` and `written_ms` are the times of the first and of the last append, by this broker's clock. Without
    `times_are_proven` the greatest timestamp is only what producers have claimed.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    closed: bool
    flushed: bool
    path: str
    created_ms: int
    written_ms: int
    times_are_proven: bool


class BatchTail:
    """Base offsets and positions of the newest batches of one segment, in order. One writer, any readers."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")


class LogSegment:
    """The mutable state of one segment: appended to from one thread, searched from any."""

    __slots__ = (
        "_info",
        "aborted",
        "base_offset",
        "bytes_since_index_entry",
        "closed",
        "created_ms",
        "extent",
        "file",
        "first_append_ms",
        "index_bytes",
        "looked_ms",
        "offset_index",
        "path",
        "reserved_bytes",
        "seam",
        "synced",
        "tail",
        "time_index",
        "times_proven_from",
        "written_ms",
    )

    def __init__(self, path: str, base_offset: int, *, created_ms: int) -> None:
        self.path = path
        """Without the suffix of its files."""
        self.base_offset = base_offset
        self._info: SegmentInfo | None = None
        self.extent = (base_offset, 0, NO_TIMESTAMP, -1)
        """End offset (exclusive), size in bytes, greatest timestamp, and the last offset of the first batch that
        has it (what Kafka's time index holds): one tuple, so that other threads see values that belong together."""
        self.created_ms = created_ms
        self.first_append_ms: int | None = None
        self.written_ms = created_ms
        """When something was appended last, by this broker's clock; after a restart, when the file was written last."""
        self.times_proven_from = base_offset
        """Batches from this offset on have a greatest timestamp that a broker has set right (decision 0028)."""
        self.looked_ms = MAX_MS
        """No record of the batches before is later, as far as somebody has looked."""
        self.closed = False
        self.synced = False
        """The files of a closed segment are on disk."""
        self.file: OpenFile | None = None
        """Open while the segment is active or not synced: a failed write-back is reported to this descriptor."""
        self.offset_index: OffsetIndex | None = None
        self.time_index: TimeIndex | None = None
        """Both only while the segment is active."""
        self.reserved_bytes = 0
        """As far as the active segment's file has disk for what is appended next."""
        self.index_bytes = (0, 0)
        """Sizes of the two index files of a closed segment."""
        self.aborted = TransactionIndex()
        """In memory for as long as the segment is here: an entry of a later segment may be of records in this one."""
        self.bytes_since_index_entry = 0
        self.tail = BatchTail()
        self.seam = (base_offset, 0)
        """Offset and position where the last read ended: a sequential reader asks for it next."""

    @property
    def end_offset(self) -> int:
        return self.extent[0]

    @property
    def size_bytes(self) -> int:
        return self.extent[1]

    @property
    def max_timestamp_ms(self) -> int:
        return self.extent[2]

    @property
    def times_are_proven(self) -> bool:
        return self.times_proven_from <= self.base_offset

    @property
    def greatest_ms(self) -> int:
        """No record is later. Unlike `max_timestamp_ms`, which may be what a producer has claimed."""
        return self.extent[2] if self.times_are_proven else max(self.extent[2], self.looked_ms)

    def may_hold(self, timestamp_ms: int) -> bool:
        """Whether a record may have this time or a later one."""
        return self.greatest_ms >= timestamp_ms

    def batch_may_hold(self, header: BatchHeader, timestamp_ms: int) -> bool:
        """The same of one batch."""
        return header.max_timestamp_ms >= timestamp_ms or not is_proven(header, self.times_proven_from)

    def prove_times_from(self, offset: int) -> None:
        """Only batches from `offset` on have headers that a broker has set right."""
        self.times_proven_from, self.looked_ms = offset, MAX_MS

    def looked(self, greatest_ms: int) -> None:
        """Somebody has looked into all records of batches that are not proven: none is later than this."""
        self.looked_ms = min(self.looked_ms, greatest_ms)

    def info(self) -> SegmentInfo:
        """The segment as others see it; the same object as long as nothing changes."""
        known = self._info
        end_offset, size_bytes, max_timestamp_ms, _ = self.extent
        if (
            known is not None
            and known.end_offset == end_offset
            and known.flushed == self.synced
            and known.times_are_proven == self.times_are_proven
            and known.closed == self.closed
        ):
            return known
        self._info = SegmentInfo(
            base_offset=self.base_offset,
            end_offset=end_offset,
            size_bytes=size_bytes,
            max_timestamp_ms=max_timestamp_ms,
            closed=self.closed,
            flushed=self.synced,
            path=self.path + LOG_SUFFIX,
            created_ms=self.created_ms if self.first_append_ms is None else self.first_append_ms,
            written_ms=self.written_ms,
            times_are_proven=self.times_are_proven,
        )
        return self._info

    def mark(self) -> SegmentMark:
        end_offset, size_bytes, max_timestamp_ms, offset_of_max_timestamp = self.extent
        return SegmentMark(
            base_offset=self.base_offset,
            end_offset=end_offset,
            size_bytes=size_bytes,
            max_timestamp_ms=max_timestamp_ms,
            offset_of_max_timestamp=offset_of_max_timestamp,
            first_append_ms=self.first_append_ms,
            offset_index_bytes=self.index_bytes[0],
            time_index_bytes=self.index_bytes[1],
            times_proven_from=self.times_proven_from,
            transaction_index_bytes=TRANSACTION_ENTRY_BYTES * len(self.aborted),
        )

    def note_batch(
        self, base_offset: int, last_offset: int, size_bytes: int, max_timestamp_ms: int, index_interval_bytes: int
    ) -> None:
        """Takes over one batch that stands at the present end of the file.

        As in Kafka: an index entry is the last offset of a batch and the batch's position, a time index
        entry is the greatest timestamp so far (this batch included) and the offset that goes with it.
        """
        _, position, greatest_ms, offset_of_greatest = self.extent
        if max_timestamp_ms > greatest_ms:
            greatest_ms = max_timestamp_ms
            offset_of_greatest = last_offset
        if self.bytes_since_index_entry > index_interval_bytes:
            assert self.offset_index is not None, "only an active segment is appended to"
            assert self.time_index is not None
            self.offset_index.append(last_offset, position)
            if greatest_ms > self.time_index.last_timestamp_ms:
                self.time_index.append(greatest_ms, offset_of_greatest)
            self.bytes_since_index_entry = 0
        self.bytes_since_index_entry += size_bytes
        tail = self.tail
        tail.positions.append(position)  # Before its offset: a reader that finds the offset finds the position.
        tail.offsets.append(base_offset)
        if len(tail.offsets) >= 2 * TAIL_BATCHES:
            shorter = BatchTail()
            shorter.positions.extend(tail.positions[TAIL_BATCHES:])
            shorter.offsets.extend(tail.offsets[TAIL_BATCHES:])
            self.tail = shorter
        self.extent = (last_offset + 1, position + size_bytes, greatest_ms, offset_of_greatest)

    def note(self, header: BatchHeader, index_interval_bytes: int) -> None:
        """As `note_batch`, of a batch that has its offsets already."""
        last_offset, size_bytes = header.last_offset, header.size_bytes
        self.note_batch(header.base_offset, last_offset, size_bytes, header.max_timestamp_ms, index_interval_bytes)

    def note_time(self) -> None:
        """Adds the greatest timestamp so far to the time index, unless it is there: the last entry of a segment."""
        _, _, greatest_ms, offset_of_greatest = self.extent
        if self.time_index is not None and greatest_ms > self.time_index.last_timestamp_ms:
            self.time_index.append(greatest_ms, offset_of_greatest)

    def must_close(self, config: LogConfig, incoming_bytes: int, last_offset: int, now_ms: int) -> bool:
        """Whether these bytes, up to `last_offset`, belong in a new segment."""
        index = self.offset_index
        return should_roll(
            segment_bytes_now=self.extent[1],
            incoming_bytes=incoming_bytes,
            first_append_ms=self.first_append_ms,
            now_ms=now_ms,
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            base_offset=self.base_offset,
            incoming_last_offset=last_offset,
            index_is_full=index is not None and OFFSET_ENTRY_BYTES * (len(index) + 1) > config.max_index_bytes,
        )

    def reserve(self, fs: FileSystem, file: FileIO, end: int, config: LogConfig) -> None:
        """Takes disk for an append that ends at byte `end`, and for others. Where there is none the append goes on
        without."""
        size_bytes = self.extent[1]
        if size_bytes < RESERVED_FROM_BYTES:
            self.reserved_bytes = RESERVED_FROM_BYTES
            return
        ahead = min(RESERVED_AT_ONCE_BYTES, size_bytes // 8)
        self.reserved_bytes = max(end, min(end + ahead, config.segment_bytes))
        with suppress(OSError):
            fs.reserve(file, size_bytes, self.reserved_bytes - size_bytes)

    def give_back_reserved(self, fs: FileSystem) -> None:
        """Nothing more is appended: what was reserved and not written, before a restart too, goes back to the disk."""
        if self.file is not None and self.extent[1] >= RESERVED_FROM_BYTES:
            with suppress(OSError):  # Until the file goes the disk has a little less room.
                fs.truncate(self.file, self.extent[1])
        self.reserved_bytes = 0

    def outdated_ms(self, config: LogConfig) -> int:
        """When it must be closed for its age, if nothing is appended until then."""
        first_append_ms = self.first_append_ms
        return NEVER_MS if first_append_ms is None or not self.extent[1] else first_append_ms + config.segment_ms

    def find_batch(self, fs: FileSystem, file: FileIO, index: OffsetIndex, offset: int) -> tuple[int, int]:
        """Position and base offset of the batch that holds `offset`, which must be in the segment.

        Raises CorruptBatch when the file's headers do not lead there.
        """
        tail = self.tail
        if tail.offsets and offset >= tail.offsets[0]:
            nearest = bisect_right(tail.offsets, offset) - 1
            return tail.positions[nearest], tail.offsets[nearest]
        seam_offset, seam_position = self.seam
        if offset == seam_offset:
            return seam_position, seam_offset
        for position, header in walk(fs, file, index.lookup(offset), self.extent[1]):
            if header.last_offset >= offset:
                return position, header.base_offset
        raise CorruptBatch(f"{self.path}{LOG_SUFFIX} has no batch with offset {offset}; restart to have it checked")

    def find_boundary(
        self, fs: FileSystem, file: FileIO, index: OffsetIndex, start: int, limit: int
    ) -> tuple[int, int | None]:
        """The greatest boundary between batches in `(start, limit]`, and the offset that begins there.

        `start` is a boundary. When the first batch crosses `limit`, its end, and None for the offset.
        """
        end_offset, size_bytes, _, _ = self.extent
        if limit >= size_bytes:
            return size_bytes, end_offset
        tail = self.tail
        if tail.offsets and limit >= tail.positions[0]:
            nearest = bisect_right(tail.positions, limit, hi=len(tail.offsets)) - 1
            if tail.positions[nearest] > start:
                return tail.positions[nearest], tail.offsets[nearest]
        for position, header in walk(fs, file, max(start, index.floor_position(limit)), size_bytes):
            end = position + header.size_bytes
            if end > limit:
                return (position, header.base_offset) if position > start else (end, None)
        raise CorruptBatch(f"{self.path}{LOG_SUFFIX} ends before byte {limit}; restart to have it checked")
