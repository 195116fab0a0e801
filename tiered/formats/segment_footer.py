"""The end of a segment object: its footer and trailer, which say what the object is and where its sections lie.

Owns the bytes of both; the layout of the whole object, and how it may change, stands in `segment_object`.
Must never believe a size or a position that the object's own size contradicts.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol
from uuid import UUID

from fastcrc import crc32

from tiered.errors import CorruptObject, UnknownFormat
from tiered.ids import is_legal_topic_name

FORMAT_VERSION: Final = 1
TAIL_GUESS_BYTES: Final = 64 * 1024
"""What one GET for an object's end asks for: whole tails of segments up to about 650 chunks."""
TRAILER_BYTES: Final = 16
TRAILER_MAGIC: Final = b"TIERED01"
MAX_TAIL_BYTES: Final = 256 << 20
"""A tail that claims more is refused before anything is fetched or allocated for it."""
MAX_FOOTER_BYTES: Final = 64 * 1024
CHUNK_ROW_BYTES: Final = 88
CHUNK_CRC_BYTES: Final = 8
ABORTED_ROW_BYTES: Final = 32

_TRAILER = struct.Struct(">II8s")
_FOOTER = struct.Struct(">HH16sIqqqqQQQ32s32sH")
_SECTION = struct.Struct(">HHQQI")
_EPOCH = struct.Struct(">iq")
_U16 = struct.Struct(">H")
MIN_IS_PROVEN: Final = 1
MAX_IS_PROVEN: Final = 2
HEADERS_ARE_PROVEN: Final = 4
_crc32c = crc32.iscsi

Buffer = bytes | bytearray | memoryview


class SectionKind(IntEnum):
    """The kind of a section."""

    CHUNK_TABLE = 1
    LEADER_EPOCHS = 2
    ABORTED_TRANSACTIONS = 3
    PRODUCER_SNAPSHOT = 4
    CHUNK_CRCS = 5


