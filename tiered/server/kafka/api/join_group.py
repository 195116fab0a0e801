"""JoinGroup (key 11), versions 0 to 9: become a member of a classic group, or rejoin it; waits for the rebalance.

From v4 a new member without an instance id is given its id first (MEMBER_ID_REQUIRED). v5 adds static members,
v7 names the protocol type in the answer, v9 tells a returning static leader to skip the assignment.
"""

from typing import TYPE_CHECKING

from tiered.broker.groups.values import JoinRequest, MemberProtocol
from tiered.errors import InvalidRequest, MemberIdRequired, TieredError
from tiered.rules.security.acl import Operation
from tiered.server.kafka.authorize import require_group
from tiered.server.kafka.dispatch import Api, Context, Refused
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.join_group import Reply, Request, Response

NO_GENERATION = -1
FIRST_VERSION_WITH_KNOWN_MEMBERS = 4
FIRST_VERSION_WITH_PROTOCOL_TYPE = 7
FIRST_VERSION_WITH_SKIPPING = 9
MAX_PROTOCOLS = 100


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    try:
        require_group(context, Operation.READ, request.group_id)
        result = await context.broker.groups.classic.join(_asked(context, request))
    except TieredError as error:
        return reply.JoinGroupResponse(
            throttle_time=0,
            error_code=error_code(error),
            generation_id=NO_GENERATION,
            protocol_type=None,
            protocol_name=None if context.api_version >= FIRST_VERSION_WITH_PROTOCOL_TYPE else "",
            leader="",
            member_id=error.member_id if isinstance(error, MemberIdRequired) else request.member_id,
            members=[],
        )
    return reply.JoinGroupResponse(
        throttle_time=0,
        error_code=NONE,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            reply.JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )


def _asked(context: Context, request: "Request") -> JoinRequest:
    """Raises InvalidRequest."""
    if len(request.protocols) > MAX_PROTOCOLS:
        raise InvalidRequest(f"a member names {MAX_PROTOCOLS} protocols at most (partition.assignment.strategy)")
    rebalance_timeout_ms = getattr(request, "rebalance_timeout", -1)
    return JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=context.connection.client_id or "",
        client_host=f"/{context.connection.host}",
        session_timeout_ms=request.session_timeout,
        # Version 0 has no rebalance time-out.
        rebalance_timeout_ms=rebalance_timeout_ms if rebalance_timeout_ms >= 0 else request.session_timeout,
        protocol_type=request.protocol_type,
        protocols=tuple(MemberProtocol(name=each.name, metadata=each.metadata) for each in request.protocols),
        requires_known_member_id=context.api_version >= FIRST_VERSION_WITH_KNOWN_MEMBERS,
        supports_skipping_assignment=context.api_version >= FIRST_VERSION_WITH_SKIPPING,
    )


API = Api(
    11,
    "JoinGroup",
    (0, 9),
    rights="READ on the group",
    handle=handle,
    on_replica=Refused(),
    waits_for_clients=True,
)
