"""The object that a closed segment becomes: its batches, then a tail that describes and proves them.

Owns the layout of the object (decisions 0001, 0004, 0025 and 0028, golden files `segment_object.v1*.bin`) and of its
tail's sections; `chunk_table` makes the table, `segment_footer` has the bytes of footer and trailer.
Must never believe a byte of a tail that its CRC, and its neighbours, do not confirm.

    object  := batches | chunk table | epochs | aborted transactions | producer snapshot | chunk CRCs | footer | trailer
    batches := the local segment file, byte for byte
    trailer := footer length u32 | footer CRC-32C u32 | magic "TIERED01"                            (16 bytes)

All numbers are big-endian. Rows:

    chunk   := position u64 | length u32 | first offset i64 | last offset i64 | min timestamp i64
               | max timestamp i64 | record count u64 | flags u32 (see below)
               | SHA-256 of the chunk's bytes                                                       (88 bytes)
    epoch   := leader epoch i32 | start offset i64                                                  (12 bytes)
    aborted := producer id i64 | first offset i64 | last offset i64 | last stable offset i64        (32 bytes)
    producer snapshot := see `producer_snapshot`
    chunk CRC := CRC-64/XZ of the chunk's bytes u64, one for each row of the chunk table               (8 bytes)

    footer  := version u16 (1) | flags u16 (see below) | topic id 16 bytes | partition u32
               | base offset i64 | end offset i64 | min timestamp i64 | max timestamp i64 | record count u64
               | batch count u64 | log bytes u64 | root SHA-256 | previous root SHA-256 | number of sections u16
               | sections (kind u16 | flags u16 (0) | position u64 | length u64 | CRC-32C u32)
               | cluster id (length u16, UTF-8) | topic (length u16, UTF-8)

Sections lie one after another from the end of the batches to the footer. Kinds 1 to 5 are the five above. 1 to 4
must be there; 5 is missing in objects from before decision 0025, whose chunks are checked by their SHA-256.

Flags: bit 0 the minimum, bit 1 the maximum, bit 2 the headers of all batches are proven, see `ChunkRow`. Without bit 1,
as in objects from before decision 0028, bit 0 says nothing: older brokers took it from headers that nobody had checked.

Hashes: a chunk's is over its bytes; the root is SHA-256 over "tiered.segment-root.v1\\0" and the chunks'
hashes in order; `previous root` is the root of the partition's segment that was committed before (zeros for
the first). So a swapped, replaced or missing object shows when neighbours are compared, and the catalogue
and the checkpoints hold the roots too. Roots follow from the batches and the chunk size alone. They do
not cover the chunk CRCs: a CRC tells damage, a SHA-256 a forgery too.

The aborted transactions are all of which an offset lies in the object, in the order of their markers. One that ended
in a later segment is in the object of each segment that it lies in, so that whoever reads a single object knows which
of its records to skip.

Migration: a reader refuses versions it does not know, with CorruptObject that names them. A section of an
unknown kind is checked and skipped, so what readers can do without is added as a section, within version 1.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from fastcrc import crc32

from tiered.errors import CorruptObject
from tiered.formats.aborted_ranges import AbortedRange
from tiered.formats.chunk_table import (
    DEFAULT_CHUNK_BYTES,
    NO_ROOT,
    ChunkRow,
    ChunkTable,
    ChunkTableBuilder,
    chunk_for_offset,
    chunks_for_timestamp,
    root_over,
    runs,
)
from tiered.formats.segment_footer import (
    ABORTED_ROW_BYTES,
    CHUNK_ROW_BYTES,
    FORMAT_VERSION,
    HEADERS_ARE_PROVEN,
    MAX_IS_PROVEN,
    MAX_TAIL_BYTES,
    MIN_IS_PROVEN,
    TAIL_GUESS_BYTES,
    TRAILER_BYTES,
    NeedMore,
    Section,
    SectionKind,
    SegmentFooter,
    encode_end,
    encode_leader_epochs,
    flags_of,
    read_footer,
    section_content,
)

# Code that reads or writes objects needs this module alone.
__all__ = [
    "DEFAULT_CHUNK_BYTES",
    "FORMAT_VERSION",
    "MAX_TAIL_BYTES",
    "NO_ROOT",
    "TAIL_GUESS_BYTES",
    "TRAILER_BYTES",
    "AbortedIndexEntry",
    "ChunkRow",
    "ChunkTable",
    "ChunkTableBuilder",
    "NeedMore",
    "Section",
    "SectionKind",
    "SegmentFooter",
    "SegmentTail",
    "aborted_between",
    "build_tail",
    "chunk_for_offset",
    "chunks_for_timestamp",
    "read_footer",
    "read_tail",
    "root_over",
    "runs",
]

_CHUNK = struct.Struct(">QIqqqqQI32s")
_ABORTED = struct.Struct(">qqqq")
_CRC = struct.Struct(">Q")
_crc32c = crc32.iscsi
assert (_CHUNK.size, _ABORTED.size) == (CHUNK_ROW_BYTES, ABORTED_ROW_BYTES)

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedIndexEntry(AbortedRange):
    """A transaction that ended without a commit, as in Kafka's transaction index: `last_offset` is its marker's.

    When it ended, no transaction was open that had begun below `last_stable_offset`.
    """

    last_stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTail:
    """A whole tail. `producer_snapshot` is for `producer_snapshot.decode_producers`."""

    footer: SegmentFooter
    chunks: tuple[ChunkRow, ...]
    leader_epochs: tuple[tuple[int, int], ...]
    aborted: tuple[AbortedIndexEntry, ...]
    producer_snapshot: bytes


def build_tail(
    table: ChunkTable,
    *,
    cluster_id: str,
    topic_id: UUID,
    topic: str,
    partition: int,
    leader_epochs: Sequence[tuple[int, int]],
    aborted: Sequence[AbortedIndexEntry],
    producer_snapshot: bytes,
    previous_root_sha256: bytes,
) -> bytes:
    """Everything that follows the batches in the object. Equal arguments give equal bytes."""
    contents = {
        SectionKind.CHUNK_TABLE: b"".join(_pack_chunk(row) for row in table.chunks),
        SectionKind.LEADER_EPOCHS: encode_leader_epochs(leader_epochs),
        SectionKind.ABORTED_TRANSACTIONS: b"".join(
            _ABORTED.pack(each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset)
            for each in aborted
        ),
        SectionKind.PRODUCER_SNAPSHOT: bytes(producer_snapshot),
    }
    crcs = [row.crc64 for row in table.chunks if row.crc64 is not None]
    if len(crcs) == len(table.chunks):
        contents[SectionKind.CHUNK_CRCS] = b"".join(map(_CRC.pack, crcs))
    position = table.log_bytes
    sections = []
    for kind, content in contents.items():
        sections.append(Section(kind=kind, position=position, length=len(content), crc=_crc32c(content)))
        position += len(content)
    footer = SegmentFooter(
        format_version=FORMAT_VERSION,
        cluster_id=cluster_id,
        topic_id=topic_id,
        topic=topic,
        partition=partition,
        base_offset=table.base_offset,
        end_offset=table.end_offset,
        leader_epochs=tuple(leader_epochs),
        min_timestamp_ms=table.min_timestamp_ms,
        max_timestamp_ms=table.max_timestamp_ms,
        min_timestamp_is_proven=table.min_timestamp_is_proven,
        max_timestamp_is_proven=table.max_timestamp_is_proven,
        headers_are_proven=table.headers_are_proven,
        record_count=table.record_count,
        batch_count=table.batch_count,
        log_bytes=table.log_bytes,
        sections=tuple(sections),
        root_sha256=table.root_sha256,
        previous_root_sha256=previous_root_sha256,
    )
    return b"".join((*contents.values(), encode_end(footer)))


def aborted_between(
    entries: Sequence[AbortedIndexEntry], start_offset: int, end_offset: int
) -> list[AbortedIndexEntry]:
    """Those of `entries`, which are in the order of their markers, with an offset from `start_offset` up to
    `end_offset`. Looks at no more entries than transactions ended until the last of them had."""
    found = []
    for index in range(bisect_left(entries, start_offset, key=lambda each: each.last_offset), len(entries)):
        each = entries[index]
        if each.first_offset < end_offset:
            found.append(each)
        if each.last_stable_offset >= end_offset:
            break
    return found


def _pack_chunk(row: ChunkRow) -> bytes:
    return _CHUNK.pack(
        row.position,
        row.length,
        row.first_offset,
        row.last_offset,
        row.min_timestamp_ms,
        row.max_timestamp_ms,
        row.record_count,
        flags_of(row),
        row.sha256,
    )


def read_tail(tail: Buffer, object_bytes: int) -> SegmentTail:
    """The whole tail, checked: each section's CRC, the rows against the footer, the root against the rows.

    `tail` is the last bytes of an object of `object_bytes`, from the end of the batches on or more. Raises
    CorruptObject. Memory follows from `tail`; no count is believed that the bytes do not hold.
    """
    footer = read_footer(tail, object_bytes)
    tail_bytes = footer.tail_bytes if isinstance(footer, NeedMore) else object_bytes - footer.log_bytes
    if isinstance(footer, NeedMore) or tail_bytes > len(tail):
        raise CorruptObject(f"{len(tail)} bytes of the tail were read where {tail_bytes} are needed")
    view = memoryview(tail)
    contents = {section.kind: section_content(section, view, object_bytes) for section in footer.sections}
    chunks = tuple(_unpack_chunks(contents[SectionKind.CHUNK_TABLE], contents.get(SectionKind.CHUNK_CRCS)))
    _check_chunks(chunks, footer)
    return SegmentTail(
        footer=footer,
        chunks=chunks,
        leader_epochs=footer.leader_epochs,
        aborted=tuple(
            AbortedIndexEntry(
                producer_id=producer_id,
                first_offset=first_offset,
                last_offset=last_offset,
                last_stable_offset=last_stable_offset,
            )
            for producer_id, first_offset, last_offset, last_stable_offset in _ABORTED.iter_unpack(
                contents[SectionKind.ABORTED_TRANSACTIONS]
            )
        ),
        producer_snapshot=bytes(contents[SectionKind.PRODUCER_SNAPSHOT]),
    )


def _unpack_chunks(content: memoryview, crcs: memoryview | None) -> Iterator[ChunkRow]:
    rows = list(_CHUNK.iter_unpack(content))
    of_rows = [None] * len(rows) if crcs is None else [crc for (crc,) in _CRC.iter_unpack(crcs)]
    if len(of_rows) != len(rows):
        raise CorruptObject(f"the tail has CRCs of {len(of_rows)} chunks, and {len(rows)} chunks")
    for (position, length, first, last, min_ms, max_ms, count, flags, sha256), crc64 in zip(rows, of_rows, strict=True):
        yield ChunkRow(
            position=position,
            length=length,
            first_offset=first,
            last_offset=last,
            min_timestamp_ms=min_ms,
            max_timestamp_ms=max_ms,
            record_count=count,
            sha256=sha256,
            crc64=crc64,
            min_timestamp_is_proven=flags & MIN_IS_PROVEN != 0,
            max_timestamp_is_proven=flags & MAX_IS_PROVEN != 0,
            headers_are_proven=flags & HEADERS_ARE_PROVEN != 0,
        )


def _check_chunks(chunks: Sequence[ChunkRow], footer: SegmentFooter) -> None:
    position, next_offset, record_count = 0, footer.base_offset, 0
    for row in chunks:
        if row.position != position or not row.length or not next_offset <= row.first_offset <= row.last_offset:
            raise CorruptObject(f"the chunk at position {row.position} does not follow the one before it")
        position += row.length
        next_offset = row.last_offset + 1
        record_count += row.record_count
    if (position, next_offset, record_count) != (footer.log_bytes, footer.end_offset, footer.record_count):
        raise CorruptObject("the chunk table does not add up to what the footer says")
    if root_over(row.sha256 for row in chunks) != footer.root_sha256:
        raise CorruptObject("the root hash of the footer is not that of the chunks")