_ROW_BYTES: Final[dict[int, int]] = {
    SectionKind.CHUNK_TABLE: CHUNK_ROW_BYTES,
    SectionKind.LEADER_EPOCHS: _EPOCH.size,
    SectionKind.ABORTED_TRANSACTIONS: ABORTED_ROW_BYTES,
    SectionKind.CHUNK_CRCS: CHUNK_CRC_BYTES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Where a section lies in the object, and its CRC-32C. `kind` may be one that this version does not know."""

    kind: int
    position: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFooter:
    """An object's description of itself. `end_offset` is exclusive; hashes are 32 bytes.

    The timestamps, and what is proven of them, mean what they mean in `ChunkRow`.
    """

    format_version: int
    cluster_id: str
    topic_id: UUID
    topic: str
    partition: int
    base_offset: int
    end_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    min_timestamp_ms: int
    max_timestamp_ms: int
    min_timestamp_is_proven: bool = False
    max_timestamp_is_proven: bool = False
    headers_are_proven: bool = False
    record_count: int
    batch_count: int
    log_bytes: int
    sections: tuple[Section, ...]
    root_sha256: bytes
    previous_root_sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedMore:
    """The bytes at hand are too few: read the last `tail_bytes` bytes of the object and ask again."""

    tail_bytes: int


class _Proven(Protocol):
    @property
    def min_timestamp_is_proven(self) -> bool: ...

    @property
    def max_timestamp_is_proven(self) -> bool: ...

    @property
    def headers_are_proven(self) -> bool: ...


def flags_of(row: _Proven) -> int:
    """What is proven of a chunk's or a segment's times, as its flags have it."""
    return (
        (MIN_IS_PROVEN if row.min_timestamp_is_proven else 0)
        | (MAX_IS_PROVEN if row.max_timestamp_is_proven else 0)
        | (HEADERS_ARE_PROVEN if row.headers_are_proven else 0)
    )


def encode_end(footer: SegmentFooter) -> bytes:
    """Footer and trailer. `leader_epochs` is not part of them: it is a section, see `encode_leader_epochs`."""
    assert len(footer.root_sha256) == len(footer.previous_root_sha256) == 32
    content = b"".join(
        (
            _FOOTER.pack(
                footer.format_version,
                flags_of(footer),
                footer.topic_id.bytes,
                footer.partition,
                footer.base_offset,
                footer.end_offset,
                footer.min_timestamp_ms,
                footer.max_timestamp_ms,
                footer.record_count,
                footer.batch_count,
                footer.log_bytes,
                footer.root_sha256,
                footer.previous_root_sha256,
                len(footer.sections),
            ),
            *(_SECTION.pack(each.kind, 0, each.position, each.length, each.crc) for each in footer.sections),
            _pack_text(footer.cluster_id),
            _pack_text(footer.topic),
        )
    )
    return content + _TRAILER.pack(len(content), _crc32c(content), TRAILER_MAGIC)


def encode_leader_epochs(entries: Sequence[tuple[int, int]]) -> bytes:
    """The section of entries `(leader_epoch, start_offset)`."""
    return b"".join(_EPOCH.pack(*entry) for entry in entries)


def _pack_text(text: str) -> bytes:
    encoded = text.encode("utf-8")
    return _U16.pack(len(encoded)) + encoded


def read_footer(tail: Buffer, object_bytes: int) -> SegmentFooter | NeedMore:
    """The footer, from the last `len(tail)` bytes of an object of `object_bytes`; usually `TAIL_GUESS_BYTES`.

    NeedMore when these do not reach back to the epochs. The whole tail, which `read_tail` wants, is the last
    `object_bytes - footer.log_bytes` bytes. Raises CorruptObject when this is no end of a segment object, or
    one of a version that is not known here. Checks the CRCs of the footer and of the epochs.
    """
    view = memoryview(tail)
    if len(view) > object_bytes:
        raise CorruptObject(f"{len(view)} bytes were read of an object of {object_bytes}")
    if object_bytes < TRAILER_BYTES:
        raise CorruptObject(f"an object of {object_bytes} bytes is no segment")
    if len(view) < TRAILER_BYTES:
        return NeedMore(tail_bytes=min(object_bytes, TAIL_GUESS_BYTES))
    footer_bytes, footer_crc, magic = _TRAILER.unpack_from(view, len(view) - TRAILER_BYTES)
    if magic != TRAILER_MAGIC:
        raise CorruptObject(f"the object ends with {magic!r}, not with {TRAILER_MAGIC!r}: it is cut off or no segment")
    end_bytes = footer_bytes + TRAILER_BYTES
    if not _FOOTER.size <= footer_bytes <= MAX_FOOTER_BYTES or end_bytes > object_bytes:
        raise CorruptObject(f"the trailer of an object of {object_bytes} bytes claims a footer of {footer_bytes}")
    if end_bytes > len(view):
        return NeedMore(tail_bytes=end_bytes)
    content = view[len(view) - end_bytes : len(view) - TRAILER_BYTES]
    if _crc32c(content) != footer_crc:
        raise CorruptObject("the footer's CRC is wrong")
    try:
        return _parse_footer(content, view, object_bytes)
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptObject(f"the footer is malformed: {error}") from None


def _parse_footer(content: memoryview, view: memoryview, object_bytes: int) -> SegmentFooter | NeedMore:
    """Raises struct.error and UnicodeDecodeError besides CorruptObject."""
    (version,) = _U16.unpack_from(content)
    if version != FORMAT_VERSION:
        raise UnknownFormat(f"the object has format version {version}, this reader knows {FORMAT_VERSION}: upgrade it")
    (
        _,
        flags,
        topic_id,
        partition,
        base_offset,
        end_offset,
        min_timestamp_ms,
        max_timestamp_ms,
        record_count,
        batch_count,
        log_bytes,
        root,
        previous_root,
        section_count,
    ) = _FOOTER.unpack_from(content)
    at = _FOOTER.size + section_count * _SECTION.size
    sections = tuple(
        Section(kind=kind, position=position, length=length, crc=crc)
        for kind, _, position, length, crc in _SECTION.iter_unpack(content[_FOOTER.size : at])
    )
    cluster_id, at = _read_text(content, at)
    topic, at = _read_text(content, at)
    sections_end = object_bytes - len(content) - TRAILER_BYTES
    if len(sections) != section_count or at != len(content) or not is_legal_topic_name(topic):
        raise CorruptObject("the footer does not have the fields that its version has")
    if not 0 <= base_offset < end_offset or not log_bytes or not _tile(sections, log_bytes, sections_end):
        raise CorruptObject("the footer contradicts itself or the size of the object")
    epochs = _section(sections, SectionKind.LEADER_EPOCHS)
    if object_bytes - epochs.position > len(view):
        return NeedMore(tail_bytes=object_bytes - epochs.position)
    rows = _EPOCH.iter_unpack(section_content(epochs, view, object_bytes))
    return SegmentFooter(
        format_version=version,
        cluster_id=cluster_id,
        topic_id=UUID(bytes=topic_id),
        topic=topic,
        partition=partition,
        base_offset=base_offset,
        end_offset=end_offset,
        leader_epochs=tuple((epoch, start_offset) for epoch, start_offset in rows),
        min_timestamp_ms=min_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        min_timestamp_is_proven=flags & MIN_IS_PROVEN != 0,
        max_timestamp_is_proven=flags & MAX_IS_PROVEN != 0,
        headers_are_proven=flags & HEADERS_ARE_PROVEN != 0,
        record_count=record_count,
        batch_count=batch_count,
        log_bytes=log_bytes,
        sections=sections,
        root_sha256=root,
        previous_root_sha256=previous_root,
    )


def _read_text(content: memoryview, at: int) -> tuple[str, int]:
    (length,) = _U16.unpack_from(content, at)
    at += _U16.size
    if length > len(content) - at:
        raise CorruptObject(f"a text of the footer claims {length} bytes, {len(content) - at} are left")
    return str(content[at : at + length], "utf-8"), at + length


def _tile(sections: Sequence[Section], start: int, end: int) -> bool:
    """True when the sections fill `start` to `end` without a gap, and each known kind is there once, but for
    CHUNK_CRCS, which objects from before decision 0025 do not have."""
    if end - start > MAX_TAIL_BYTES:
        return False
    for section in sections:
        if section.position != start:
            return False
        start += section.length
    kinds = [section.kind for section in sections]
    known = [kind for kind in SectionKind if kind != SectionKind.CHUNK_CRCS or kind in kinds]
    return start == end and all(kinds.count(kind) == 1 for kind in known)


def _section(sections: Sequence[Section], kind: SectionKind) -> Section:
    return next(section for section in sections if section.kind == kind)


def section_content(section: Section, view: memoryview, object_bytes: int) -> memoryview:
    """The section's bytes out of the object's last ones, after its CRC was checked."""
    start = section.position - (object_bytes - len(view))
    content = view[start : start + section.length]
    if _crc32c(content) != section.crc:
        raise CorruptObject(f"the CRC of the tail's section {section.kind} is wrong")
    if section.length % _ROW_BYTES.get(section.kind, 1):
        raise CorruptObject(f"the tail's section {section.kind} of {section.length} bytes has half a row")
    return content
