"""ListGroups (key 16), versions 0 to 5: the groups that this broker coordinates.

v4 filters by state and shows it, v5 the same by type. Filters ignore case; an unknown state or type matches nothing. A
client that may not describe the cluster sees the groups that it may describe.
"""

from typing import TYPE_CHECKING

from tiered.errors import TieredError
from tiered.rules.security.acl import CLUSTER_NAME, Operation, ResourceType
from tiered.rules.security.authorization import EVERYTHING
from tiered.server.kafka.authorize import may, scope_of
from tiered.server.kafka.dispatch import Api, Context
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.list_groups import Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request, "types_filter", ())}
    may_all = may(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    scope = EVERYTHING if may_all else scope_of(context, Operation.DESCRIBE, ResourceType.GROUP)
    try:
        groups = [
            reply.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.kind.value,
            )
            async for group in context.broker.groups.list_groups(scope)
            if (may_all or may(context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
            and (not states or group.state.lower() in states)
            and (not types or group.kind.value in types)
        ]
    except TieredError as error:
        return reply.ListGroupsResponse(throttle_time=0, error_code=error_code(error), groups=[])
    return reply.ListGroupsResponse(throttle_time=0, error_code=NONE, groups=groups)


async def of_replica(_context: Context, _request: "Request", reply: "Reply") -> "Response":
    return reply.ListGroupsResponse(throttle_time=0, error_code=NONE, groups=[])


API = Api(
    16,
    "ListGroups",
    (0, 5),
    rights="DESCRIBE on the cluster; else those groups are listed that may be described",
    handle=handle,
    on_replica=of_replica,
)
