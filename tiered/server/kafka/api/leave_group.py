"""LeaveGroup (key 13), versions 0 to 5: members leave a group at once, instead of after their session time-out.

From v3 several members leave with one request, static ones by their instance id alone (an empty member id),
and each has an error of its own.
"""

from typing import TYPE_CHECKING

from tiered.broker.groups.classic import MAX_LEAVING
from tiered.broker.groups.values import LeavingMember
from tiered.errors import InvalidRequest, TieredError
from tiered.rules.security.acl import Operation
from tiered.server.kafka.authorize import require_group
from tiered.server.kafka.dispatch import Api, Context, Refused
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.leave_group import Reply, Request, Response

FIRST_VERSION_WITH_MEMBERS = 3


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    in_batch = context.api_version >= FIRST_VERSION_WITH_MEMBERS
    if in_batch and len(request.members) > MAX_LEAVING:
        error = InvalidRequest(f"{len(request.members)} members leave with one request; {MAX_LEAVING} at most do")
        return reply.LeaveGroupResponse(throttle_time=0, error_code=error_code(error), members=[])
    if in_batch:
        leaving = [
            LeavingMember(member_id=each.member_id, instance_id=each.group_instance_id) for each in request.members
        ]
    else:
        leaving = [LeavingMember(member_id=request.member_id, instance_id=None)]
    try:
        require_group(context, Operation.READ, request.group_id)
        answers = await context.broker.groups.classic.leave(request.group_id, leaving)
    except TieredError as error:
        return reply.LeaveGroupResponse(throttle_time=0, error_code=error_code(error), members=[])
    codes = [NONE if error is None else error_code(error) for error in answers]
    return reply.LeaveGroupResponse(
        throttle_time=0,
        error_code=NONE if in_batch else codes[0],
        members=[
            reply.MemberResponse(member_id=each.member_id, group_instance_id=each.instance_id, error_code=code)
            for each, code in zip(leaving, codes, strict=True)
        ],
    )


API = Api(13, "LeaveGroup", (0, 5), rights="READ on the group", handle=handle, on_replica=Refused())
