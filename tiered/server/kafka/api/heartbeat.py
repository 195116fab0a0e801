"""Heartbeat (key 12), versions 0 to 4: a member of a classic group is alive, and hears of rebalances.

v3 adds static members.
"""

from typing import TYPE_CHECKING

from tiered.errors import TieredError
from tiered.rules.security.acl import Operation
from tiered.server.kafka.authorize import require_group
from tiered.server.kafka.dispatch import Api, Context, Refused
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.heartbeat import Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    code = NONE
    try:
        require_group(context, Operation.READ, request.group_id)
        await context.broker.groups.classic.heartbeat(
            request.group_id,
            member_id=request.member_id,
            instance_id=getattr(request, "group_instance_id", None),
            generation=request.generation_id,
        )
    except TieredError as error:
        code = error_code(error)
    return reply.HeartbeatResponse(throttle_time=0, error_code=code)


API = Api(12, "Heartbeat", (0, 4), rights="READ on the group", handle=handle, on_replica=Refused())
