"""TxnOffsetCommit (key 28), versions 0 to 5: a group's positions, sent with a producer's open transaction.

They are stored before the answer goes out, and become the group's in the SQL transaction that commits the producer's.
The group's coordinator decides by the consumer's generation or epoch (from version 3 on, KIP-447) who may send some; a
producer that names no member may at any time. From version 5 on (KIP-890) the group's offsets join the transaction, and
so begin it where none is open; before, AddOffsetsToTxn came first. A partition that does not exist or a note longer
than `offset.metadata.max.bytes` fails for itself alone.

Never told: PRODUCER_FENCED (INVALID_PRODUCER_EPOCH in its place) and STALE_MEMBER_EPOCH (ILLEGAL_GENERATION), which
producers do not expect here. Without an open transaction the answer is TRANSACTION_ABORTABLE from version 4 on, else
INVALID_TXN_STATE.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tiered.broker.partitions.topics import OFFSETS_TOPIC
from tiered.errors import (
    ConcurrentTransactions,
    CoordinatorLoading,
    IllegalGeneration,
    Invalid,
    InvalidTransactionState,
    NotAuthorized,
    ProducerFenced,
    StaleMemberEpoch,
    StaleProducerEpoch,
    TieredError,
    TransactionAbortable,
)
from tiered.ids import TopicPartition
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch
from tiered.server.kafka.authorize import require, require_group
from tiered.server.kafka.dispatch import Api, Context, Later, Refused, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code
from tiered.server.kafka.offset_entries import read_entries

if TYPE_CHECKING:
    from kafka_messages.txn_offset_commit import Reply, Request, Response

FIRST_WITH_ABORTABLE = 4
FIRST_THAT_ADDS = 5
NO_GENERATION = -1


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response | Later":
    codes: dict[tuple[int, int], int] = {}
    try:
        require(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        require_group(context, Operation.READ, request.group_id)
        entries = await read_entries(context, request.topics, codes, by_id=False)
        coordinator = context.broker.groups
        coordinator.check_ours(request.group_id)
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        if entries and context.api_version >= FIRST_THAT_ADDS:
            await _add_offsets(context, request, producer)
        # After all that waits: what a member may do now is what counts.
        fence = await coordinator.check_commit(
            request.group_id,
            getattr(request, "member_id", ""),
            getattr(request, "group_instance_id", None),
            getattr(request, "generation_id", NO_GENERATION),
            is_transactional=True,
        )
        stored = coordinator.offsets.submit_with_transaction(
            fence, entries, transactional_id=request.transactional_id, producer=producer
        )
    except TieredError as error:
        return await _reply(request, reply, codes, _code(context, error))
    return Later(stored, partial(_reply_when_stored, context, request, reply, codes, stored))


async def _add_offsets(context: Context, request: "Request", producer: ProducerIdAndEpoch) -> None:
    """The group's offsets are in the producer's transaction. Raises what a producer understands."""
    broker = context.broker
    offsets = TopicPartition(broker.topics.by_name(OFFSETS_TOPIC).topic_id, broker.groups.slot(request.group_id))
    outcomes = await broker.verifications.verify(request.transactional_id, producer, [offsets], adds=True)
    error = outcomes[offsets]
    if error is not None:
        raise told(error)


def told(error: TieredError) -> TieredError:
    """The refusal of the transaction's coordinator as a producer understands it from the group's."""
    match error:
        case NotAuthorized():  # This broker's right, not the client's.
            return InvalidTransactionState(f"the transaction's coordinator adds nothing for this broker: {error}")
        case ConcurrentTransactions() | Invalid() | ProducerFenced() | StaleProducerEpoch():
            return error
    # It is not the group's coordinator that is to be found again.
    return CoordinatorLoading(f"the transaction's coordinator gave no answer; retry: {error}")


async def _reply_when_stored(
    context: Context,
    request: "Request",
    reply: "Reply",
    codes: dict[tuple[int, int], int],
    stored: "asyncio.Future[None]",
) -> "Response":
    code = NONE
    try:
        await stored
    except TieredError as error:
        code = _code(context, error.without_frames())
    return await _reply(request, reply, codes, code)


async def _reply(request: "Request", reply: "Reply", codes: dict[tuple[int, int], int], code: int) -> "Response":
    topics = []
    async for number, topic in in_turns(enumerate(request.topics)):
        results = [
            reply.TxnOffsetCommitResponsePartition(
                # A partition with an error of its own reports it, unless the whole request failed.
                partition_index=asked.partition_index,
                error_code=code or codes.get((number, place), NONE),
            )
            async for place, asked in in_turns(enumerate(topic.partitions))
        ]
        topics.append(reply.TxnOffsetCommitResponseTopic(name=topic.name, partitions=results))
    return reply.TxnOffsetCommitResponse(throttle_time=0, topics=topics)


def _code(context: Context, error: TieredError) -> int:
    match error:
        case ProducerFenced():
            return error_code(StaleProducerEpoch(str(error)))
        case StaleMemberEpoch():
            return error_code(IllegalGeneration(str(error)))
        case InvalidTransactionState() if context.api_version >= FIRST_WITH_ABORTABLE:
            return error_code(TransactionAbortable(str(error)))
    return error_code(error)


API = Api(
    28,
    "TxnOffsetCommit",
    (0, 5),
    rights="WRITE on the transactional id, READ on the group, READ on each topic",
    handle=handle,
    on_replica=Refused(),
)
