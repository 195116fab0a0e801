"""DeleteGroups (key 42), versions 0 to 2: groups without members, and their offsets."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tiered.errors import TieredError
from tiered.rules.security.acl import Operation
from tiered.server.kafka.audited import AuditEntry, aligned
from tiered.server.kafka.authorize import require_group
from tiered.server.kafka.dispatch import Api, Context, Refused, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.delete_groups import Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    results = [
        reply.DeletableGroupResult(group_id=group_id, error_code=await _delete(context, group_id))
        async for group_id in in_turns(request.groups_names)
    ]
    return reply.DeleteGroupsResponse(throttle_time=0, results=results)


async def _delete(context: Context, group_id: str) -> int:
    try:
        require_group(context, Operation.DELETE, group_id)
        await context.broker.groups.delete_group(group_id)
    except TieredError as error:
        return error_code(error)
    return NONE


def _told(request: "Request", answer: "Response | None") -> Iterable[AuditEntry]:
    for group_id, code in aligned(request.groups_names, answer and answer.results):
        yield AuditEntry(f"GROUP:{group_id}", code)


API = Api(42, "DeleteGroups", (0, 2), rights="DELETE on the group", handle=handle, on_replica=Refused(), audit=_told)
