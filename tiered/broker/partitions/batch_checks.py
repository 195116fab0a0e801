"""What a produced batch must be before it is stored: its header, and every record in it.

Owns how a topic's settings bound a batch, the words of refusals, and the names of codecs. Must never look at a value,
nor know a partition's state.
"""

import threading
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import NamedTuple, Protocol

from tiered.account import OwnersShares, OwnersTurns
from tiered.cold.budget import Budget
from tiered.config import TopicConfig
from tiered.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    TieredError,
    UnsupportedCompression,
)
from tiered.formats import batch_validation, native, record_batch
from tiered.formats.batch_validation import (
    BatchLimits,
    Examiner,
    NativeExaminer,
    PureExaminer,
    Reason,
    RefusedBatch,
    RefusedRecord,
)
from tiered.formats.record_batch import DEFAULT_MAX_DECOMPRESSED_BYTES, BatchHeader
from tiered.runtime import BlockingPool

AS_SENT = "producer"
_CODES = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""What `compression.type` may be, besides `AS_SENT`, which keeps the client's codec."""


class RefusedRecords(TieredError):
    """Records of a batch are refused for their own sake, and named (KIP-467): the others could be sent without them."""

    def __init__(self, message: str, *, records: Sequence[tuple[int, str]]) -> None:
        """`records` are the first of them: the place of each in its batch, counted from 0, and why it is refused."""
        super().__init__(message)
        self.records = records


class RecordsWithoutKey(RefusedRecords, InvalidRecord):
    """Records of a batch for a compacted topic have no key."""


class RecordsOutOfTime(RefusedRecords, InvalidTimestamp):
    """The times of some records are further from the broker's than the topic allows."""


def limits_of(config: TopicConfig) -> BatchLimits:
    """What a topic with these settings takes. Ten thousand partitions of one topic share one."""
    return _shared(
        BatchLimits(
            max_message_bytes=config.max_message_bytes,
            max_plain_record_bytes=config.max_decompressed_message_bytes,
            max_plain_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            needs_keys=config.is_compacted,
            sets_time=config.is_log_append_time,
        )
    )


@lru_cache(maxsize=1024)
def _shared(limits: BatchLimits) -> BatchLimits:
    return limits


INLINE_PLAIN_BYTES = 256 << 10
"""Of decompressed records: what an event loop makes in about a millisecond."""
REQUESTS_BYTES = 128 << 20
MAX_WAITING_BYTES = 96 << 20
"""A waiting request keeps a receive buffer of up to twice its size. This bound and `REQUESTS_BYTES` together stay below
the default `queued.max.request.bytes`, so that other clients' large requests can still arrive."""
SCRATCH_BYTES = 4 << 20
"""Four times what clients put into a batch by default."""


class _Here(threading.local):
    """What one thread validates with. An event loop's kernel keeps the interpreter's lock, that of a thread beside it
    lets others have it."""

    def __init__(self) -> None:
        self.of_loop, self.beside_loop = _examiner(keeps_lock=True), _examiner(keeps_lock=False)
        self.scratch = bytearray()

    def scratch_of(self, size_bytes: int) -> bytearray:
        """At least so large, and kept for the next batch."""
        if len(self.scratch) < size_bytes:
            self.scratch = bytearray(size_bytes)
        return self.scratch


def _examiner(*, keeps_lock: bool) -> Examiner:
    kernel = native.kernel(keeps_lock=keeps_lock)
    return PureExaminer() if kernel is None else NativeExaminer(kernel)


_here = _Here()


class Bounded(Protocol):
    """Whose batches are validated."""

    limits: BatchLimits
    name: str


