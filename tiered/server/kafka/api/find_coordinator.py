"""FindCoordinator (key 10), versions 0 to 6: for a group or a transactional id the broker that holds its slot.

Answered from memory. While nobody in service holds the slot, or this broker does and starts or stops, it is
COORDINATOR_NOT_AVAILABLE, and clients ask again. Share groups (v6) are INVALID_REQUEST. The first refusals of an answer
are in words: what it says of a key may be much longer than the key.
"""

from typing import TYPE_CHECKING

from tiered.errors import InvalidRequest, TieredError
from tiered.rules.security.acl import Operation, ResourceType
from tiered.server.kafka.authorize import require, require_group
from tiered.server.kafka.dispatch import Api, Context, in_turns, replica_of
from tiered.server.kafka.error_mapping import error_code
from tiered.wire.error_codes import COORDINATOR_NOT_AVAILABLE, NONE

if TYPE_CHECKING:
    from kafka_messages.find_coordinator import Reply, Request, Response

GROUP, TRANSACTION = 0, 1
MAX_WORDS = 100


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    key_type = getattr(request, "key_type", GROUP)
    if context.api_version < 4:
        host, port, node_id, code, message = _coordinator(context, key_type, request.key)
        return reply.FindCoordinatorResponse(
            throttle_time=0, error_code=code, error_message=message, node_id=node_id, host=host, port=port
        )
    coordinators = []
    words_left = MAX_WORDS
    async for key in in_turns(request.coordinator_keys):
        host, port, node_id, code, message = _coordinator(context, key_type, key)
        words_left -= message is not None
        if words_left < 0:
            message = None
        coordinators.append(
            reply.Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=message)
        )
    return reply.FindCoordinatorResponse(throttle_time=0, coordinators=coordinators)


def _coordinator(context: Context, key_type: int, key: str) -> tuple[str, int, int, int, str | None]:
    """(host, port, node id, error code, error message)"""
    broker = context.broker
    listener = context.connection.listener.name
    here = broker.address_for(context.connection.local_host, listener)
    try:
        if key_type == TRANSACTION:
            require(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
        elif key_type == GROUP:
            require_group(context, Operation.DESCRIBE, key)
        else:
            raise InvalidRequest(f"key type {key_type} has no coordinator here")
        elsewhere = broker.groups.coordinator_elsewhere(key)
    except TieredError as error:
        return "", -1, -1, error_code(error), str(error)
    if elsewhere is None:
        return *here, broker.broker_id, NONE, None
    address = elsewhere.address(listener)
    if address is None:
        return "", -1, -1, COORDINATOR_NOT_AVAILABLE, f"broker {elsewhere.broker_id} has no listener {listener}"
    return *address, elsewhere.broker_id, NONE, None


async def of_replica(context: Context, request: "Request", reply: "Reply") -> "Response":
    code, message, replica = NONE, None, replica_of(context)
    host, port = replica.address_for(context.connection.local_host, context.connection.listener.name)
    node_id = replica.broker_id
    if getattr(request, "key_type", GROUP) != GROUP:
        refusal = replica.refusal()
        code, message, host, port, node_id = error_code(refusal), str(refusal), "", -1, -1
    if context.api_version < 4:
        return reply.FindCoordinatorResponse(
            throttle_time=0, error_code=code, error_message=message, node_id=node_id, host=host, port=port
        )
    return reply.FindCoordinatorResponse(
        throttle_time=0,
        coordinators=[
            reply.Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ],
    )


API = Api(
    10,
    "FindCoordinator",
    (0, 6),
    rights="DESCRIBE on the group or the transactional id",
    handle=handle,
    on_replica=of_replica,
)
