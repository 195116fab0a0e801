"""Produce (key 0), versions 3 to 13; 0 to 2 are advertised and refused, for librdkafka's sake (KAFKA-18659).

Appends each partition's batch without copying it. acks=1 and acks=all answer once the records are as
durable as the topic's `flush.messages` demands, acks=all also once every in-sync replica has them, within the
request's timeout; acks=0 is never answered, and an error there closes the connection. Each partition succeeds
or fails for itself. The first batch of a transaction on a partition waits for its coordinator's word; from version 12
on that adds the partition to the transaction (KIP-890).
"""

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from itertools import chain

from tiered.broker.partitions.acknowledge import acknowledged, is_acknowledged, not_in_time
from tiered.broker.partitions.acknowledgements import Commit
from tiered.broker.partitions.batch_checks import (
    INLINE_PLAIN_BYTES,
    RefusedRecords,
    ValidatedBatch,
    foreign_codec,
    valid_header,
)
from tiered.broker.partitions.partition import Appended, Partition
from tiered.broker.partitions.topics import Topic
from tiered.broker.security.access import Rights
from tiered.errors import (
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopic,
    LogDirFailed,
    MalformedRequest,
    NotAuthorized,
    Throttled,
    TieredError,
    TransactionalIdNotAuthorized,
    UnsupportedCompression,
)
from tiered.rules.security.acl import Operation, ResourceType
from tiered.server.kafka import throttling
from tiered.server.kafka.authorize import refusal, rights_of, topic_refusal
from tiered.server.kafka.dispatch import Api, RawRequest, framed, in_turns, replica_of
from tiered.server.kafka.error_mapping import error_code
from tiered.server.kafka.listed_brokers import LeaderHints
from tiered.server.kafka.transactional_batches import (
    NOTHING,
    Beforehand,
    Unverified,
    refused_for_now,
    unverified,
    verified,
    verified_at_once,
)
from tiered.server.kafka.transport.outbox import Parts
from tiered.server.kafka.transport.requests import Answer, DelayedAnswer, Overlapping
from tiered.wire import produce
from tiered.wire.primitives import NodeEndpoint
from tiered.wire.produce import PartitionResult, ProduceRequest, ProduceTopic, RecordError, TopicResult

NO_ACKS = 0
# More than a client's whole buffer of smallest batches; each costs us more than it costs who sends it.
MAX_PARTITIONS = 20_000
# A request of more batches is appended in turns: one of 20,000 would hold everybody up for seconds.
LONG_PRODUCE_BATCHES = 200
LONG_PRODUCE_MS = 10
"""One that has taken so long goes on in turns, too."""
ALL = -1
# A longer wait than any client asks for; it bounds how long a vanished client's wait can last.
MAX_TIMEOUT_MS = 600_000
ZSTD = 4
FIRST_VERSION_WITH_ZSTD = 7
# Where the low byte of a batch's attributes is, counted from the batch's start.
_ATTRIBUTES = 22
_CODEC = 7
_TRANSACTIONAL = 16

# What the event loop validates itself, within a millisecond or two; a thread does what takes longer.
INLINE_BYTES = 2 << 20
INLINE_COMPRESSED_BYTES = 32 << 10
# Batches without compression that are smaller are given their topic's codec by the event loop.
RECOMPRESS_INLINE_BYTES = 64 << 10

Wait = tuple[Partition, Appended, list[PartitionResult], int]


