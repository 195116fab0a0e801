"""Appends single records for clients that send no batches of their own: HTTP.

Owns how records become batches and which partition takes those without a key; from there on they go the way of
every produced batch, with acks=all. Must never answer before the records are as safe as their topic demands, and
never on the event loop for longer than one small batch takes.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.acknowledge import acknowledged, is_acknowledged
from tiered.broker.partitions.batch_checks import ValidatedBatch, foreign_codec, validated_in_thread
from tiered.broker.partitions.partition import ALL, Partition
from tiered.broker.partitions.topics import Topic
from tiered.errors import CorruptBatch, Invalid, InvalidTimestamp, InvalidTopic, LogDirFailed, TieredError
from tiered.formats.record_batch import Compression, Record, encode_batch
from tiered.rules.partition.partitioner import next_partition, partition_for_key

NO_TIMESTAMP = -1
NO_CODEC = 0
RECORD_OVERHEAD_BYTES = 32
"""About what a record takes besides its key, value and headers."""
BATCH_OVERHEAD_BYTES = 61
LARGE_BYTES = 256 << 10
"""A batch from this size on is encoded in a thread, and so is one that the topic wants compressed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record to append. None as `partition` leaves it to the key, None as `timestamp_ms` to the broker."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        """The most that the record takes in a batch."""
        headers = sum(10 + 4 * len(name) + len(value or b"") for name, value in self.headers)
        return RECORD_OVERHEAD_BYTES + len(self.key or b"") + len(self.value or b"") + headers


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRecord:
    """Where a record went."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Records for one partition with their places in what was asked."""

    partition: Partition
    places: list[int]
    records: list[NewRecord]


class RecordWriter:
    """Writes records to the partitions that this broker leads."""

    def __init__(self, *, context: BrokerContext) -> None:
        self._context = context
        self._keyless = -1

    async def write(self, topic: Topic, records: Sequence[NewRecord]) -> list[WrittenRecord | TieredError]:
        """The outcome of each record, in their order: each succeeds or fails alone.

        Records of one partition share a batch; when it is refused they are tried one by one, so that one bad
        record spares the others. Raises InvalidTopic for an internal topic.
        """
        if topic.is_internal:
            raise InvalidTopic(f"topic {topic.name} is internal: clients may not write to it")
        outcomes: list[WrittenRecord | TieredError | None] = [None] * len(records)
        batches = self._sorted(topic, records, outcomes)
        for batch in batches:
            await self._write(batch, outcomes)
        return [outcome for outcome in outcomes if outcome is not None]

    def _sorted(
        self, topic: Topic, records: Sequence[NewRecord], outcomes: list[WrittenRecord | TieredError | None]
    ) -> list[_Batch]:
        """The records by partition, in batches no larger than the topic allows."""
        found: list[_Batch] = []
        open_: dict[int, tuple[_Batch, int]] = {}
        count = max(1, topic.partition_count)
        # One partition for all that come together: a batch each would cost more than it spreads. A partition that is
        # led here, if there is one: it needs no other broker.
        led = [each.topic_partition.partition for each in topic.partitions if each.leadership is not None]
        self._keyless = next_partition(self._keyless, len(led) or count)
        keyless = led[self._keyless] if led else self._keyless
        for place, record in enumerate(records):
            index = keyless if record.key is None else partition_for_key(record.key, count)
            try:
                partition = topic.partition(index if record.partition is None else record.partition)
            except TieredError as error:
                outcomes[place] = error.without_frames()
                continue
            number = partition.topic_partition.partition
            batch, size_bytes = open_.get(number, (None, 0))
            size_bytes += record.size_bytes
            if batch is None or size_bytes + BATCH_OVERHEAD_BYTES > partition.config.max_message_bytes:
                batch, size_bytes = _Batch(partition=partition, places=[], records=[]), record.size_bytes
                found.append(batch)
            open_[number] = batch, size_bytes
            batch.places.append(place)
            batch.records.append(record)
        return found

    async def _write(self, batch: _Batch, outcomes: list[WrittenRecord | TieredError | None]) -> None:
        try:
            written = await self._append(batch)
        except Invalid as error:
            if len(batch.places) == 1:
                outcomes[batch.places[0]] = error.without_frames()
                return
            for place, record in zip(batch.places, batch.records, strict=True):
                await self._write(_Batch(partition=batch.partition, places=[place], records=[record]), outcomes)
            return
        except TieredError as error:
            for place in batch.places:
                outcomes[place] = error.without_frames()
            return
        for place, each in zip(batch.places, written, strict=True):
            outcomes[place] = each

    async def _append(self, batch: _Batch) -> list[WrittenRecord]:
        """Returns once the batch is as durable as the topic demands."""
        partition = batch.partition
        now_ms = self._context.clock.now_ms()
        records = [
            Record(
                offset=offset,
                timestamp_ms=now_ms if each.timestamp_ms is None else each.timestamp_ms,
                key=each.key,
                value=each.value,
                headers=each.headers,
            )
            for offset, each in enumerate(batch.records)
        ]
        codec = foreign_codec(NO_CODEC, partition.config)
        with self._counting_errors():
            if codec is None and sum(record.size_bytes for record in batch.records) < LARGE_BYTES:
                encoded, validation = _encoded(records, NO_CODEC), None
            else:
                encoded, validation = await asyncio.to_thread(_validated, records, codec or NO_CODEC, partition, now_ms)
            appended = partition.append(encoded, 0, len(encoded), acks=ALL, now_ms=now_ms, validated=validation)
        self._context.counters.produced_bytes += len(encoded)
        self._context.counters.produced_batches += 1
        if not is_acknowledged(partition, appended, ALL):
            await acknowledged(
                self._context,
                partition,
                appended,
                acks=ALL,
                timeout_ms=self._context.settings.limits.request_timeout_ms,
            )
        stamped = appended.log_append_time_ms
        return [
            WrittenRecord(
                partition=partition.topic_partition.partition,
                offset=appended.base_offset + record.offset,
                timestamp_ms=record.timestamp_ms if stamped == NO_TIMESTAMP else stamped,
            )
            for record in records
        ]

    @contextmanager
    def _counting_errors(self) -> Iterator[None]:
        counters = self._context.counters
        try:
            yield
        except TieredError as error:
            counters.produce_errors += 1
            counters.disk_errors += isinstance(error, LogDirFailed)
            raise


def _encoded(records: Sequence[Record], codec: int) -> memoryview:
    try:
        return memoryview(bytearray(encode_batch(records, compression=Compression(codec))))
    except CorruptBatch as error:
        raise InvalidTimestamp(str(error)) from None


def _validated(
    records: Sequence[Record], codec: int, partition: Partition, now_ms: int
) -> tuple[memoryview, ValidatedBatch]:
    """For a thread: both take long."""
    encoded = _encoded(records, codec)
    limits, name = partition.limits, partition.name
    return encoded, validated_in_thread(encoded, 0, len(encoded), limits, now_ms, name, None)
