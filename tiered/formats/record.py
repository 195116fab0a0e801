"""Single records within a batch: varints, keys, values, headers.

Owns the layout of one record; `record_batch` owns what surrounds it. Must never read beyond the batch or
believe a length that its surroundings cannot hold.

    length varint | attributes i8 (unused) | timestamp delta varint | offset delta varint
    | key length varint (-1: null) | key | value length varint (-1: null) | value
    | number of headers varint | headers (key length varint | key | value length varint (-1: null) | value)

Varints are zigzag encoded, of 64 bits at most.
"""

from dataclasses import dataclass
from typing import Final

from tiered.errors import CorruptBatch

MIN_RECORD_BYTES: Final = 7
_MAX_VARINT_BYTES: Final = 10
_MIN_TIMESTAMP_MS: Final = -(2**63)
_MAX_TIMESTAMP_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record. A header key that is not UTF-8 keeps its bytes as surrogate escapes (PEP 383)."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_record(
    body: bytes, at: int, base_offset: int, base_timestamp_ms: int, log_append_time_ms: int | None
) -> tuple[Record, int]:
    """The record at `at` of decompressed records, and where the next begins.

    Its time is `log_append_time_ms` where there is one, whatever the record says. Raises CorruptBatch when its
    lengths contradict each other, IndexError when it goes beyond the end.
    """
    length, at = read_varint(body, at)
    end = at + length
    if length < 0 or end > len(body):
        raise CorruptBatch(f"a record claims {length} bytes, {len(body) - at} are left")
    at += 1  # The record's attributes: all bits are unused.
    timestamp_delta, at = read_varint(body, at)
    offset_delta, at = read_varint(body, at)
    key, at = _read_nullable(body, at, end)
    value, at = _read_nullable(body, at, end)
    header_count, at = read_varint(body, at)
    # A header has two varints at least.
    if not 0 <= header_count <= (end - at) // 2:
        raise CorruptBatch(f"{header_count} headers do not fit into {end - at} bytes")
    record_headers: tuple[tuple[str, bytes | None], ...] = ()
    if header_count:
        found = []
        for _ in range(header_count):
            name, at = _read_nullable(body, at, end)
            if name is None:
                raise CorruptBatch("a record header has no key")
            content, at = _read_nullable(body, at, end)
            found.append((name.decode("utf-8", "surrogateescape"), content))
        record_headers = tuple(found)
    if at != end:
        raise CorruptBatch(f"a record ends {end - at} bytes before its length says")
    timestamp_ms = base_timestamp_ms + timestamp_delta if log_append_time_ms is None else log_append_time_ms
    if not _MIN_TIMESTAMP_MS <= timestamp_ms <= _MAX_TIMESTAMP_MS:
        raise CorruptBatch(f"timestamp delta {timestamp_delta} leaves 64 bits")
    record = Record(
        offset=base_offset + offset_delta,
        timestamp_ms=timestamp_ms,
        key=key,
        value=value,
        headers=record_headers,
    )
    return record, at


def _read_nullable(body: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(body, at)
    if length < 0:
        if length == -1:
            return None, at
        raise CorruptBatch(f"a length of {length}")
    if length > end - at:
        raise CorruptBatch(f"a field claims {length} bytes, {max(end - at, 0)} are left")
    return body[at : at + length], at + length


def read_varint(body: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits and where it ends. Raises IndexError past the end."""
    byte = body[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value = byte & 0x7F
    shift = 7
    for next_at in range(at + 1, at + _MAX_VARINT_BYTES):
        byte = body[next_at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), next_at + 1
        shift += 7
    raise CorruptBatch("a varint has more than 64 bits")


def append_record(body: bytearray, record: Record, offset_delta: int, timestamp_delta_ms: int) -> None:
    """Adds the record to the end of `body`, with its offset and time relative to the batch's."""
    content = bytearray(b"\0")
    append_varint(content, timestamp_delta_ms)
    append_varint(content, offset_delta)
    _append_nullable(content, record.key)
    _append_nullable(content, record.value)
    append_varint(content, len(record.headers))
    for name, value in record.headers:
        _append_nullable(content, name.encode("utf-8", "surrogateescape"))
        _append_nullable(content, value)
    append_varint(body, len(content))
    body += content


def _append_nullable(body: bytearray, content: bytes | None) -> None:
    if content is None:
        body.append(1)  # Zigzag of -1.
    else:
        append_varint(body, len(content))
        body += content


def append_varint(body: bytearray, value: int) -> None:
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag >= 0x80:
        body.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    body.append(zigzag)