def handle(request: RawRequest) -> Answer:
    """The answer: at once where nothing has to wait for disk or followers, nor for a batch to be compressed anew."""
    context = request.context
    if context.broker.client_quotas.limits_produce and not context.connection.has_produced:
        context.connection.has_produced = True
        if throttling.begins_in_debt(context):
            context.connection.put_back()
            return None
    asked = produce.decode_produce_request(request.buffer, request.position, request.end, context.api_version)
    count = 0
    for topic in asked.topics:
        count += len(topic.partitions)
    if count > MAX_PARTITIONS:
        raise MalformedRequest(f"a Produce request carries more than {MAX_PARTITIONS} batches; split it")
    beforehand = NOTHING
    if asked.transactional_id is not None:
        is_long = count > LONG_PRODUCE_BATCHES
        known = None if is_long else verified_at_once(context, asked.transactional_id, _unverified(request, asked))
        if known is not None:
            beforehand = known
        elif context.broker.validation.has_free(context.connection.owner, request.end):
            return _answer_verified(_with_own_buffer(request), asked, asked.transactional_id)
        elif not is_long:
            beforehand = refused_for_now(_unverified(request, asked), context.broker.clock.now_ms())
    validation, owner = context.broker.validation, context.connection.owner
    if count > LONG_PRODUCE_BATCHES and validation.is_full(owner, request.end):
        raise _too_many_wait()
    appending = _begin(request, asked, beforehand)
    steps = _append_each(appending)
    if count > LONG_PRODUCE_BATCHES:
        return _append_later(appending, steps, None)
    for long_validation in steps:
        if long_validation is None and (count == 1 or not _takes_long(appending)):
            continue
        if not validation.is_full(owner, request.end):
            return _append_later(appending, steps, long_validation)
        if long_validation is not None:
            long_validation.refuse(_too_many_wait())
    return _outcome(appending)


def _too_many_wait() -> Throttled:
    return Throttled("too many requests of many, large or compressed batches wait for their turn; send fewer at a time")


def _takes_long(appending: "_Appending") -> bool:
    return appending.request.context.broker.clock.monotonic_ms() - appending.started_ms > LONG_PRODUCE_MS


def _with_own_buffer(request: RawRequest) -> RawRequest:
    """For requests that wait: the connection reads the next one into its buffer."""
    return request._replace(buffer=request.context.connection.keep_frame(request.end))


def _append_later(
    appending: "_Appending", steps: "Iterator[_LongValidation | None]", first: "_LongValidation | None"
) -> Coroutine[None, None, Parts | Overlapping | None]:
    """Appends what is left in turns: others get theirs meanwhile. Requests of one connection keep their order."""
    appending.request = _with_own_buffer(appending.request)
    return _append_in_turns(appending, chain((first,), steps))


async def _append_in_turns(
    appending: "_Appending", steps: "Iterator[_LongValidation | None]"
) -> Parts | Overlapping | None:
    request = appending.request
    validation, owner = request.context.broker.validation, request.context.connection.owner
    if validation.is_full(owner, request.end):  # Others of the owner's have come in the same turn of the loop.
        async for long_validation in in_turns(steps):
            if long_validation is not None:
                long_validation.refuse(_too_many_wait())
        return _outcome(appending)
    async with validation.place(owner, request.end):
        await _append_rest(appending, steps)
    return _outcome(appending)


async def _append_rest(appending: "_Appending", steps: "Iterator[_LongValidation | None]") -> None:
    async for long_validation in in_turns(steps):
        if long_validation is not None:
            await long_validation.carry_out(appending.request)


@dataclass(slots=True)
class _Appending:
    """A request whose batches are being appended."""

    request: RawRequest
    asked: ProduceRequest
    beforehand: Beforehand
    started_ms: float
    refused: TieredError | None = None
    waits: list[Wait] = field(default_factory=list)
    results: list[TopicResult] = field(default_factory=list)


def _begin(request: RawRequest, asked: ProduceRequest, beforehand: Beforehand) -> _Appending:
    context = request.context
    broker = context.broker
    started_ms = broker.clock.monotonic_ms()
    if broker.client_quotas.limits_produce:
        context = context._replace(throttle_ms=throttling.produced(context, request.end - request.position))
        request = request._replace(context=context)
    return _Appending(request, asked, beforehand, started_ms)


class _LongValidation:
    """A batch that takes more work than the event loop does, and what came of it."""

    __slots__ = ("_codec", "_end", "_outcome", "_partition", "_position")

    def __init__(self, partition: Partition, position: int, end: int, codec: int | None) -> None:
        """`codec` is the one that its topic wants, where it has another."""
        self._partition, self._position, self._end, self._codec = partition, position, end, codec
        self._outcome: ValidatedBatch | TieredError | None = None

    async def carry_out(self, request: RawRequest) -> None:
        broker = request.context.broker
        try:
            self._outcome = await broker.validation.run(
                request.context.connection.owner,
                request.buffer,
                self._position,
                self._end,
                self._partition,
                broker.clock.now_ms(),
                self._codec,
            )
        except TieredError as error:
            self._outcome = error.without_frames()

    def refuse(self, error: TieredError) -> None:
        """Where it cannot be carried out."""
        self._outcome = error

    def result(self) -> ValidatedBatch:
        """Raises why the batch is refused."""
        assert self._outcome is not None
        if isinstance(self._outcome, TieredError):
            raise self._outcome
        return self._outcome


