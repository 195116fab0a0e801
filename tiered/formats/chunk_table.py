"""Cuts a segment's batches into chunks and describes each: where, which offsets, which times, which bytes.

Owns the rule of the cuts, the hashes, and the searches in the finished table; `segment_object` owns how the
table is stored, `batch_times` what is known of a batch's times. Must never look into records, copy the batches, or keep
more than one row a chunk.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fastcrc import crc32, crc64

from tiered.errors import CorruptBatch, OffsetOutOfRange
from tiered.formats.batch_times import BatchTimes, claimed_times
from tiered.formats.record_batch import HEADER_BYTES, BatchHeader, read_header, verify_crc

DEFAULT_CHUNK_BYTES: Final = 1 << 20
SHA256_BYTES: Final = 32
NO_ROOT: Final = bytes(SHA256_BYTES)
"""The previous root of a partition's first segment."""
NO_TIMESTAMP_MS: Final = -1
"""Minimum and maximum where there are no records: Kafka's word for "no timestamp"."""

_ROOT_TAG: Final = b"tiered.segment-root.v1\0"
_CRC_COVERS_FROM: Final = 21
_crc32c = crc32.iscsi
TimesOf = Callable[[int, BatchHeader], BatchTimes]
chunk_crc = crc64.xz
"""CRC-64/XZ: another polynomial than the batches' own, which misses the damage that it misses itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRow:
    """One chunk: whole batches, `length` bytes from `position` on, offsets `first_offset` to `last_offset`.

    `max_timestamp_ms` is the greatest time that is known of a record, and `min_timestamp_ms` the smallest: what to show
    people. They are bounds only where they are proven (decision 0028): whoever skips chunks must ask for
    `proven_max_timestamp_ms` and `proven_min_timestamp_ms`. In objects from before no maximum is proven, and neither is
    a minimum, whatever `min_timestamp_is_proven` says: both were taken from headers that no broker had checked.
    `headers_are_proven`: each batch's header has the maximum of its records, so that batches may be skipped too.

    `crc64` finds damage, `sha256` a forgery too. Objects from before decision 0025 have no `crc64`.
    """

    position: int
    length: int
    first_offset: int
    last_offset: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    record_count: int
    sha256: bytes
    crc64: int | None = None
    min_timestamp_is_proven: bool = False
    max_timestamp_is_proven: bool = False
    headers_are_proven: bool = False

    @property
    def proven_min_timestamp_ms(self) -> int | None:
        """No record of the chunk is earlier; None where no bound is proven."""
        return self.min_timestamp_ms if self.min_timestamp_is_proven and self.max_timestamp_is_proven else None

    @property
    def proven_max_timestamp_ms(self) -> int | None:
        """No record of the chunk is later; None where no bound is proven."""
        return self.max_timestamp_ms if self.max_timestamp_is_proven else None

    def may_hold(self, timestamp_ms: int) -> bool:
        """Whether a record of the chunk may have this time or a later one."""
        return self.record_count > 0 and not (self.max_timestamp_is_proven and self.max_timestamp_ms < timestamp_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTable:
    """The findings of `ChunkTableBuilder` about a whole segment file. Timestamps as in `ChunkRow`."""

    chunks: tuple[ChunkRow, ...]
    base_offset: int
    end_offset: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    min_timestamp_is_proven: bool = False
    max_timestamp_is_proven: bool = False
    headers_are_proven: bool = False
    record_count: int
    batch_count: int
    log_bytes: int
    root_sha256: bytes


class ChunkTableBuilder:
    """Makes the chunk table of a segment file that is fed to it from start to end, in blocks of any size.

    A chunk closes when the next batch would make it exceed `chunk_bytes`; it has at least one batch. Every
    batch's CRC is checked. Memory: one row a chunk, whatever the batches claim to be: a batch that crosses
    blocks is hashed as it passes, never collected. Speed: one SHA-256, one CRC-64 and one CRC-32C over the bytes,
    all on the caller's block; SHA-256 releases the interpreter's lock.
    """

    def __init__(self, chunk_bytes: int = DEFAULT_CHUNK_BYTES, times_of: TimesOf | None = None) -> None:
        """`times_of` gives the times of a batch with records, by its position in the file and its header; without it
        they are what the headers claim, and nothing is proven."""
        assert chunk_bytes > 0, chunk_bytes
        self._chunk_bytes = chunk_bytes
        self._times_of = times_of or _claimed
        self._chunk = _ChunkState(0)
        self._rows: list[ChunkRow] = []
        self._base_offset = -1
        self._end_offset = 0
        self._record_count = 0
        self._batch_count = 0
        self._position = 0
        """Where the next batch begins in the file: batches before it have been begun."""
        self._header_part = bytearray()
        """A header that is cut by the end of a block: its bytes are not hashed yet."""
        self._left_bytes = 0
        """What is still to come of a batch that is cut by the end of a block."""
        self._crc = 0
        self._expected_crc = 0

    def feed(self, block: bytes | bytearray | memoryview) -> None:
        """Takes the file's next bytes. Raises CorruptBatch, after which the builder is of no more use."""
        view = memoryview(block).cast("B")
        end = len(view)
        at = self._finish_cut_batch(view, 0)
        hashed = at
        while end - at >= HEADER_BYTES:
            header = read_header(view, at)
            size_bytes = header.size_bytes
            chunk = self._chunk
            if chunk.length and chunk.length + size_bytes > self._chunk_bytes:
                chunk.hash(view[hashed:at])
                hashed = at
                chunk = self._next_chunk()
            self._note(chunk, header)
            if size_bytes > end - at:
                chunk.hash(view[hashed:])
                self._begin_cut_batch(header, view[at + _CRC_COVERS_FROM :], size_bytes - (end - at))
                return
            verify_crc(view, at, size_bytes)
            at += size_bytes
        self._chunk.hash(view[hashed:at])
        self._header_part += view[at:]

    def _finish_cut_batch(self, view: memoryview, at: int) -> int:
        """Where in `view` the next batch begins, or `view`'s end; takes the bytes before it."""
        if self._header_part:
            at = min(HEADER_BYTES - len(self._header_part), len(view))
            self._header_part += view[:at]
            if len(self._header_part) < HEADER_BYTES:
                return at
            header = read_header(self._header_part)
            chunk = self._chunk
            if chunk.length and chunk.length + header.size_bytes > self._chunk_bytes:
                chunk = self._next_chunk()
            self._note(chunk, header)
            chunk.hash(self._header_part)
            covered = bytes(self._header_part[_CRC_COVERS_FROM:])
            self._header_part.clear()
            self._begin_cut_batch(header, covered, header.size_bytes - HEADER_BYTES)
        if self._left_bytes:
            piece = view[at : at + self._left_bytes]
            self._chunk.hash(piece)
            self._crc = _crc32c(piece, self._crc)
            self._left_bytes -= len(piece)
            at += len(piece)
            if not self._left_bytes:
                self._check_crc()
        return at

    def _begin_cut_batch(self, header: BatchHeader, covered: bytes | memoryview, left_bytes: int) -> None:
        self._crc = _crc32c(covered)
        self._expected_crc = header.crc
        self._left_bytes = left_bytes
        if not left_bytes:
            self._check_crc()

    def _check_crc(self) -> None:
        if self._crc != self._expected_crc:
            raise CorruptBatch(
                f"the batch before position {self._position} has CRC {self._crc:08x} and says {self._expected_crc:08x}"
            )

    def _note(self, chunk: "_ChunkState", header: BatchHeader) -> None:
        """Takes over what a batch's header says."""
        base_offset, last_offset, count = header.base_offset, header.last_offset, header.record_count
        if base_offset < self._end_offset or last_offset < base_offset:
            raise CorruptBatch(
                f"the batch at position {self._position} has offsets {base_offset} to {last_offset} "
                f"after {self._end_offset - 1}"
            )
        if not 0 <= count <= last_offset - base_offset + 1:
            raise CorruptBatch(f"the batch at position {self._position} claims {count} records")
        if not self._batch_count:
            self._base_offset = base_offset
        self._end_offset = last_offset + 1
        self._batch_count += 1
        self._record_count += count
        # Compaction leaves batches without records; they have no times.
        times = self._times_of(self._position, header) if count else None
        self._position += header.size_bytes
        chunk.note(header.size_bytes, base_offset, last_offset, count, times)

    def _next_chunk(self) -> "_ChunkState":
        self._rows.append(self._chunk.row())
        self._chunk = _ChunkState(self._chunk.position + self._chunk.length)
        return self._chunk

    def finish(self) -> ChunkTable:
        """The table of everything that was fed. Raises CorruptBatch when it ends within a batch, or has none."""
        if self._left_bytes or self._header_part:
            raise CorruptBatch(f"the file ends within the batch before or at position {self._position}")
        if not self._batch_count:
            raise CorruptBatch("a segment without batches has no chunks")
        rows = (*self._rows, self._chunk.row())
        with_records = [row for row in rows if row.record_count]
        return ChunkTable(
            chunks=rows,
            base_offset=self._base_offset,
            end_offset=self._end_offset,
            min_timestamp_ms=min((row.min_timestamp_ms for row in with_records), default=NO_TIMESTAMP_MS),
            max_timestamp_ms=max((row.max_timestamp_ms for row in with_records), default=NO_TIMESTAMP_MS),
            min_timestamp_is_proven=all(row.min_timestamp_is_proven for row in rows),
            max_timestamp_is_proven=all(row.max_timestamp_is_proven for row in rows),
            headers_are_proven=all(row.headers_are_proven for row in rows),
            record_count=self._record_count,
            batch_count=self._batch_count,
            log_bytes=self._position,
            root_sha256=root_over(row.sha256 for row in rows),
        )


