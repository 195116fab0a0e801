"""UnregisterBroker (key 64), version 0: forgets a broker that will not come back.

Difference to Kafka: one that is in service, or that partitions still name, is refused (POLICY_VIOLATION), because
nothing would ever be moved away from it. It comes back when it is started again.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tiered.errors import TieredError
from tiered.rules.security.acl import Operation
from tiered.server.kafka.audited import AuditEntry
from tiered.server.kafka.authorize import require_cluster
from tiered.server.kafka.dispatch import Api, Context, Refused
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.unregister_broker import Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    code, message = NONE, None
    try:
        require_cluster(context, Operation.ALTER)
        await context.broker.reassignments.unregister(request.broker_id)
    except TieredError as error:
        code, message = error_code(error), str(error)
    return reply.UnregisterBrokerResponse(throttle_time=0, error_code=code, error_message=message)


def _told(request: "Request", answer: "Response | None") -> Iterable[AuditEntry]:
    yield AuditEntry(f"BROKER:{request.broker_id}", None if answer is None else int(answer.error_code))


API = Api(
    64, "UnregisterBroker", (0, 0), rights="ALTER on the cluster", handle=handle, on_replica=Refused(), audit=_told
)