class LongValidations:
    """For batches that take more than an event loop has time for, one after the other. Their owners take turns: who
    sends a hundred that take a second each keeps nobody but itself waiting."""

    def __init__(self) -> None:
        self._turns = OwnersTurns()
        self._shares = OwnersShares()
        self.room = Budget(REQUESTS_BYTES)
        """What produce requests may hold while they wait: for the thread, or for their turn to go on."""
        # One batch may take 64 MiB and a core: hostile ones must leave the event loop its own.
        self._pool = BlockingPool("validation", threads=1)

    def is_full(self, owner: Hashable, size_bytes: int) -> bool:
        """So many requests wait for room, or the owner's for what comes after, that another one of the owner's would
        take too much memory."""
        most = REQUESTS_BYTES + MAX_WAITING_BYTES
        return self.room.waiting_units > MAX_WAITING_BYTES or not self._shares.has_room(owner, size_bytes, most)

    def has_free(self, owner: Hashable, size_bytes: int) -> bool:
        """Whether such a request of the owner's would not wait for room."""
        return self.room.has_free(size_bytes) and not self.is_full(owner, size_bytes)

    @asynccontextmanager
    async def place(self, owner: Hashable, size_bytes: int) -> AsyncIterator[None]:
        """Room for a request of the owner's, once there is any. Raises Throttled where too many wait."""
        with self._shares.taken_by(owner, size_bytes):
            async with self.room.taken(size_bytes):
                yield

    async def run(
        self,
        owner: Hashable,
        buffer: memoryview,
        position: int,
        end: int,
        replica: "Bounded",
        now_ms: int,
        codec: int | None,
    ) -> "ValidatedBatch":
        """As `validated_in_thread`. `room` bounds how many wait."""
        arguments = buffer, position, end, replica.limits, now_ms, replica.name, codec
        async with self._turns.taken_by(owner):
            # Who hangs up in the middle keeps the turn, and the room, until the thread lets the request go.
            return await self._pool.run_to_end(validated_in_thread, *arguments)

    def close(self, *, wait: bool = True) -> None:
        self._pool.close(wait=wait)


class ValidatedBatch(NamedTuple):
    """A batch that may be stored in a topic with these limits: where it is, and its header."""

    buffer: memoryview
    position: int
    end: int
    header: BatchHeader
    limits: BatchLimits


def valid_header(
    buffer: memoryview,
    position: int,
    end: int,
    limits: BatchLimits,
    now_ms: int,
    name: str,
    *,
    max_plain_bytes: int | None = None,
) -> BatchHeader | None:
    """The header of the one batch in `buffer[position:end]`, every record of which may be stored; for an event loop.

    The header's maximum timestamp is that of the records, in the buffer too. None when the records decompress to more
    than `max_plain_bytes`: too much work for an event loop. Raises InvalidRecord, InvalidTimestamp, MessageTooLarge,
    UnsupportedCompression and CorruptBatch, with `name` for people.
    """
    examiner = _here.of_loop
    examined = examiner.examine(buffer, position, end, limits, now_ms)
    if isinstance(examined, BatchHeader):
        return examined
    scratch = None if max_plain_bytes is None else _here.scratch_of(max_plain_bytes)
    verdict = batch_validation.conclude(
        examiner, examined, buffer, position, end, limits, now_ms, max_plain_bytes=max_plain_bytes, scratch=scratch
    )
    if isinstance(verdict, RefusedBatch):
        raise _refusal(verdict, end - position, limits, now_ms, name)
    return verdict


def validated_in_thread(
    buffer: memoryview, position: int, end: int, limits: BatchLimits, now_ms: int, name: str, codec: int | None
) -> ValidatedBatch:
    """The batch, for a thread beside the event loop, whatever it takes; in the codec `codec`, where that is one.

    Memory: as `BatchLimits.max_plain_bytes` says, twice with a codec, and `SCRATCH_BYTES` that the thread keeps.
    """
    scratch = _here.scratch_of(SCRATCH_BYTES)
    verdict = batch_validation.validate(_here.beside_loop, buffer, position, end, limits, now_ms, scratch=scratch)
    if isinstance(verdict, RefusedBatch):
        raise _refusal(verdict, end - position, limits, now_ms, name)
    assert verdict is not None
    batch = ValidatedBatch(buffer, position, end, verdict, limits)
    return batch if codec is None else recompressed(batch, codec)