def _claimed(_position: int, header: BatchHeader) -> BatchTimes:
    return claimed_times(header)


class _ChunkState:
    """The chunk that is being filled."""

    __slots__ = (
        "crc64",
        "first_offset",
        "headers_are_proven",
        "last_offset",
        "length",
        "max_is_proven",
        "max_timestamp_ms",
        "min_is_proven",
        "min_timestamp_ms",
        "position",
        "record_count",
        "sha256",
    )

    def __init__(self, position: int) -> None:
        self.position = position
        self.length = 0
        self.first_offset = -1
        self.last_offset = -1
        self.min_timestamp_ms = NO_TIMESTAMP_MS
        self.max_timestamp_ms = NO_TIMESTAMP_MS
        self.min_is_proven = True
        self.max_is_proven = True
        self.headers_are_proven = True
        self.record_count = 0
        self.sha256 = hashlib.sha256()
        self.crc64 = 0

    def hash(self, piece: bytes | bytearray | memoryview) -> None:
        self.sha256.update(piece)
        self.crc64 = chunk_crc(piece, self.crc64)

    def note(
        self, size_bytes: int, base_offset: int, last_offset: int, record_count: int, times: BatchTimes | None
    ) -> None:
        if not self.length:
            self.first_offset = base_offset
        self.last_offset = last_offset
        self.length += size_bytes
        if times is None:
            return
        smallest_ms, greatest_ms, min_is_proven, max_is_proven, header_is_right = times
        if not min_is_proven:
            self.min_is_proven = False
        if not max_is_proven:
            self.max_is_proven = False
        if not header_is_right:
            self.headers_are_proven = False
        if not self.record_count or smallest_ms < self.min_timestamp_ms:
            self.min_timestamp_ms = smallest_ms
        if not self.record_count or greatest_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = greatest_ms
        self.record_count += record_count

    def row(self) -> ChunkRow:
        return ChunkRow(
            position=self.position,
            length=self.length,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            min_timestamp_ms=self.min_timestamp_ms,
            max_timestamp_ms=self.max_timestamp_ms,
            record_count=self.record_count,
            sha256=self.sha256.digest(),
            crc64=self.crc64,
            min_timestamp_is_proven=self.min_is_proven,
            max_timestamp_is_proven=self.max_is_proven,
            headers_are_proven=self.headers_are_proven,
        )