def _validation(
    request: RawRequest, partition: Partition, position: int, end: int
) -> ValidatedBatch | _LongValidation | None:
    """Of a compressed or large batch: what was validated, or what has to be outside the event loop. None for all
    others: `Partition.append` validates them, for next to nothing.

    A batch that is compressed may hold a thousand times its size. Raises why the batch is refused.
    """
    size_bytes = end - position
    attributes = request.buffer[position + _ATTRIBUTES]
    if (not attributes & _CODEC and size_bytes <= RECOMPRESS_INLINE_BYTES) or partition.leadership is None:
        return None
    codec = foreign_codec(attributes, partition.config)
    if attributes & _CODEC:
        if codec is None and size_bytes <= INLINE_COMPRESSED_BYTES:
            buffer, limits, now_ms = request.buffer, partition.limits, request.context.broker.clock.now_ms()
            header = valid_header(
                buffer, position, end, limits, now_ms, partition.name, max_plain_bytes=INLINE_PLAIN_BYTES
            )
            if header is not None:
                return ValidatedBatch(buffer, position, end, header, limits)
    elif codec is None and size_bytes <= INLINE_BYTES:
        return None
    if size_bytes > partition.limits.max_message_bytes:
        return None  # It is refused for its size alone.
    return _LongValidation(partition, position, end, codec)


def _append_each(appending: _Appending) -> Iterator[_LongValidation | None]:
    """Appends one batch after the other. A validation that it yields has to be carried out before it goes on."""
    asked, waits = appending.asked, appending.waits
    failed, verifications = appending.beforehand
    broker = appending.request.context.broker
    counters = broker.counters
    for topic in asked.topics:
        rights = rights_of(appending.request.context)
        answers: list[PartitionResult] = []
        denied = None if rights is None else _denied(appending.request, asked, topic, rights)
        for index, position, end in topic.partitions:
            yield None
            refused = denied or failed.get(position)
            if refused is None:
                request = appending.request  # Another one after a pause: the buffer is its own then.
                try:
                    partition = _target(request, asked, topic, index, position, end)
                    validation = _validation(request, partition, position, end)
                    if isinstance(validation, _LongValidation):
                        yield validation
                        request = appending.request
                        validation = validation.result()
                    appended = partition.append(
                        request.buffer,
                        position,
                        end,
                        acks=asked.acks,
                        now_ms=broker.clock.now_ms(),
                        verified=verifications.get(position) if verifications else None,
                        validated=validation,
                    )
                except TieredError as error:
                    refused = error.without_frames()
                else:
                    base_offset, _, append_time_ms, log_start_offset, _ = appended
                    answers.append(PartitionResult(index, 0, base_offset, append_time_ms, log_start_offset))
                    counters.produced_bytes += end - position
                    counters.produced_batches += 1
                    if not is_acknowledged(partition, appended, asked.acks):
                        waits.append((partition, appended, answers, len(answers) - 1))
                    continue
            appending.refused = refused
            answers.append(_refusal(appending.request, index, refused))
        appending.results.append(TopicResult(topic.name, topic.topic_id, answers))


def _outcome(appending: _Appending) -> Parts | Overlapping | None:
    """The answer, now or once what was appended is stored. Raises what was refused when nobody waits for an answer."""
    refused, is_awaited = appending.refused, appending.asked.acks != NO_ACKS
    appending.request.context.broker.counters.requests["Produce"] += 1
    if refused is not None and not is_awaited:
        raise refused  # With acks=0 the client reads no answer: it learns of the error from the closed connection.
    if appending.waits:
        # With acks=1 a batch waits for the disk alone, also where that has it by now.
        needs_disk = appending.asked.acks != ALL or any(partition.needs_flush for partition, *_ in appending.waits)
        return Overlapping(_answer_when_stored(appending) if needs_disk else _Committing(appending))
    _note_latency(appending)
    return _answer(appending.request, appending.results, is_refused=refused is not None) if is_awaited else None


# Batches that the coordinator of their transaction is asked about first


