"""SyncGroup (key 14), versions 0 to 5: a member's assignment; waits until the leader has sent its own SyncGroup.

v3 adds static members, v5 checks that the member means the protocol that was chosen.
"""

from typing import TYPE_CHECKING

from tiered.broker.groups.values import SyncRequest
from tiered.errors import TieredError
from tiered.rules.security.acl import Operation
from tiered.server.kafka.authorize import require_group
from tiered.server.kafka.dispatch import Api, Context, Refused
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.sync_group import Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    asked = SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
        protocol_type=getattr(request, "protocol_type", None),
        protocol_name=getattr(request, "protocol_name", None),
        assignments={each.member_id: each.assignment for each in request.assignments},
    )
    try:
        require_group(context, Operation.READ, request.group_id)
        result = await context.broker.groups.classic.sync(asked)
    except TieredError as error:
        return reply.SyncGroupResponse(
            throttle_time=0, error_code=error_code(error), protocol_type=None, protocol_name=None, assignment=b""
        )
    return reply.SyncGroupResponse(
        throttle_time=0,
        error_code=NONE,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


API = Api(
    14,
    "SyncGroup",
    (0, 5),
    rights="READ on the group",
    handle=handle,
    on_replica=Refused(),
    waits_for_clients=True,
)