def root_over(chunk_hashes: Iterable[bytes]) -> bytes:
    """The 32-byte root over the chunks' 32-byte hashes in order. Its tag keeps it apart from any chunk's hash."""
    digest = hashlib.sha256(_ROOT_TAG)
    for chunk_hash in chunk_hashes:
        digest.update(chunk_hash)
    return digest.digest()


def chunk_for_offset(chunks: Sequence[ChunkRow], offset: int) -> int:
    """The index of the chunk that holds `offset`, or of the next one where compaction removed it.

    Raises OffsetOutOfRange when `offset` is beyond the last chunk.
    """
    index = bisect_left(chunks, offset, key=lambda row: row.last_offset)
    if index == len(chunks):
        raise OffsetOutOfRange(f"offset {offset} is beyond the segment, whose last is {chunks[-1].last_offset}")
    return index


def chunks_for_timestamp(chunks: Sequence[ChunkRow], timestamp_ms: int) -> int | None:
    """The index of the first chunk that may have a record at or after `timestamp_ms`; None when all are earlier.

    A scan, not a binary search: with CreateTime the maxima of later chunks may be smaller.
    """
    for index, row in enumerate(chunks):
        if row.may_hold(timestamp_ms):
            return index
    return None


def runs(chunks: Iterable[ChunkRow], max_bytes: int) -> Iterator[tuple[ChunkRow, ...]]:
    """The chunks in their order, neighbours gathered to what one request asks for: at most `max_bytes`, at least one
    chunk."""
    run: list[ChunkRow] = []
    length = 0
    for row in chunks:
        if run and (row.position != run[-1].position + run[-1].length or length + row.length > max_bytes):
            yield tuple(run)
            run, length = [], 0
        run.append(row)
        length += row.length
    if run:
        yield tuple(run)
