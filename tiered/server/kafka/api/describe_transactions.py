"""DescribeTransactions (key 65), version 0: who has a transactional id, what is open, and in which partitions.

Of a transaction's topics those are told that the client may describe.
"""

from collections import defaultdict
from typing import TYPE_CHECKING

from tiered.errors import TieredError
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.transactions.transaction_state import Transaction
from tiered.server.kafka.authorize import may, require
from tiered.server.kafka.dispatch import Api, Context, in_turns, without_repeats
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.describe_transactions import Replies, Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    return reply.DescribeTransactionsResponse(
        throttle_time=0,
        transaction_states=[
            await _one(context, reply, name) async for name in in_turns(without_repeats(request.transactional_ids))
        ],
    )


async def _one(context: Context, reply: "Reply", name: str) -> "Replies.TransactionState":
    try:
        require(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
        found = await context.broker.transactions.describe(name)
    except TieredError as error:
        return reply.TransactionState(
            error_code=error_code(error),
            transactional_id=name,
            transaction_state="",
            transaction_timeout=0,
            transaction_start_time=-1,
            producer_id=-1,
            producer_epoch=-1,
            topics=[],
        )
    return reply.TransactionState(
        error_code=NONE,
        transactional_id=name,
        transaction_state=found.state.value,
        transaction_timeout=found.timeout_ms,
        transaction_start_time=-1 if found.started_at_ms is None else found.started_at_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=_topics(context, reply, found),
    )


def _topics(context: Context, reply: "Reply", found: Transaction) -> "list[Replies.TopicData]":
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for partition in sorted(found.partitions):
        topic = context.broker.topics.find_id(partition.topic_id)
        if topic is not None and may(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            numbers[topic.name].append(partition.partition)
    return [reply.TopicData(topic=name, partitions=found_of) for name, found_of in sorted(numbers.items())]


API = Api(
    65,
    "DescribeTransactions",
    (0, 0),
    rights="DESCRIBE on the transactional id; its topics are told that may be described",
    handle=handle,
)
