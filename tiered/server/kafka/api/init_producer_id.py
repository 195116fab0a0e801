"""InitProducerId (key 22), versions 0 to 6: a producer id for an idempotent producer, or that of a transactional id.

Without a transactional id every call hands out a new id with epoch 0, from blocks that SQL grants, so no id is ever
given twice. A producer that asks to raise its epoch (v3+) gets a new id, which resets its sequence just as well.
With one the coordinator fences who had it before. Two-phase commit (v6, KIP-939) is not served: it would let a client
hold a partition's last stable offset for ever. Asking for it is INVALID_REQUEST.
"""

from typing import TYPE_CHECKING

from tiered.errors import InvalidRequest, TieredError
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch
from tiered.server.kafka.authorize import require, require_cluster, rights_of
from tiered.server.kafka.dispatch import Api, Context, Refused
from tiered.server.kafka.error_mapping import NONE, producer_error_code
from tiered.wire.error_codes import CLUSTER_AUTHORIZATION_FAILED

if TYPE_CHECKING:
    from kafka_messages.init_producer_id import Reply, Request, Response


FIRST_THAT_KNOWS_FENCED = 4
NONE_CLAIMED = ProducerIdAndEpoch(-1, -1)


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    code, given = NONE, NONE_CLAIMED
    try:
        if request.transactional_id is None:
            _require_idempotent_write(context)
            given = ProducerIdAndEpoch(await context.broker.producer_ids.next(), 0)
        else:
            given = await _transactional(context, request, request.transactional_id)
    except TieredError as error:
        code = producer_error_code(error, knows_fenced=context.api_version >= FIRST_THAT_KNOWS_FENCED)
    return reply.InitProducerIdResponse(
        throttle_time=0, error_code=code, producer_id=given.producer_id, producer_epoch=given.producer_epoch
    )


async def _transactional(context: Context, request: "Request", transactional_id: str) -> ProducerIdAndEpoch:
    require(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    if getattr(request, "enable2_pc", False) or getattr(request, "keep_prepared_txn", False):
        raise InvalidRequest("two-phase commit is not served; leave transaction.two.phase.commit.enable off")
    claimed = ProducerIdAndEpoch(getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1))
    if (claimed.producer_id == -1) != (claimed.producer_epoch == -1):
        raise InvalidRequest("a producer id and its epoch are sent together, or neither")
    return await context.broker.transactions.init_producer_id(
        transactional_id,
        request.transaction_timeout,
        None if claimed == NONE_CLAIMED else claimed,
        client=f"{(context.connection.client_id or '')[:100]} at {context.connection.host}",
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
    (0, 6),
    rights="IDEMPOTENT_WRITE on the cluster or WRITE on any topic; WRITE on the transactional id if there is one",
    handle=handle,
    on_replica=Refused(CLUSTER_AUTHORIZATION_FAILED),
)
