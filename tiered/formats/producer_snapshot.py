"""A partition's state of its idempotent producers, at one offset, as bytes.

Owns the value types and the snapshot's layout (decision 0001, golden file `producer_snapshot.v1.bin`). Must
never decide anything about a sequence: `rules.partition.producer_state` does.

Layout, version 1 (big-endian):

    magic 4 bytes "TPS" and 0x01 (the version) | count u32 | entries | CRC-32C u32 of everything before it
    entry := producer id i64 | producer epoch i16 | coordinator epoch i32
             | current transaction's first offset i64 (-1: none) | number of batches u8 (0 to 5) | batches
    batch := base sequence i32 | last sequence i32 | base offset i64 | last offset i64 | timestamp i64

Migration: a snapshot of another version is refused (CorruptFile). In a local log the caller then deletes it
and rebuilds from the batches; in a segment object, versions are kept readable for as long as objects live.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from fastcrc import crc32

from tiered.errors import CorruptFile

MAX_BATCHES: Final = 5
"""Duplicates are recognised among this many of a producer's last batches, as in Kafka."""

_MAGIC: Final = b"TPS\x01"
_COUNT = struct.Struct(">I")
_CRC = struct.Struct(">I")
_ENTRY = struct.Struct(">qhiqB")
_BATCH = struct.Struct(">iiqqq")
_NO_TRANSACTION: Final = -1
_BEFORE_ENTRIES: Final = len(_MAGIC) + _COUNT.size


class ProducerBatch(NamedTuple):
    """One of the last batches of a producer: enough to answer its duplicate with the first copy's offsets.

    A NamedTuple, as is its producer's state: both are made for every batch.
    """

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerEntry(NamedTuple):
    """One producer's state: its epoch, its last batches (oldest first, at most five), its open transaction."""

    producer_id: int
    producer_epoch: int
    batches: tuple[ProducerBatch, ...] = ()
    current_transaction_first_offset: int | None = None
    coordinator_epoch: int = -1


def encode_producers(entries: Iterable[ProducerEntry]) -> bytes:
    """The snapshot of these producers, in order of their ids, so that equal states give equal bytes."""
    ordered = sorted(entries, key=lambda entry: entry.producer_id)
    parts = [_MAGIC, _COUNT.pack(len(ordered))]
    for entry in ordered:
        assert len(entry.batches) <= MAX_BATCHES
        first_offset = entry.current_transaction_first_offset
        parts.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.producer_epoch,
                entry.coordinator_epoch,
                _NO_TRANSACTION if first_offset is None else first_offset,
                len(entry.batches),
            )
        )
        parts.extend(
            _BATCH.pack(each.base_sequence, each.last_sequence, each.base_offset, each.last_offset, each.timestamp_ms)
            for each in entry.batches
        )
    body = b"".join(parts)
    return body + _CRC.pack(crc32.iscsi(body))


def decode_producers(data: bytes | bytearray | memoryview) -> tuple[ProducerEntry, ...]:
    """The producers of a snapshot, in order of their ids.

    Raises CorruptFile when the bytes are not exactly a snapshot of version 1; memory follows from `data`.
    """
    view = memoryview(data)
    if len(view) < _BEFORE_ENTRIES + _CRC.size:
        raise CorruptFile(f"a producer snapshot of {len(view)} bytes is too short")
    if bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise CorruptFile(f"a producer snapshot begins with {bytes(view[: len(_MAGIC)])!r}, not {_MAGIC!r}")
    end = len(view) - _CRC.size
    (stored,) = _CRC.unpack_from(view, end)
    if crc32.iscsi(view[:end]) != stored:
        raise CorruptFile("a producer snapshot's CRC is wrong")
    (count,) = _COUNT.unpack_from(view, len(_MAGIC))
    if count > (end - _BEFORE_ENTRIES) // _ENTRY.size:
        raise CorruptFile(f"{count} producers do not fit into a snapshot of {len(view)} bytes")
    at = _BEFORE_ENTRIES
    entries: list[ProducerEntry] = []
    for _ in range(count):
        entry, at = _decode_entry(view, at, end)
        if entries and entry.producer_id <= entries[-1].producer_id:
            raise CorruptFile("the producers of a snapshot are not in the order of their ids")
        entries.append(entry)
    if at != end:
        raise CorruptFile(f"{end - at} bytes follow the last producer of a snapshot")
    return tuple(entries)


def _decode_entry(view: memoryview, at: int, end: int) -> tuple[ProducerEntry, int]:
    if end - at < _ENTRY.size:
        raise CorruptFile("a producer snapshot ends within a producer")
    producer_id, producer_epoch, coordinator_epoch, first_offset, batch_count = _ENTRY.unpack_from(view, at)
    at += _ENTRY.size
    if batch_count > MAX_BATCHES or batch_count * _BATCH.size > end - at:
        raise CorruptFile(f"a producer of a snapshot claims {batch_count} batches")
    batches = []
    for _ in range(batch_count):
        base_sequence, last_sequence, base_offset, last_offset, timestamp_ms = _BATCH.unpack_from(view, at)
        at += _BATCH.size
        batches.append(
            ProducerBatch(
                base_sequence=base_sequence,
                last_sequence=last_sequence,
                base_offset=base_offset,
                last_offset=last_offset,
                timestamp_ms=timestamp_ms,
            )
        )
    entry = ProducerEntry(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        batches=tuple(batches),
        current_transaction_first_offset=None if first_offset == _NO_TRANSACTION else first_offset,
        coordinator_epoch=coordinator_epoch,
    )
    return entry, at
