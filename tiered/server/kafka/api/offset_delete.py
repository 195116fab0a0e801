"""OffsetDelete (key 47), version 0: forgets what a group has committed for some partitions.

Offsets of a topic that a member of the group subscribes to are GROUP_SUBSCRIBED_TO_TOPIC, those of other topics
go while the group lives. A group that nobody knows is GROUP_ID_NOT_FOUND, a partition that does not exist
UNKNOWN_TOPIC_OR_PARTITION. What was never committed is deleted without an error.
"""

from typing import Any

from tiered.broker.groups.group import Group
from tiered.errors import GroupNotFound, GroupSubscribedToTopic, TieredError, UnknownTopicOrPartition
from tiered.ids import TopicPartition
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code


async def handle(context: Context, request: Any, reply: Any) -> Any:
    coordinator = context.broker.groups
    topics: list[Any] = []
    try:
        coordinator.check_ours(request.group_id)
        group = await coordinator.load(request.group_id)
        if group is None:
            raise GroupNotFound(f"no group has the id {request.group_id[:80]}")
        wanted: list[TopicPartition] = []
        async for topic in in_turns(request.topics):
            partitions = []
            async for asked in in_turns(topic.partitions):
                code = NONE
                try:
                    wanted.append(_key(context, group, topic.name, asked.partition_index))
                except TieredError as error:
                    code = error_code(error)
                partitions.append(
                    reply.OffsetDeleteResponsePartition(partition_index=asked.partition_index, error_code=code)
                )
            topics.append(reply.OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        if wanted:
            await coordinator.offsets.delete(request.group_id, wanted)
        code = NONE
    except TieredError as error:
        topics, code = [], error_code(error)
    return reply.OffsetDeleteResponse(error_code=code, throttle_time=0, topics=topics)


def _key(context: Context, group: Group, name: str, partition: int) -> TopicPartition:
    topic = context.broker.topics.find(name)
    if topic is None or topic.is_internal or not 0 <= partition < topic.partition_count:
        raise UnknownTopicOrPartition(f"{name[:80]} has no partition {partition}; refresh metadata")
    if not group.is_empty and group.is_subscribed_to(name):
        raise GroupSubscribedToTopic(f"group {group.group_id} reads {name}: stop its members first")
    return TopicPartition(topic.topic_id, partition)


API = Api(key=47, name="OffsetDelete", min_version=0, max_version=0, handle=handle)
