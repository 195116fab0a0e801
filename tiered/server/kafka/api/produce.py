"""Produce (key 0), versions 3 to 13; 0 to 2 are advertised and refused, for librdkafka's sake (KAFKA-18659).

Appends each partition's batch without copying it. acks=1 and acks=all answer once the records are as
durable as the topic's `flush.messages` demands; acks=0 is never answered, and an error there closes the
connection. Each partition succeeds or fails for itself.
Gaps: no transactions; a transactional batch is refused with INVALID_TXN_STATE.
"""

from collections.abc import Coroutine
from typing import Any

from tiered.broker.partition import Appended, Partition
from tiered.errors import (
    Corrupt,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopic,
    LogDirFailed,
    MalformedRequest,
    TieredError,
    UnsupportedCompression,
)
from tiered.server.kafka.dispatch import Api, RawRequest, framed
from tiered.server.kafka.error_mapping import error_code
from tiered.server.kafka.outbox import Parts
from tiered.wire import produce
from tiered.wire.produce import PartitionResult, ProduceTopic, RecordError, TopicResult

NO_ACKS = 0
# More than a client's whole buffer of smallest batches; each costs us more than it costs who sends it.
MAX_PARTITIONS = 20_000
ALL = -1
ZSTD = 4
FIRST_VERSION_WITH_ZSTD = 7
# Where the low byte of a batch's attributes is, counted from the batch's start.
_ATTRIBUTES = 22

Wait = tuple[Partition, Appended, list[PartitionResult], int]


def handle(request: RawRequest) -> Parts | Coroutine[Any, Any, Parts | None] | None:
    """The answer: at once where nothing has to wait for the disk."""
    context = request.context
    broker = context.broker
    started_ms = broker.clock.monotonic_ms()
    asked = produce.decode_produce_request(request.buffer, request.position, request.end, context.api_version)
    if sum(len(topic.partitions) for topic in asked.topics) > MAX_PARTITIONS:
        raise MalformedRequest(f"a Produce request carries more than {MAX_PARTITIONS} batches; split it")
    refused: TieredError | None = None
    waits: list[Wait] = []
    results: list[TopicResult] = []
    for topic in asked.topics:
        answers: list[PartitionResult] = []
        for index, position, end in topic.partitions:
            try:
                partition, appended = _append(request, topic, index, position, end, asked.acks)
            except TieredError as error:
                _count(request, error)
                refused = error
                answers.append(_refusal(index, error))
                continue
            answers.append(_acceptance(index, appended))
            broker.counters.produced_bytes += end - position
            broker.counters.produced_batches += 1
            if appended.end_offset > partition.high_watermark and asked.acks != NO_ACKS:
                waits.append((partition, appended, answers, len(answers) - 1))
        results.append(TopicResult(topic.name, topic.topic_id, answers))
    broker.counters.requests["Produce"] += 1
    if refused is not None and asked.acks == NO_ACKS:
        raise refused  # Nobody waits for an answer: a closed connection is how the client learns of it.
    if waits:
        return _answer_when_flushed(request, results, waits, started_ms)
    broker.counters.request_latency["Produce"].observe(broker.clock.monotonic_ms() - started_ms)
    return None if asked.acks == NO_ACKS else _answer(request, results)


def _append(
    request: RawRequest, topic: ProduceTopic, index: int, position: int, end: int, acks: int
) -> tuple[Partition, Appended]:
    context = request.context
    topics = context.broker.topics
    if acks not in (ALL, NO_ACKS, 1):
        raise InvalidRequiredAcks(f"acks={acks}; 0, 1 and -1 (all) are possible")
    found = topics.by_id(topic.topic_id) if topic.topic_id is not None else topics.by_name(topic.name or "")
    if found.is_internal:
        raise InvalidTopic(f"topic {found.name} is internal: clients may not write to it")
    partition = found.partition(index)
    if position < 0 or end - position <= _ATTRIBUTES:
        raise InvalidRecord(f"{partition.name}: the request carries no record batch")
    if context.api_version < FIRST_VERSION_WITH_ZSTD and request.buffer[position + _ATTRIBUTES] & 7 == ZSTD:
        raise UnsupportedCompression(f"{partition.name}: zstd needs Produce version 7 or later; upgrade the client")
    now_ms = context.broker.clock.now_ms()
    return partition, partition.append(request.buffer, position, end, acks=acks, now_ms=now_ms)


def _count(request: RawRequest, error: TieredError) -> None:
    counters = request.context.broker.counters
    counters.produce_errors += 1
    if isinstance(error, LogDirFailed):
        counters.disk_errors += 1


def _acceptance(index: int, appended: Appended) -> PartitionResult:
    return PartitionResult(
        index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )


def _refusal(index: int, error: TieredError) -> PartitionResult:
    about_records = isinstance(error, InvalidRecord | Corrupt)
    return PartitionResult(
        index,
        error_code(error),
        record_errors=(RecordError(0, str(error)),) if about_records else (),
        error_message=str(error),
    )


async def _answer_when_flushed(
    request: RawRequest, results: list[TopicResult], waits: list[Wait], started_ms: float
) -> Parts:
    """A client that goes away cancels this wait, never the write.

    There is no deadline of its own: the disk answers or fails, and either way the client learns the truth.
    """
    broker = request.context.broker
    for partition, appended, answers, number in waits:
        try:
            await broker.flusher.flushed(partition.log, appended.end_offset)
            partition.advance_high_watermark()
        except TieredError as error:
            _count(request, error)
            answers[number] = _refusal(answers[number].partition_index, error)
    broker.counters.request_latency["Produce"].observe(broker.clock.monotonic_ms() - started_ms)
    return _answer(request, results)


def _answer(request: RawRequest, results: list[TopicResult]) -> Parts:
    version = request.context.api_version
    body = produce.encode_produce_response(results, version)
    return framed(produce.API_KEY, version, request.correlation_id, body)


API = Api(key=0, name="Produce", min_version=0, max_version=13, refuse_below=3, raw=handle)
