"""The look at every record of a produced batch, once, on its way in.

Owns what a batch must be before anything behind it may rest on its header: size, CRC, counts, offsets, lengths, times,
keys. The native kernel does it in one call; the functions here are its twin where there is no compiler, and both give
the same verdict on the same bytes. Must never repair anything, nor know a topic or a partition.
"""

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from tiered.errors import CorruptBatch
from tiered.formats import native
from tiered.formats.compression import decompressed, verify_lz4_frame
from tiered.formats.record import MIN_RECORD_BYTES, read_varint
from tiered.formats.record_batch import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    Compression,
    header_at,
    stamp_max_timestamp,
    verify_crc,
)

__all__ = [
    "BatchLimits",
    "Examiner",
    "NativeExaminer",
    "PureExaminer",
    "Reason",
    "RefusedBatch",
    "RefusedRecord",
    "conclude",
    "validate",
]

Buffer = bytearray | memoryview
"""Writable."""

MAX_REFUSED_RECORDS: Final = 10_000
"""How many records of one batch are named: a compressed batch may have millions that are refused."""

_CODEC: Final = 0x07
_NO_TIMESTAMP: Final = -1
_INT32: Final = range(-(2**31), 2**31)
_MAX_INT32_BYTES: Final = 5
_MIN_MS: Final = -(2**63)
_MAX_INT64: Final = 2**63 - 1
_MAX_MS: Final = _MAX_INT64
_LIMITS = struct.Struct("=5q")
_VERDICT = struct.Struct("=16q")
"""As `tiered_verdict` in _decode.c: the header's fields, the greatest time, the record's place, records refused."""
_HEADER_FIELDS: Final = len(BatchHeader._fields)
_HEADER = struct.Struct(f"={_HEADER_FIELDS}q")
_unpack_header = _HEADER.unpack_from
_REFUSED_RECORD = struct.Struct("=3q")
_WITHOUT_HEADER: Final = (1, 2)
_new = tuple.__new__


class Reason(IntEnum):
    """Why a batch is refused, in the order in which it is examined. `_decode.c` has the same numbers."""

    SHORT = 1
    """Fewer bytes than a header."""
    MAGIC = 2
    """An older record format, or none."""
    SIZE = 3
    """The header's length is not that of the bytes."""
    TOO_LARGE = 4
    CRC = 5
    BASE_OFFSET = 6
    """Not 0: the broker gives offsets."""
    CONTROL = 7
    """Only brokers write control batches."""
    DELETE_HORIZON = 8
    """Only compaction says until when tombstones stay."""
    TIMESTAMP_TYPE = 9
    """Only brokers say that a time is that of the append."""
    COUNT = 10
    """No records, or the record count contradicts the last offset delta."""
    CODEC = 11
    TRANSACTION = 12
    """Transactional without a producer id."""
    SEQUENCE = 13
    """A producer id without an epoch or a sequence."""
    COMPRESSION = 14
    """The compressed bytes are not wholly one stream of their codec, or hold more than allowed."""
    FEW_RECORDS = 15
    """Fewer records than the header counts."""
    MANY_BYTES = 16
    """Bytes behind the last record."""
    RECORD = 17
    """A record's lengths, headers or time contradict its bytes."""
    LARGE_RECORD = 18
    """A record of a compressed batch is larger than the topic allows."""
    OFFSET = 19
    """The offset deltas do not count from 0 upwards by one."""
    RECORDS = 20
    """Records without a key, or with times outside the bounds: the others could be sent without them."""