async def _answer_verified(
    request: RawRequest, asked: ProduceRequest, transactional_id: str
) -> Parts | Overlapping | None:
    """Asks and appends then; requests of one connection keep their order, for it waits."""
    broker = request.context.broker
    async with broker.validation.place(request.context.connection.owner, request.end):
        batches = [batch async for batch in in_turns(_unverified(request, asked)) if batch is not None]
        beforehand = await verified(request.context, transactional_id, batches) if batches else NOTHING
        appending = _begin(request, asked, beforehand)
        await _append_rest(appending, _append_each(appending))
    return _outcome(appending)


def _unverified(request: RawRequest, asked: ProduceRequest) -> Iterator[Unverified | None]:
    """Of each batch of a transaction what its coordinator must be asked; None where that is open on its partition."""
    for partition, position, end in _reachable(request, asked, _is_transactional):
        yield unverified(partition, request.buffer, position, end)


def _is_transactional(attributes: int, size_bytes: int) -> bool:
    del size_bytes
    return bool(attributes & _TRANSACTIONAL)


def _reachable(
    request: RawRequest, asked: ProduceRequest, is_wanted: Callable[[int, int], bool]
) -> Iterator[tuple[Partition, int, int]]:
    """(partition, position, end) of each batch that `is_wanted(attributes, size)`, and that could be appended.

    Of others is said what is wrong when their turn comes; no work is done for them.
    """
    rights = rights_of(request.context)
    for topic in asked.topics:
        if rights is not None and _denied(request, asked, topic, rights) is not None:
            continue
        for index, position, end in topic.partitions:
            if position < 0 or end - position <= _ATTRIBUTES:
                continue
            if not is_wanted(request.buffer[position + _ATTRIBUTES], end - position):
                continue
            try:
                partition = _find(request, topic).partition(index)
            except TieredError:
                continue
            yield partition, position, end


def _find(request: RawRequest, topic: ProduceTopic) -> Topic:
    topics = request.context.broker.topics
    return topics.by_id(topic.topic_id) if topic.topic_id is not None else topics.by_name(topic.name or "")


