"""DescribeGroups (key 15), versions 0 to 6: classic groups with their members, metadata and assignments.

A group that is not known, or runs the consumer protocol (ConsumerGroupDescribe has those), is Dead: without an
error up to v5, GROUP_ID_NOT_FOUND in v6 (KIP-1043). `include_authorized_operations` is answered from v3 on, of every
group without an error.
"""

from typing import TYPE_CHECKING

from tiered.broker.groups.values import GroupDescription, GroupKind
from tiered.errors import GroupNotFound, TieredError
from tiered.rules.groups.group_state import GroupState
from tiered.rules.security.acl import Operation, ResourceType
from tiered.server.kafka.authorize import NOT_ASKED, authorized_operations, require_group
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.describe_groups import Replies, Reply, Request, Response

FIRST_VERSION_WITH_NOT_FOUND = 6


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    return reply.DescribeGroupsResponse(
        throttle_time=0,
        groups=[await _one(context, request, reply, group_id) async for group_id in in_turns(request.groups)],
    )


async def _one(context: Context, request: "Request", reply: "Reply", group_id: str) -> "Replies.DescribedGroup":
    group, state = None, GroupState.DEAD.value
    try:
        require_group(context, Operation.DESCRIBE, group_id)
        group = await context.broker.groups.describe(group_id)
        if group.kind is not GroupKind.CLASSIC:
            group = None
            raise GroupNotFound(f"group {group_id} is not a classic group; describe it as a consumer group")
        state = group.state
    except GroupNotFound as error:
        if context.api_version >= FIRST_VERSION_WITH_NOT_FOUND:
            return _described(reply, group_id, code=error_code(error), message=str(error), state=state)
    except TieredError as error:
        return _described(reply, group_id, code=error_code(error), message=str(error))
    asked = getattr(request, "include_authorized_operations", False)
    operations = authorized_operations(context, ResourceType.GROUP, group_id, asked=asked)
    return _described(reply, group_id, group=group, state=state, operations=operations)


def _described(
    reply: "Reply",
    group_id: str,
    *,
    code: int = NONE,
    message: str | None = None,
    state: str = "",
    group: GroupDescription | None = None,
    operations: int = NOT_ASKED,
) -> "Replies.DescribedGroup":
    return reply.DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type=group.protocol_type if group is not None else "",
        protocol_data=group.protocol_name if group is not None else "",
        members=[
            reply.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata_bytes,
                member_assignment=member.assignment_bytes,
            )
            for member in (group.members if group is not None else ())
        ],
        authorized_operations=operations,
    )


API = Api(15, "DescribeGroups", (0, 6), rights="DESCRIBE on the group", handle=handle)
