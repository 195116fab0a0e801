"""FindCoordinator (key 10), versions 0 to 6: this broker, for groups and for transactions.

Gaps: the group and transaction APIs themselves are not served yet, so a client that goes on to use them is
told at once which API is missing. Share groups (v6) are INVALID_REQUEST.
"""

from typing import Any

from tiered.errors import InvalidRequest
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

GROUP, TRANSACTION = 0, 1


async def handle(context: Context, request: Any, reply: Any) -> Any:
    broker = context.broker
    host, port = broker.address_for(context.connection.local_host)
    key_type = getattr(request, "key_type", GROUP)
    code, message, node_id = NONE, None, broker.broker_id
    if key_type not in (GROUP, TRANSACTION):
        message = f"key type {key_type} has no coordinator here"
        code, node_id, host, port = error_code(InvalidRequest(message)), -1, "", -1
    if context.api_version < 4:
        return reply.FindCoordinatorResponse(
            throttle_time=0, error_code=code, error_message=message, node_id=node_id, host=host, port=port
        )
    return reply.FindCoordinatorResponse(
        throttle_time=0,
        coordinators=[
            reply.Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=message)
            async for key in in_turns(request.coordinator_keys)
        ],
    )


API = Api(key=10, name="FindCoordinator", min_version=0, max_version=6, handle=handle)
