"""Batches with some of their records taken out, as compaction leaves them.

Owns how such batches look: the same offsets, the same producer, the same codec, fewer records; and a batch without
records in the place of a run of batches that went. Must never move a record to another offset, nor leave offsets that
no batch covers: a log's batches follow each other without a gap, whatever was removed.

Kafka leaves gaps where whole batches went. Here a run of them becomes one empty batch of 61 bytes (decision 0014).
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from fastcrc import crc32

from tiered.errors import CorruptBatch
from tiered.formats.compression import compress, decompress
from tiered.formats.record import MIN_RECORD_BYTES, append_varint, read_varint
from tiered.formats.record_batch import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    encode_batch,
    read_header,
)

__all__ = ["MAX_HOLE_OFFSETS", "RawRecord", "emptied", "filtered", "is_hole", "keyed_records", "the_hole", "trimmed"]

MAX_HOLE_OFFSETS: Final = 2**31 - 1
"""A batch's last offset is written relative to its base, in 31 bits."""

_AFTER_CRC = struct.Struct(">hiqqqhii")
_BEFORE_CRC = struct.Struct(">qiib")
_CRC = struct.Struct(">I")
_BEFORE_LENGTH_ENDS: Final = 12
_NO_TIMESTAMP: Final = -1
_MIN_MS: Final = -(2**63)


class RawRecord(NamedTuple):
    """One record of a decompressed body: what compaction has to know of it, and where its bytes are.

    A NamedTuple for its speed: one is made for every record that is looked at.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    has_value: bool
    start: int
    after_timestamp: int
    """Where what comes after the record's timestamp begins: its offset, key, value and headers."""
    end: int


