"""DescribeTopicPartitions (key 75), version 0: topics with their partitions, by name, a page at a time (KIP-966).

No topics mean all of them. A page ends after so many partitions as the client takes, 2,000 at the most; the cursor says
where the next one begins. It must be among the topics asked for, if any are. Only members of the ISR can be elected, so
the lists of other eligible replicas are empty (not null: Java's admin client breaks at it). What may not be described
is left out of "all topics", and named it is TOPIC_AUTHORIZATION_FAILED, whether it is there or not.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING

from tiered.broker.partitions.topics import Topic
from tiered.errors import InvalidRequest, TieredError
from tiered.rules.security.acl import Operation, ResourceType
from tiered.server.kafka.api.metadata import described_partitions
from tiered.server.kafka.authorize import authorized_operations, may, require_topic
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.describe_topic_partitions import Replies, Reply, Request, Response

SORTED_AT_ONCE = 1_000
MAX_PARTITIONS = 2_000
"""Kafka's max.request.partition.size.limit, at its default."""


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    broker, cursor = context.broker, request.cursor
    start = ("", 0) if cursor is None else (cursor.topic_name, max(0, cursor.partition_index))
    wanted = {topic.name async for topic in in_turns(request.topics)}
    if cursor is not None and wanted and cursor.topic_name not in wanted:
        error = InvalidRequest("the cursor's topic is not among the topics of the request")
        refused = [_refused(reply, name, error) async for name in in_turns(await _in_order(wanted))]
        return _answered(reply, refused, None)
    names: Iterable[str] = (topic.name for topic in broker.topics.from_name(start[0]))
    if wanted:
        names = await _in_order(name for name in wanted if name >= start[0])
    left = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    topics = []
    async for name in in_turns(names):
        try:
            if wanted:
                require_topic(context, Operation.DESCRIBE, name)
            elif not may(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
                continue
            topic = broker.topics.by_name(name)
        except TieredError as error:
            if wanted:
                topics.append(_refused(reply, name, error))
            continue
        if left == 0:
            return _answered(reply, topics, (name, 0))
        first = start[1] if name == start[0] else 0
        end = min(topic.partition_count, first + left)
        topics.append(_described(context, reply, topic, range(first, end)))
        left -= max(0, end - first)
        if end < topic.partition_count:
            return _answered(reply, topics, (name, end))
    return _answered(reply, topics, None)


async def _in_order(names: Iterable[str]) -> Iterator[str]:
    """The names by the alphabet. A request may have 100,000: to sort them at once takes 30 ms, and of a thread that
    does it the interpreter's lock for as long."""
    rest = iter(names)
    return merge(*[some async for some in in_turns(iter(lambda: sorted(islice(rest, SORTED_AT_ONCE)), []))])


def _described(
    context: Context, reply: "Reply", topic: Topic, indexes: range
) -> "Replies.DescribeTopicPartitionsResponseTopic":
    make = partial(reply.DescribeTopicPartitionsResponsePartition, eligible_leader_replicas=(), last_known_elr=())
    return reply.DescribeTopicPartitionsResponseTopic(
        error_code=NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=described_partitions(context.broker, topic, make, indexes),
        topic_authorized_operations=authorized_operations(context, ResourceType.TOPIC, topic.name, asked=True),
    )


def _refused(reply: "Reply", name: str, error: TieredError) -> "Replies.DescribeTopicPartitionsResponseTopic":
    return reply.DescribeTopicPartitionsResponseTopic(
        error_code=error_code(error), name=name, topic_id=None, is_internal=False, partitions=[]
    )


def _answered(
    reply: "Reply",
    topics: "Sequence[Replies.DescribeTopicPartitionsResponseTopic]",
    next_cursor: tuple[str, int] | None,
) -> "Response":
    return reply.DescribeTopicPartitionsResponse(
        throttle_time=0,
        topics=topics,
        next_cursor=None
        if next_cursor is None
        else reply.Cursor(topic_name=next_cursor[0], partition_index=next_cursor[1]),
    )


API = Api(75, "DescribeTopicPartitions", (0, 0), rights="DESCRIBE on the topic", handle=handle)