def _refusal(refused: RefusedBatch, size_bytes: int, limits: BatchLimits, now_ms: int, name: str) -> TieredError:
    header = refused.header
    if header is None:
        if refused.reason == Reason.MAGIC:
            return InvalidRecord(f"{name}: only record batches of magic 2 are stored; upgrade the client")
        return CorruptBatch(f"{name}: {size_bytes} bytes are fewer than a batch header's")
    match refused.reason:
        case Reason.SIZE if header.size_bytes > size_bytes or header.size_bytes < record_batch.MIN_BATCH_BYTES:
            return CorruptBatch(f"{name}: the batch claims {header.size_bytes} bytes, {size_bytes} were sent")
        case Reason.SIZE:
            return InvalidRecord(f"{name}: a produce request carries exactly one batch for each partition")
        case Reason.TOO_LARGE:
            return MessageTooLarge(
                f"{name}: a batch of {size_bytes} bytes exceeds max.message.bytes={limits.max_message_bytes}"
            )
        case Reason.CRC:
            return CorruptBatch(f"{name}: the CRC of the batch does not match its bytes")
        case Reason.CODEC:
            return UnsupportedCompression(f"{name}: compression codec {header.compression} is unknown")
        case Reason.TIMESTAMP_TYPE:
            return InvalidTimestamp(
                f"{name}: the batch says that its times are those of its append (LogAppendTime): only brokers do"
            )
        case Reason.RECORDS:
            return _refused_records(refused, header, limits, now_ms, name)
        case _:
            return InvalidRecord(f"{name}: {_words(refused, header, limits)}. Nothing of the batch was stored")


def _words(refused: RefusedBatch, header: BatchHeader, limits: BatchLimits) -> str:
    record = f"record {refused.record} of {header.record_count}"
    match refused.reason:
        case Reason.BASE_OFFSET:
            return f"the batch's base offset is {header.base_offset}, not 0"
        case Reason.CONTROL:
            return "clients may not write control batches"
        case Reason.DELETE_HORIZON:
            return "clients may not say until when tombstones stay (delete horizon)"
        case Reason.COUNT:
            return (
                f"the batch's count of {header.record_count} records contradicts its last offset delta "
                f"{header.last_offset_delta}"
            )
        case Reason.TRANSACTION:
            return "a batch of a transaction needs a producer id"
        case Reason.SEQUENCE:
            return "an idempotent batch needs a producer epoch and a sequence"
        case Reason.COMPRESSION:
            return f"the batch cannot be decompressed: {refused.detail}"
        case Reason.FEW_RECORDS:
            return f"the batch claims {header.record_count} records and ends behind {refused.record}"
        case Reason.MANY_BYTES:
            return f"bytes follow the last of the batch's {header.record_count} records"
        case Reason.LARGE_RECORD:
            return f"{record} exceeds max.decompressed.message.bytes={limits.max_plain_record_bytes}"
        case Reason.OFFSET:
            return f"the offset delta of {record} is not {refused.record}"
        case _:
            return f"{record} is malformed: its lengths, headers or time contradict its bytes"


def _refused_records(
    refused: RefusedBatch, header: BatchHeader, limits: BatchLimits, now_ms: int, name: str
) -> RecordsOutOfTime | RecordsWithoutKey:
    """Kafka's codes: times count more than keys."""
    reasons = [(record.record, _reason(record, limits, now_ms)) for record in refused.records]
    first, why = reasons[0]
    message = (
        f"{name}: record {first} of the batch is refused, and {refused.refused_records} of {header.record_count} are: "
        f"{why}"
    )
    if all(record.has_no_key for record in refused.records):
        return RecordsWithoutKey(message, records=reasons)
    return RecordsOutOfTime(message, records=reasons)


def _reason(record: RefusedRecord, limits: BatchLimits, now_ms: int) -> str:
    if record.has_no_key:
        return "it has no key, and the topic is compacted (cleanup.policy): give every record a key"
    if record.timestamp_ms > now_ms:
        return (
            f"its timestamp {record.timestamp_ms} is {record.timestamp_ms - now_ms} ms ahead of the broker's clock, "
            f"more than message.timestamp.after.max.ms={limits.after_max_ms}"
        )
    return (
        f"its timestamp {record.timestamp_ms} is {now_ms - record.timestamp_ms} ms behind the broker's clock, "
        f"more than message.timestamp.before.max.ms={limits.before_max_ms}"
    )


def foreign_codec(attributes: int, config: TopicConfig) -> int | None:
    """The codec that a batch with these attributes has to be given; None when it may stay as it is."""
    wanted = _CODES.get(config.compression_type)
    return None if wanted is None or wanted == attributes & 7 else wanted


def recompressed(batch: ValidatedBatch, code: int) -> ValidatedBatch:
    """The same records in the topic's own codec."""
    buffer = memoryview(record_batch.recompressed(batch.buffer[: batch.end], batch.position, code))
    return ValidatedBatch(buffer, 0, len(buffer), record_batch.read_header(buffer, 0), batch.limits)