class RefusedRecord(NamedTuple):
    """A record that is refused for its own sake. `record` is its place in the batch, counted from 0."""

    record: int
    has_no_key: bool
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedBatch:
    """`record` is the place of the record at which the look ended. `refused_records` counts those of `Reason.RECORDS`;
    `records` names the first `MAX_REFUSED_RECORDS` of them."""

    reason: Reason
    header: BatchHeader | None = None
    record: int = 0
    refused_records: int = 0
    records: tuple[RefusedRecord, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """What one topic allows. A record's time may lie `before_max_ms` before now and `after_max_ms` after it."""

    max_message_bytes: int
    max_plain_record_bytes: int = _MAX_INT64
    """Bounds one record of a compressed batch when it is decompressed."""
    max_plain_bytes: int
    """Bounds the records of a compressed batch when they are decompressed."""
    before_max_ms: int = _MAX_MS
    after_max_ms: int = _MAX_MS
    needs_keys: bool = False
    sets_time: bool = False
    """The broker's time replaces that of the records, whatever they say."""
    packed: bytes = field(init=False, repr=False, compare=False)
    """The same for the kernel, as `tiered_limits` in _decode.c has it."""

    def __post_init__(self) -> None:
        flags = self.needs_keys | self.sets_time << 1
        packed = _LIMITS.pack(
            self.max_message_bytes, self.max_plain_record_bytes, self.before_max_ms, self.after_max_ms, flags
        )
        object.__setattr__(self, "packed", packed)


class BatchVerdict(NamedTuple):
    """What an examiner says where that is more than "valid"."""

    reason: int
    """Of `Reason`, or one of the three below."""
    header: BatchHeader | None = None
    """None where the bytes are too few for one."""
    greatest_timestamp_ms: int = _NO_TIMESTAMP
    """Of the records; -1 when none has a time, or one of them ended the look."""
    record: int = 0
    """The place of the record where the look ended."""
    refused_records: int = 0
    """How many are refused for their own sake."""


_VALID: Final = 0
_VALID_WITH_OTHER_TIME: Final = -1
"""The header's maximum timestamp is not that of the records."""
_VALID_SO_FAR: Final = -2
"""The records are compressed: they have not been examined."""


class Examiner(Protocol):
    """Reads every byte of a batch that has a meaning. Both implementations give the same verdicts."""

    def examine(
        self, buffer: Buffer, position: int, end: int, limits: BatchLimits, now_ms: int
    ) -> BatchHeader | BatchVerdict:
        """The header of a batch that is right as it is; or the verdict on its header, its CRC and, unless they are
        compressed, its records."""

    def examine_records(
        self, body: Buffer, header: BatchHeader, limits: BatchLimits, now_ms: int, named: list[RefusedRecord] | None
    ) -> BatchVerdict:
        """The verdict on decompressed records. Up to `MAX_REFUSED_RECORDS` of the refused are added to `named`."""


def validate(
    examiner: Examiner,
    buffer: Buffer,
    position: int,
    end: int,
    limits: BatchLimits,
    now_ms: int,
    *,
    max_plain_bytes: int | None = None,
    scratch: bytearray | None = None,
) -> BatchHeader | RefusedBatch | None:
    """The header of the one batch in `buffer[position:end]`, which is right in every record; or why it is refused.

    None when its records decompress to more than `max_plain_bytes` while the topic allows more: too much work for
    the caller's thread. Where the header's maximum timestamp is not that of the records, the right one is written into
    the buffer, as Kafka does, with its CRC. The buffer must be writable. Memory: `scratch`, where that is
    enough; else the decompressed records, at most `limits.max_plain_bytes`.
    """
    verdict = examiner.examine(buffer, position, end, limits, now_ms)
    if isinstance(verdict, BatchVerdict):
        return conclude(
            examiner, verdict, buffer, position, end, limits, now_ms, max_plain_bytes=max_plain_bytes, scratch=scratch
        )
    return verdict


def conclude(
    examiner: Examiner,
    verdict: BatchVerdict,
    buffer: Buffer,
    position: int,
    end: int,
    limits: BatchLimits,
    now_ms: int,
    *,
    max_plain_bytes: int | None,
    scratch: bytearray | None,
) -> BatchHeader | RefusedBatch | None:
    """The rest of `validate`, where `examiner` gave a verdict: decompresses, writes the right maximum timestamp, or
    says why the batch is refused."""
    if verdict.reason != _VALID_SO_FAR:
        return _settled(
            examiner, verdict, buffer, position, memoryview(buffer)[position + HEADER_BYTES : end], limits, now_ms
        )
    header = verdict.header
    assert header is not None
    bound = limits.max_plain_bytes
    if max_plain_bytes is not None and max_plain_bytes < bound:
        bound = max_plain_bytes
    payload = memoryview(buffer)[position + HEADER_BYTES : end]
    try:
        if header.compression == Compression.LZ4:
            verify_lz4_frame(payload)
        with decompressed(header.compression, payload, max_bytes=bound, scratch=scratch) as body:
            verdict = examiner.examine_records(body, header, limits, now_ms, None)
            return _settled(examiner, verdict, buffer, position, body, limits, now_ms)
    except CorruptBatch as error:
        if bound < limits.max_plain_bytes:
            return None
        return RefusedBatch(reason=Reason.COMPRESSION, header=header, detail=str(error))


def _settled(
    examiner: Examiner,
    verdict: BatchVerdict,
    buffer: Buffer,
    position: int,
    body: Buffer,
    limits: BatchLimits,
    now_ms: int,
) -> BatchHeader | RefusedBatch:
    reason, header, greatest_timestamp_ms, record, refused_records = verdict
    if reason <= 0:
        assert header is not None
        if reason == _VALID:
            return header
        return stamp_max_timestamp(buffer, position, header, greatest_timestamp_ms)
    named: list[RefusedRecord] = []
    if reason == Reason.RECORDS:
        assert header is not None
        examiner.examine_records(body, header, limits, now_ms, named)
    return RefusedBatch(
        reason=Reason(reason), header=header, record=record, refused_records=refused_records, records=tuple(named)
    )


class NativeExaminer:
    """The kernel's verdicts. One for each thread: the kernel writes into memory of its own."""

    def __init__(self, kernel: native.Kernel) -> None:
        self._validate = kernel.validate
        self._validate_records = kernel.validate_records
        self._memory = bytearray(_VERDICT.size)
        self._address = native.address_of(self._memory)

    def examine(
        self, buffer: Buffer, position: int, end: int, limits: BatchLimits, now_ms: int
    ) -> BatchHeader | BatchVerdict:
        reason = self._validate(buffer, position, end - position, now_ms, limits.packed, self._address)
        if reason == _VALID:
            return _new(BatchHeader, _unpack_header(self._memory))
        return BatchVerdict(reason) if reason in _WITHOUT_HEADER else self._verdict(reason)

    def examine_records(
        self, body: Buffer, header: BatchHeader, limits: BatchLimits, now_ms: int, named: list[RefusedRecord] | None
    ) -> BatchVerdict:
        _HEADER.pack_into(self._memory, 0, *header)
        refused = bytearray(0 if named is None else MAX_REFUSED_RECORDS * _REFUSED_RECORD.size)
        reason = self._validate_records(body, now_ms, limits.packed, self._address, refused)
        verdict = self._verdict(reason)
        if named is not None:
            rows = refused[: verdict.refused_records * _REFUSED_RECORD.size]
            for record, has_no_key, timestamp_ms in _REFUSED_RECORD.iter_unpack(rows):
                named.append(RefusedRecord(record, bool(has_no_key), timestamp_ms))
        return verdict

    def _verdict(self, reason: int) -> BatchVerdict:
        fields = _VERDICT.unpack(self._memory)
        return BatchVerdict(reason, BatchHeader(*fields[:_HEADER_FIELDS]), *fields[_HEADER_FIELDS:])


class PureExaminer:
    """The same verdicts without the kernel, some hundred times slower."""

    def examine(
        self, buffer: Buffer, position: int, end: int, limits: BatchLimits, now_ms: int
    ) -> BatchHeader | BatchVerdict:
        length = end - position
        if length < HEADER_BYTES:
            is_old = length > MAGIC_POSITION and buffer[position + MAGIC_POSITION] != MAGIC
            return BatchVerdict(Reason.MAGIC if is_old else Reason.SHORT)
        if buffer[position + MAGIC_POSITION] != MAGIC:
            return BatchVerdict(Reason.MAGIC)
        header = header_at(buffer, position)
        reason = _refusal_of_header(header, buffer, position, length, limits)
        if reason or header.compression:
            return BatchVerdict(reason or _VALID_SO_FAR, header)
        body = memoryview(buffer)[position + HEADER_BYTES : end]
        verdict = self.examine_records(body, header, limits, now_ms, None)
        return header if verdict.reason == _VALID else verdict

    def examine_records(
        self, body: Buffer, header: BatchHeader, limits: BatchLimits, now_ms: int, named: list[RefusedRecord] | None
    ) -> BatchVerdict:
        earliest_ms = max(now_ms - limits.before_max_ms, _MIN_MS)
        latest_ms = min(now_ms + limits.after_max_ms, _MAX_MS)
        max_record_bytes = limits.max_plain_record_bytes if header.compression else _MAX_INT64
        at, greatest_ms, refused_records = 0, _NO_TIMESTAMP, 0
        for record in range(header.record_count):
            if at == len(body):
                return BatchVerdict(Reason.FEW_RECORDS, header, _NO_TIMESTAMP, record, refused_records)
            try:
                length, start = _record_length(body, at)
                if length > max_record_bytes:
                    return BatchVerdict(Reason.LARGE_RECORD, header, _NO_TIMESTAMP, record, refused_records)
                at = start + length
                timestamp_ms, offset_delta, has_no_key = _read_record(body[start:at], header.base_timestamp_ms)
            except (IndexError, CorruptBatch):
                return BatchVerdict(Reason.RECORD, header, _NO_TIMESTAMP, record, refused_records)
            if offset_delta != record:
                return BatchVerdict(Reason.OFFSET, header, _NO_TIMESTAMP, record, refused_records)
            greatest_ms = max(greatest_ms, timestamp_ms)
            has_no_key = has_no_key and limits.needs_keys
            is_in_time = limits.sets_time or timestamp_ms == _NO_TIMESTAMP or earliest_ms <= timestamp_ms <= latest_ms
            if has_no_key or not is_in_time:
                refused_records += 1
                if named is not None and refused_records <= MAX_REFUSED_RECORDS:
                    named.append(RefusedRecord(record, has_no_key, timestamp_ms))
        if at != len(body):
            return BatchVerdict(Reason.MANY_BYTES, header, _NO_TIMESTAMP, header.record_count, refused_records)
        if refused_records:
            return BatchVerdict(Reason.RECORDS, header, greatest_ms, header.record_count, refused_records)
        is_right = limits.sets_time or greatest_ms == header.max_timestamp_ms
        return BatchVerdict(_VALID if is_right else _VALID_WITH_OTHER_TIME, header, greatest_ms, header.record_count)


def _refusal_of_header(header: BatchHeader, buffer: Buffer, position: int, length: int, limits: BatchLimits) -> int:
    if header.size_bytes != length:
        return Reason.SIZE
    if length > limits.max_message_bytes:
        return Reason.TOO_LARGE
    try:
        verify_crc(buffer, position, length)
    except CorruptBatch:
        return Reason.CRC
    if header.base_offset:
        return Reason.BASE_OFFSET
    if header.is_control:
        return Reason.CONTROL
    if header.delete_horizon_ms is not None:
        return Reason.DELETE_HORIZON
    if header.is_log_append_time:
        return Reason.TIMESTAMP_TYPE
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        return Reason.COUNT
    if header.compression > Compression.ZSTD:
        return Reason.CODEC
    if header.producer_id < 0:
        return Reason.TRANSACTION if header.is_transactional else 0
    return Reason.SEQUENCE if header.base_sequence < 0 or header.producer_epoch < 0 else 0


def _record_length(body: Buffer, at: int) -> tuple[int, int]:
    """(a record's length, where it is counted from). Raises CorruptBatch, IndexError."""
    length, at = _read_int32(body, at)
    if not MIN_RECORD_BYTES - 1 <= length <= len(body) - at:
        raise CorruptBatch(f"a record claims {length} bytes")
    return length, at


def _read_record(record: Buffer, base_timestamp_ms: int) -> tuple[int, int, bool]:
    """(its time, its offset delta, whether it has no key). Raises CorruptBatch, IndexError."""
    timestamp_delta, at = read_varint(record, 1)
    offset_delta, at = _read_int32(record, at)
    key_bytes, at = _skip_nullable(record, at)
    _, at = _skip_nullable(record, at)
    header_count, at = _read_int32(record, at)
    if not 0 <= header_count <= (len(record) - at) // 2:
        raise CorruptBatch(f"a record claims {header_count} headers")
    for _ in range(header_count):
        name_bytes, at = _skip_nullable(record, at)
        if name_bytes < 0:
            raise CorruptBatch("a record header has no key")
        _, at = _skip_nullable(record, at)
    timestamp_ms = base_timestamp_ms + timestamp_delta
    if at != len(record) or not _MIN_MS <= timestamp_ms <= _MAX_MS:
        raise CorruptBatch("a record does not end where its length says, or its time has more than 64 bits")
    return timestamp_ms, offset_delta, key_bytes < 0


def _read_int32(body: Buffer, at: int) -> tuple[int, int]:
    value, after = read_varint(body, at)
    if value not in _INT32 or after - at > _MAX_INT32_BYTES:
        raise CorruptBatch(f"a number of more than 32 bits at {at}")
    return value, after


def _skip_nullable(record: Buffer, at: int) -> tuple[int, int]:
    """(length, -1 for null; where the field ends). Raises CorruptBatch, IndexError."""
    length, at = _read_int32(record, at)
    if not -1 <= length <= len(record) - at:
        raise CorruptBatch(f"a field claims {length} bytes")
    return length, at + max(length, 0)
