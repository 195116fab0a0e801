"""Metadata (key 3), versions 0 to 13: brokers, topics, partitions and leaders, from memory.

Creates missing topics where the client (v4+) and the broker allow it, and answers with them at once.
Illegal names are INVALID_TOPIC_EXCEPTION, each for itself. `__consumer_offsets` is listed as internal.
Gaps: authorized operations are not computed (no ACLs): the field keeps its "not asked" value.
"""

from typing import Any

from tiered.broker.topics import Topic
from tiered.errors import InvalidRequest, TieredError, UnknownTopicOrPartition
from tiered.ids import NO_TOPIC_ID
from tiered.server.kafka.api.create_topics import check_partitions
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

# Each one is a transaction and a folder. Who asks for more gets the rest by asking again.
MAX_CREATED_A_REQUEST = 100


async def handle(context: Context, request: Any, reply: Any) -> Any:
    broker = context.broker
    host, port = broker.address_for(context.connection.local_host)
    if request.topics is None or (context.api_version == 0 and not request.topics):
        topics = [_described(context, reply, topic) async for topic in in_turns(broker.topics)]
    else:
        to_create = MAX_CREATED_A_REQUEST if getattr(request, "allow_auto_topic_creation", True) else 0
        topics = []
        seen = set()
        async for each in in_turns(request.topics):
            wanted = (getattr(each, "topic_id", None), each.name)
            if wanted in seen:  # Each topic once, however often it is asked for, as in Kafka.
                continue
            seen.add(wanted)
            before = len(broker.topics)
            topics.append(await _asked(context, reply, each, may_create=to_create > 0))
            to_create -= len(broker.topics) > before
    return reply.MetadataResponse(
        throttle_time=0,
        brokers=[reply.MetadataResponseBroker(node_id=broker.broker_id, host=host, port=port, rack=broker.rack)],
        cluster_id=broker.cluster_id,
        controller_id=broker.broker_id,
        topics=topics,
        cluster_authorized_operations=-(1 << 31),
        error_code=NONE,
    )


async def _asked(context: Context, reply: Any, asked: Any, *, may_create: bool) -> Any:
    """One topic of the request, by name or (v12+) by id."""
    broker = context.broker
    topic_id = getattr(asked, "topic_id", None)
    name: str | None = asked.name
    try:
        if topic_id is not None and topic_id != NO_TOPIC_ID:
            return _described(context, reply, broker.topics.by_id(topic_id))
        if name is None:
            raise InvalidRequest("a topic is asked for by name or by id")
        try:
            topic = broker.topics.by_name(name)
        except UnknownTopicOrPartition:
            if not (may_create and broker.settings.auto_create_topics_enable):
                raise
            check_partitions(broker, broker.settings.num_partitions)
            topic = await broker.admin.auto_create(name)
        return _described(context, reply, topic)
    except TieredError as error:
        return reply.MetadataResponseTopic(
            error_code=error_code(error),
            name=name if name is not None or context.api_version >= 12 else "",
            topic_id=topic_id,
            is_internal=False,
            partitions=[],
        )


def _described(context: Context, reply: Any, topic: Topic) -> Any:
    me = [context.broker.broker_id]
    epochs = [partition.leader_epoch for partition in topic.partitions] or [0] * topic.partition_count
    return reply.MetadataResponseTopic(
        error_code=NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            reply.MetadataResponsePartition(
                error_code=NONE,
                partition_index=index,
                leader_id=context.broker.broker_id,
                leader_epoch=leader_epoch,
                replica_nodes=me,
                isr_nodes=me,
                offline_replicas=[],
            )
            for index, leader_epoch in enumerate(epochs)
        ],
    )


API = Api(key=3, name="Metadata", min_version=0, max_version=13, handle=handle)
