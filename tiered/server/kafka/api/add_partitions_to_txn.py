"""AddPartitionsToTxn (key 24), versions 0 to 5: partitions join a producer's transaction, which begins with the first.

Versions 0 to 3 are of producers: all partitions of a request join, or none; where one is refused, the others are
OPERATION_NOT_ATTEMPTED. Versions 4 and 5 are of brokers alone: several transactional ids at once, and leaders that only
ask whether partitions are in a transaction (KIP-890).
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from tiered.errors import ClusterNotAuthorized, InvalidTopic, TieredError, UnknownTopicOrPartition
from tiered.ids import TopicPartition
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.transactions.transaction_state import KEEPS_EPOCH, RAISES_EPOCH, ProducerIdAndEpoch
from tiered.server.kafka.authorize import may_replicate, require, require_topic
from tiered.server.kafka.dispatch import Api, Context, Refused, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code, producer_error_code
from tiered.wire.error_codes import OPERATION_NOT_ATTEMPTED

if TYPE_CHECKING:
    from kafka_messages.add_partitions_to_txn import (
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
        Replies,
        Reply,
        Request,
        Response,
    )

FIRST_OF_BROKERS = 4
FIRST_THAT_KNOWS_FENCED = 2

_Codes = Mapping[tuple[str, int], int]


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    if context.api_version < FIRST_OF_BROKERS:
        codes = await _of_producer(context, request)
        return reply.AddPartitionsToTxnResponse(
            throttle_time=0, results_by_topic_v3_and_below=await _results(reply, request.v3_and_below_topics, codes)
        )
    if not may_replicate(context):
        refused = ClusterNotAuthorized("versions 4 and 5 of AddPartitionsToTxn are for brokers; use 0 to 3")
        return reply.AddPartitionsToTxnResponse(
            throttle_time=0, error_code=error_code(refused), results_by_transaction=[]
        )
    # Beside one another: what waits for SQL at the same time shares its transaction.
    found = await asyncio.gather(*(_of_broker(context, each) for each in request.transactions))
    return reply.AddPartitionsToTxnResponse(
        throttle_time=0,
        error_code=NONE,
        results_by_transaction=[
            reply.AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=await _results(reply, each.topics, codes)
            )
            async for each, codes in in_turns(zip(request.transactions, found, strict=True))
        ],
    )


async def _of_producer(context: Context, request: "Request") -> _Codes:
    name = request.v3_and_below_transactional_id
    wanted = await _named(request.v3_and_below_topics)
    codes: dict[tuple[str, int], int] = {}
    found: set[TopicPartition] = set()
    try:
        require(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
        async for topic, number in in_turns(wanted):
            try:
                require_topic(context, Operation.WRITE, topic)
                found.add(_partition(context, topic, number, may_be_internal=False))
            except TieredError as error:
                codes[topic, number] = error_code(error)
        if codes:
            return {key: codes.get(key, OPERATION_NOT_ATTEMPTED) async for key in in_turns(wanted)}
        producer = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        await context.broker.transactions.add_partitions(name, producer, found, protocol=KEEPS_EPOCH)
    except TieredError as error:
        code = producer_error_code(error, knows_fenced=context.api_version >= FIRST_THAT_KNOWS_FENCED)
        return {key: code async for key in in_turns(wanted)}
    return {key: NONE async for key in in_turns(wanted)}


async def _of_broker(context: Context, asked: "AddPartitionsToTxnTransaction") -> _Codes:
    wanted = await _named(asked.topics)
    codes: dict[tuple[str, int], int] = {}
    found: dict[TopicPartition, tuple[str, int]] = {}
    async for key in in_turns(wanted):
        try:
            found[_partition(context, *key, may_be_internal=True)] = key
        except TieredError as error:
            codes[key] = error_code(error)
    producer = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
    transactions = context.broker.transactions
    try:
        if asked.verify_only:
            outcomes = await transactions.check_partitions(asked.transactional_id, producer, found)
        else:
            await transactions.add_partitions(asked.transactional_id, producer, found, protocol=RAISES_EPOCH)
            outcomes = dict.fromkeys(found)
    except TieredError as error:
        outcomes = dict.fromkeys(found, error)
    async for partition, key in in_turns(found.items()):
        failed = outcomes[partition]
        codes[key] = NONE if failed is None else error_code(failed)
    return codes


async def _named(topics: "Iterable[AddPartitionsToTxnTopic]") -> Collection[tuple[str, int]]:
    return {
        key: None async for key in in_turns((topic.name, number) for topic in topics for number in topic.partitions)
    }


def _partition(context: Context, name: str, number: int, *, may_be_internal: bool) -> TopicPartition:
    topic = context.broker.topics.by_name(name)
    if topic.is_internal and not may_be_internal:
        raise InvalidTopic(f"topic {name} is internal: clients may not write to it")
    if not 0 <= number < topic.partition_count:
        raise UnknownTopicOrPartition(f"topic {name} has no partition {number}; refresh metadata")
    return TopicPartition(topic.topic_id, number)


async def _results(
    reply: "Reply", topics: "Iterable[AddPartitionsToTxnTopic]", codes: _Codes
) -> "list[Replies.AddPartitionsToTxnTopicResult]":
    return [
        reply.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                reply.AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=codes[topic.name, number]
                )
                async for number in in_turns(topic.partitions)
            ],
        )
        async for topic in in_turns(topics)
    ]


API = Api(
    24,
    "AddPartitionsToTxn",
    (0, 5),
    rights="WRITE on the transactional id and WRITE on each topic; versions 4 and 5 CLUSTER_ACTION on the cluster",
    handle=handle,
    on_replica=Refused(),
)
