"""OffsetDelete (key 47), version 0: forgets what a group has committed for some partitions.

Offsets of a topic that a member of the group subscribes to are GROUP_SUBSCRIBED_TO_TOPIC, those of other topics
go while the group lives. A group with members of another type than consumers, or whose subscription cannot be read,
is NON_EMPTY_GROUP. A group that nobody knows is GROUP_ID_NOT_FOUND, a partition that does not exist
UNKNOWN_TOPIC_OR_PARTITION. What was never committed is deleted without an error.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tiered.broker.groups.group import Group
from tiered.errors import GroupNotEmpty, GroupNotFound, GroupSubscribedToTopic, TieredError, UnknownTopicOrPartition
from tiered.ids import TopicPartition
from tiered.rules.security.acl import Operation
from tiered.server.kafka.audited import MAX_ITEMS, AuditEntry, codes_of, summed
from tiered.server.kafka.authorize import require_group, require_topic
from tiered.server.kafka.dispatch import Api, Context, Refused, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code
from tiered.wire.consumer_protocol import PROTOCOL_TYPE

if TYPE_CHECKING:
    from kafka_messages.offset_delete import Replies, Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    coordinator = context.broker.groups
    topics: list[Replies.OffsetDeleteResponseTopic] = []
    try:
        require_group(context, Operation.DELETE, request.group_id)
        coordinator.check_ours(request.group_id)
        group = await coordinator.load(request.group_id)
        if group is None:
            raise GroupNotFound(f"no group has the id {request.group_id[:80]}")
        if not group.is_empty and group.summary().protocol_type != PROTOCOL_TYPE:
            raise GroupNotEmpty(f"group {request.group_id[:80]} has members that are no consumers; stop them first")
        wanted: list[TopicPartition] = []
        async for topic in in_turns(request.topics):
            partitions = []
            is_read = _is_read(group, topic.name)
            async for asked in in_turns(topic.partitions):
                code = NONE
                try:
                    wanted.append(_key(context, request.group_id, topic.name, asked.partition_index, is_read=is_read))
                except TieredError as error:
                    code = error_code(error)
                partitions.append(
                    reply.OffsetDeleteResponsePartition(partition_index=asked.partition_index, error_code=code)
                )
            topics.append(reply.OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        if wanted:
            # Members may join, and commit, before it is this group's turn: what they commit must not go.
            await coordinator.offsets.delete(
                request.group_id, wanted, check=lambda: _check_unread(context, request.group_id, wanted)
            )
        code = NONE
    except TieredError as error:
        topics, code = [], error_code(error)
    return reply.OffsetDeleteResponse(error_code=code, throttle_time=0, topics=topics)


def _check_unread(context: Context, group_id: str, wanted: list[TopicPartition]) -> None:
    group = context.broker.groups.find(group_id)
    if group is None:
        return
    for topic_id in {each.topic_id for each in wanted}:
        topic = context.broker.topics.find_id(topic_id)
        if topic is not None and _is_read(group, topic.name):
            raise GroupSubscribedToTopic(f"group {group_id} reads {topic.name}: stop its members first")


def _is_read(group: Group, topic: str) -> bool:
    """Raises GroupNotEmpty where nobody can tell."""
    if group.is_empty:
        return False
    is_read = group.is_subscribed_to(topic)
    if is_read is None:
        raise GroupNotEmpty(f"what the members of group {group.group_id[:80]} read is unknown; stop them first")
    return is_read


def _key(context: Context, group_id: str, name: str, partition: int, *, is_read: bool) -> TopicPartition:
    require_topic(context, Operation.READ, name)
    topic = context.broker.topics.find(name)
    if topic is None or topic.is_internal or not 0 <= partition < topic.partition_count:
        raise UnknownTopicOrPartition(f"{name[:80]} has no partition {partition}; refresh metadata")
    if is_read:
        raise GroupSubscribedToTopic(f"group {group_id} reads {name}: stop its members first")
    return TopicPartition(topic.topic_id, partition)


def _told(request: "Request", answer: "Response | None") -> Iterable[AuditEntry]:
    code: int | None = None
    partly: dict[str, object] = {}
    if answer is not None:
        found = [code for each in answer.topics for code in codes_of(each.partitions)]
        code, partly = summed([int(answer.error_code)] if answer.error_code or not found else found)
    topics = [each.name[:249] for each in request.topics[:MAX_ITEMS]]
    yield AuditEntry(f"GROUP:{request.group_id}", code, {"topics": topics, **partly})


API = Api(
    47,
    "OffsetDelete",
    (0, 0),
    rights="DELETE on the group, READ on each topic",
    handle=handle,
    on_replica=Refused(),
    audit=_told,
)
