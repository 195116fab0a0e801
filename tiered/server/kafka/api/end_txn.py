"""EndTxn (key 26), versions 0 to 5: a producer commits its transaction, or aborts it.

Answered once the decision stands in SQL; the markers follow, and until they are written the producer's next transaction
is told CONCURRENT_TRANSACTIONS. Version 5 raises the producer's epoch (KIP-890) and answers with the new one.
"""

from typing import TYPE_CHECKING

from tiered.errors import TieredError
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.transactions.transaction_state import KEEPS_EPOCH, RAISES_EPOCH, ProducerIdAndEpoch
from tiered.server.kafka.authorize import require
from tiered.server.kafka.dispatch import Api, Context, Refused
from tiered.server.kafka.error_mapping import NONE, producer_error_code

if TYPE_CHECKING:
    from kafka_messages.end_txn import Reply, Request, Response

FIRST_THAT_KNOWS_FENCED = 2
FIRST_THAT_RAISES_THE_EPOCH = 5


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    code, told = NONE, ProducerIdAndEpoch(-1, -1)
    try:
        require(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        told = await context.broker.transactions.end(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            commits=request.committed,
            protocol=RAISES_EPOCH if context.api_version >= FIRST_THAT_RAISES_THE_EPOCH else KEEPS_EPOCH,
        )
    except TieredError as error:
        code = producer_error_code(error, knows_fenced=context.api_version >= FIRST_THAT_KNOWS_FENCED)
    return reply.EndTxnResponse(
        throttle_time=0, error_code=code, producer_id=told.producer_id, producer_epoch=told.producer_epoch
    )


API = Api(26, "EndTxn", (0, 5), rights="WRITE on the transactional id", handle=handle, on_replica=Refused())
