"""AddOffsetsToTxn (key 25), versions 0 to 4: a group's offsets join a producer's transaction, to be sent with it.

They are a partition of `__consumer_offsets`, that of the group's slot, as far as the transaction is concerned. A
producer of KIP-890's protocol does not ask: TxnOffsetCommit adds them.
"""

from typing import TYPE_CHECKING

from tiered.broker.partitions.topics import OFFSETS_TOPIC
from tiered.errors import TieredError
from tiered.ids import TopicPartition
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.transactions.transaction_state import KEEPS_EPOCH, ProducerIdAndEpoch
from tiered.server.kafka.authorize import require, require_group
from tiered.server.kafka.dispatch import Api, Context, Refused
from tiered.server.kafka.error_mapping import NONE, producer_error_code

if TYPE_CHECKING:
    from kafka_messages.add_offsets_to_txn import Reply, Request, Response

FIRST_THAT_KNOWS_FENCED = 2


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    broker, code = context.broker, NONE
    try:
        require(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        require_group(context, Operation.READ, request.group_id)
        offsets = TopicPartition(broker.topics.by_name(OFFSETS_TOPIC).topic_id, broker.groups.slot(request.group_id))
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        await broker.transactions.add_partitions(request.transactional_id, producer, {offsets}, protocol=KEEPS_EPOCH)
    except TieredError as error:
        code = producer_error_code(error, knows_fenced=context.api_version >= FIRST_THAT_KNOWS_FENCED)
    return reply.AddOffsetsToTxnResponse(throttle_time=0, error_code=code)


API = Api(
    25,
    "AddOffsetsToTxn",
    (0, 4),
    rights="WRITE on the transactional id, READ on the group",
    handle=handle,
    on_replica=Refused(),
)
