"""InitProducerId (key 22), versions 0 to 5: a fresh producer id, for idempotent producers.

Every call hands out a new id with epoch 0, from blocks that SQL grants, so no id is ever given twice. A
producer that asks to bump its epoch (v3+) gets a new id, which resets its sequence just as well.
Gaps: a transactional id is answered with UNSUPPORTED_VERSION; transactions are not served.
"""

from typing import TYPE_CHECKING

from tiered.errors import TieredError, UnsupportedVersion
from tiered.rules.security.acl import Operation, ResourceType
from tiered.server.kafka.authorize import require, require_cluster, rights_of
from tiered.server.kafka.dispatch import Api, Context, Refused
from tiered.server.kafka.error_mapping import NONE, error_code
from tiered.wire.error_codes import CLUSTER_AUTHORIZATION_FAILED

if TYPE_CHECKING:
    from kafka_messages.init_producer_id import Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    try:
        if request.transactional_id is not None:
            require(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
            raise UnsupportedVersion("transactions are not served; leave transactional.id unset")
        _require_idempotent_write(context)
        producer_id = await context.broker.producer_ids.next()
        code, producer_epoch = NONE, 0
    except TieredError as error:
        code, producer_id, producer_epoch = error_code(error), -1, -1
    return reply.InitProducerIdResponse(
        throttle_time=0, error_code=code, producer_id=producer_id, producer_epoch=producer_epoch
    )


def _require_idempotent_write(context: Context) -> None:
    """A principal that may write to any topic may use an idempotent producer (KIP-679)."""
    rights = rights_of(context)
    if rights is None or rights.may_any(Operation.WRITE, ResourceType.TOPIC):
        return
    require_cluster(context, Operation.IDEMPOTENT_WRITE)


# A read replica refuses with this code because an idempotent producer asks again for ever on every other one.
API = Api(
    22,
    "InitProducerId",
    (0, 5),
    rights="IDEMPOTENT_WRITE on the cluster or WRITE on any topic; WRITE on the transactional id if there is one",
    handle=handle,
    on_replica=Refused(CLUSTER_AUTHORIZATION_FAILED),
)