def keyed_records(
    buffer: Buffer, position: int = 0, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> Iterator[RawRecord]:
    """The records of the batch at `position`, in order, without a look at their values and headers.

    Memory: the decompressed records. Raises CorruptBatch as `record_batch.records` does. The CRC is not checked.
    """
    header = read_header(buffer, position, len(buffer))
    return _raw_records(_body(buffer, position, header, max_decompressed_bytes), header)


def filtered(
    buffer: Buffer,
    position: int,
    keeps: Callable[[RawRecord], bool],
    *,
    delete_horizon_ms: int | None = None,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> bytes | None:
    """The batch at `position` with the records that `keeps` names; None when all of them stay and nothing changes. With
    no record left it is what `emptied` gives.

    `delete_horizon_ms` is written into it: until then its tombstones stay. What it had before stays otherwise. The
    greatest timestamp is that of the records that stay, or the append time. Memory: the decompressed records twice.
    Raises CorruptBatch.
    """
    header = read_header(buffer, position, len(buffer))
    body = _body(buffer, position, header, max_decompressed_bytes)
    attributes, base_timestamp_ms = header.attributes, header.base_timestamp_ms
    if delete_horizon_ms is not None:
        attributes, base_timestamp_ms = attributes | DELETE_HORIZON_BIT, delete_horizon_ms
    content = bytearray()
    # One record at a time: a batch of a hundred KB may unfold to millions of them, which would take gigabytes at once.
    kept_records, greatest_ms, run_start, run_end = 0, _MIN_MS, 0, 0
    for record in _raw_records(body, header):
        if not keeps(record):
            continue
        kept_records += 1
        greatest_ms = max(greatest_ms, record.timestamp_ms)
        if delete_horizon_ms is not None:
            _append_with_time(content, body, record, record.timestamp_ms - delete_horizon_ms)
            continue
        if record.start != run_end:
            content += body[run_start:run_end]
            run_start = record.start
        run_end = record.end
    if kept_records == header.record_count and delete_horizon_ms is None:
        return None
    if not kept_records:
        return emptied(header)
    content += body[run_start:run_end]
    return _batch(
        header,
        attributes=attributes,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms if header.is_log_append_time else greatest_ms,
        record_count=kept_records,
        content=compress(header.compression, content),
    )


def emptied(header: BatchHeader) -> bytes:
    """The batch without any record: it still tells its producer's sequence, its epoch and its offsets."""
    return _batch(
        header,
        # Nothing is compressed, and no record has a time to be found by.
        attributes=header.attributes & ~(0x0F | DELETE_HORIZON_BIT),
        base_timestamp_ms=_NO_TIMESTAMP,
        max_timestamp_ms=_NO_TIMESTAMP,
        record_count=0,
        content=b"",
    )


def the_hole(first_offset: int, last_offset: int, leader_epoch: int) -> bytes:
    """The empty batch that stands for all of these offsets, at most `MAX_HOLE_OFFSETS` + 1 of them."""
    assert 0 <= last_offset - first_offset <= MAX_HOLE_OFFSETS, (first_offset, last_offset)
    return encode_batch((), base_offset=first_offset, last_offset=last_offset, leader_epoch=leader_epoch)


def is_hole(header: BatchHeader) -> bool:
    """Whether nothing is in this batch but offsets: neither records nor a producer."""
    return header.record_count == 0 and header.producer_id < 0 and not header.is_control


def trimmed(header: BatchHeader, first_offset: int) -> bytes:
    """The part of a hole that begins at `first_offset`: for a log that has what comes before."""
    assert is_hole(header), header
    return the_hole(first_offset, header.last_offset, header.partition_leader_epoch)


def _batch(
    header: BatchHeader,
    *,
    attributes: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    record_count: int,
    content: bytes,
) -> bytes:
    covered = (
        _AFTER_CRC.pack(
            attributes,
            header.last_offset_delta,
            base_timestamp_ms,
            max_timestamp_ms,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            record_count,
        )
        + content
    )
    size_bytes = _BEFORE_CRC.size + _CRC.size + len(covered)
    before = _BEFORE_CRC.pack(
        header.base_offset, size_bytes - _BEFORE_LENGTH_ENDS, header.partition_leader_epoch, header.magic
    )
    assert size_bytes - len(content) == HEADER_BYTES
    return before + _CRC.pack(crc32.iscsi(covered)) + covered


def _body(buffer: Buffer, position: int, header: BatchHeader, max_decompressed_bytes: int) -> bytes:
    packed = memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes]
    body = decompress(header.compression, packed, max_bytes=max_decompressed_bytes)
    if not 0 <= header.record_count <= len(body) // MIN_RECORD_BYTES:
        raise CorruptBatch(f"{header.record_count} records do not fit into {len(body)} bytes")
    return body


def _raw_records(body: bytes, header: BatchHeader) -> Iterator[RawRecord]:
    log_append_time_ms = header.max_timestamp_ms if header.is_log_append_time else None
    at, last_delta = 0, -1
    for _ in range(header.record_count):
        start = at
        try:
            length, at = read_varint(body, at)
            end = at + length
            if length < 0 or end > len(body):
                raise CorruptBatch(f"a record claims {length} bytes, {len(body) - at} are left")
            timestamp_delta, after_timestamp = read_varint(body, at + 1)
            delta, at = read_varint(body, after_timestamp)
            key_bytes, at = read_varint(body, at)
            key = None
            if key_bytes >= 0:
                key = body[at : at + key_bytes]
                at += key_bytes
            value_bytes, at = read_varint(body, at)
        except IndexError:
            raise CorruptBatch("a record goes beyond the end of its batch") from None
        if at + max(value_bytes, 0) > end or min(key_bytes, value_bytes) < -1:
            raise CorruptBatch("a record's key or value goes beyond its end")
        if not last_delta < delta <= header.last_offset_delta:
            raise CorruptBatch(f"offset delta {delta} after {last_delta}, in a batch of {header.last_offset_delta}")
        last_delta, at = delta, end
        yield RawRecord(
            header.base_offset + delta,
            header.base_timestamp_ms + timestamp_delta if log_append_time_ms is None else log_append_time_ms,
            key,
            value_bytes >= 0,
            start,
            after_timestamp,
            end,
        )
    if at != len(body):
        raise CorruptBatch(f"{len(body) - at} bytes follow the last of {header.record_count} records")


def _append_with_time(content: bytearray, body: bytes, record: RawRecord, timestamp_delta_ms: int) -> None:
    """The record as it is, with another time relative to its batch's."""
    time = bytearray(b"\0")
    append_varint(time, timestamp_delta_ms)
    append_varint(content, len(time) + record.end - record.after_timestamp)
    content += time
    content += body[record.after_timestamp : record.end]