def _denied(request: RawRequest, asked: ProduceRequest, topic: ProduceTopic, rights: Rights) -> NotAuthorized | None:
    """The missing right is reported before anything about the topic."""
    name = asked.transactional_id
    if name is not None and not rights.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return refusal(rights, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
    return topic_refusal(request.context, Operation.WRITE, topic.name, topic.topic_id, rights)


def _target(
    request: RawRequest, asked: ProduceRequest, topic: ProduceTopic, index: int, position: int, end: int
) -> Partition:
    """The partition that the batch goes to, if the request may write it there at all."""
    if not ALL <= asked.acks <= 1:
        raise InvalidRequiredAcks(f"acks={asked.acks}; 0, 1 and -1 (all) are possible")
    named = _find(request, topic)
    if named.is_internal:
        raise InvalidTopic(f"topic {named.name} is internal: clients may not write to it")
    partition = named.partition(index)
    if position < 0 or end - position <= _ATTRIBUTES:
        raise InvalidRecord(f"{partition.name}: the request carries no record batch")
    attributes = request.buffer[position + _ATTRIBUTES]
    if asked.transactional_id is None and attributes & _TRANSACTIONAL:
        raise TransactionalIdNotAuthorized(
            f"{partition.name}: the batch is of a transaction, and its request names no transactional id; set it"
        )
    if request.context.api_version < FIRST_VERSION_WITH_ZSTD and attributes & _CODEC == ZSTD:
        raise UnsupportedCompression(f"{partition.name}: zstd needs Produce version 7 or later; upgrade the client")
    return partition


def _refusal(request: RawRequest, index: int, error: TieredError) -> PartitionResult:
    counters = request.context.broker.counters
    counters.produce_errors += 1
    counters.disk_errors += isinstance(error, LogDirFailed)
    return PartitionResult(
        index,
        error_code(error),
        record_errors=[RecordError(*record) for record in error.records] if isinstance(error, RefusedRecords) else [],
        error_message=str(error),
    )


# Answers that wait. A client that goes away cancels the wait, never the write.


class _Committing(DelayedAnswer):
    """acks=all, once every in-sync replica has the batches: nothing here waits for a disk."""

    __slots__ = ("_appending", "_commits", "_left", "_wake")

    def __init__(self, appending: _Appending) -> None:
        self._appending = appending
        self._commits: list[Commit] = []
        self._left = len(appending.waits)

    @property
    def patience_ms(self) -> float:
        return _patience_ms(self._appending.asked)

    def begin(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        for partition, appended, _, _ in self._appending.waits:
            commit = partition.acknowledgements.begin(appended.end_offset, appended.leader_epoch, self._one_over)
            self._commits.append(commit)

    def _one_over(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._wake()

    def answer(self, *, is_last: bool) -> Parts | None:
        if self._left and not is_last:
            return None
        for (partition, _, answers, number), commit in zip(self._appending.waits, self._commits, strict=True):
            error = commit.error if commit.is_over else not_in_time(partition, self.patience_ms)
            if error is not None:
                _refuse(self._appending.request, answers, number, error)
        self.cancel()
        return _answer_stored(self._appending)

    def cancel(self) -> None:
        for (partition, *_), commit in zip(self._appending.waits, self._commits, strict=False):
            partition.acknowledgements.leave(commit)


async def _answer_when_stored(appending: _Appending) -> Parts:
    """For topics whose `flush.messages` demands the disk first."""
    request, asked, broker = appending.request, appending.asked, appending.request.context.broker
    for partition, appended, answers, number in appending.waits:
        left_ms = appending.started_ms + _patience_ms(asked) - broker.clock.monotonic_ms()
        try:
            await acknowledged(broker.context, partition, appended, acks=asked.acks, timeout_ms=left_ms)
        except TieredError as error:
            _refuse(request, answers, number, error)
    return _answer_stored(appending)


def _patience_ms(asked: ProduceRequest) -> float:
    return min(max(0, asked.timeout_ms), MAX_TIMEOUT_MS)


def _refuse(request: RawRequest, answers: list[PartitionResult], number: int, error: TieredError) -> None:
    answers[number] = _refusal(request, answers[number].partition_index, error)


def _answer_stored(appending: _Appending) -> Parts:
    _note_latency(appending)
    is_refused = any(answer.error_code for topic in appending.results for answer in topic.partitions)
    return _answer(appending.request, appending.results, is_refused=is_refused)


def _note_latency(appending: _Appending) -> None:
    broker = appending.request.context.broker
    broker.counters.request_latency["Produce"].observe(broker.clock.monotonic_ms() - appending.started_ms)


def _answer(request: RawRequest, results: list[TopicResult], *, is_refused: bool) -> Parts:
    version = request.context.api_version
    endpoints: tuple[NodeEndpoint, ...] = ()
    if is_refused and version >= produce.FIRST_WITH_LEADERS:
        hints = LeaderHints(request)
        results = [each._replace(partitions=hints.complete(*each)) for each in results]
        endpoints = hints.endpoints
    body = produce.encode_produce_response(results, version, request.context.throttle_ms, node_endpoints=endpoints)
    return framed(produce.API_KEY, version, request.correlation_id, body)


def refuse_on_replica(request: RawRequest) -> Parts:
    """Raises ReadOnly for acks=0: a closed connection is how that client learns of it."""
    replica, version = replica_of(request.context), request.context.api_version
    asked = produce.decode_produce_request(request.buffer, request.position, request.end, version)
    count = sum(len(topic.partitions) for topic in asked.topics)
    if count > MAX_PARTITIONS:
        raise MalformedRequest(f"a Produce request carries more than {MAX_PARTITIONS} batches; split it")
    replica.counters.requests["Produce"] += 1
    replica.counters.produce_errors += count
    error = replica.refusal()
    if asked.acks == NO_ACKS:
        raise error
    results = [
        TopicResult(
            topic.name,
            topic.topic_id,
            [PartitionResult(each[0], error_code(error), error_message=str(error)) for each in topic.partitions],
        )
        for topic in asked.topics
    ]
    body = produce.encode_produce_response(results, version, node_endpoints=())
    return framed(produce.API_KEY, version, request.correlation_id, body)


API = Api(
    0,
    "Produce",
    (0, 13),
    rights="WRITE on the topic; WRITE on the transactional id if there is one",
    refuse_below=3,
    raw=handle,
    on_replica=refuse_on_replica,
)
