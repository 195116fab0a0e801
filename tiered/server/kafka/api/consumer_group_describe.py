"""ConsumerGroupDescribe (key 69), versions 0 and 1: KIP-848 groups with their members and epochs.

Each member shows what it may use now and what the target gives it; from v1 on also whether it speaks the classic
protocol (0) or the new one (1). A group that runs the classic protocol, or none of that id, is GROUP_ID_NOT_FOUND.
A group that uses a topic which the client may not describe is TOPIC_AUTHORIZATION_FAILED, as its members would tell.
"""

from typing import TYPE_CHECKING

from tiered.broker.groups.consumer_group import ConsumerGroup
from tiered.errors import TieredError, TopicNotAuthorized
from tiered.rules.groups.assignors import Partitions
from tiered.rules.groups.consumer_member import Member
from tiered.rules.security.acl import Operation, ResourceType
from tiered.server.kafka.authorize import NOT_ASKED, authorized_operations, may, require_group, rights_of
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.consumer_group_describe import Replies, Reply, Request, Response

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    groups = [await _group(context, request, reply, group_id) async for group_id in in_turns(request.group_ids)]
    return reply.ConsumerGroupDescribeResponse(throttle_time=0, groups=groups)


async def _group(context: Context, request: "Request", reply: "Reply", group_id: str) -> "Replies.DescribedGroup":
    try:
        require_group(context, Operation.DESCRIBE, group_id)
        group = await context.broker.groups.consumer.group(group_id)
        _require_topics(context, group)
    except TieredError as error:
        return reply.DescribedGroup(
            error_code=error_code(error),
            error_message=str(error),
            group_id=group_id,
            group_state="Dead",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
            authorized_operations=NOT_ASKED,
        )
    return reply.DescribedGroup(
        error_code=NONE,
        error_message=None,
        group_id=group_id,
        group_state=group.phase.value,
        group_epoch=group.state.epoch,
        assignment_epoch=group.state.target_epoch,
        assignor_name=group.state.assignor,
        members=[_member(context, reply, group, member) for member in group.state],
        authorized_operations=authorized_operations(
            context, ResourceType.GROUP, group_id, asked=request.include_authorized_operations
        ),
    )


def _require_topics(context: Context, group: ConsumerGroup) -> None:
    """Raises TopicNotAuthorized when the answer would name a topic that the client may not describe."""
    if rights_of(context) is None:
        return
    names: set[str] = set()
    for member in group.state:
        names.update(member.topics)
        for held in (member.assigned, group.state.target_of(member.member_id)):
            found = (context.broker.topics.find_id(topic_id) for topic_id in held)
            names.update(topic.name for topic in found if topic is not None)
    if not all(may(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        raise TopicNotAuthorized("not allowed: the right DESCRIBE is missing on a topic that the group's members read")


def _member(context: Context, reply: "Reply", group: ConsumerGroup, member: Member) -> "Replies.Member":
    return reply.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern.text or None,
        assignment=_assignment(context, reply, member.assigned),
        target_assignment=_assignment(context, reply, group.state.target_of(member.member_id)),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(context: Context, reply: "Reply", partitions: Partitions) -> "Replies.Assignment":
    """Topics that were deleted are left out."""
    topics = context.broker.topics
    return reply.Assignment(
        topic_partitions=[
            reply.TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(held))
            for topic_id, held in partitions.items()
            if (topic := topics.find_id(topic_id)) is not None
        ]
    )


API = Api(
    69, "ConsumerGroupDescribe", (0, 1), rights="DESCRIBE on the group and on every topic of its members", handle=handle
)
