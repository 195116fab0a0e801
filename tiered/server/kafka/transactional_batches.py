"""The batches of transactions in a Produce request: which wait for their coordinator's word, and what its answer means.

Owns the errors that clients of each version understand (KIP-890). Must never append: `api.produce` does.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.transactions import Verification
from tiered.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    NotAuthorized,
    NotEnoughReplicas,
    ProducerFenced,
    Retriable,
    StaleProducerEpoch,
    TieredError,
    TransactionAbortable,
)
from tiered.formats import record_batch
from tiered.formats.record_batch import BatchHeader
from tiered.ids import TopicPartition
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch
from tiered.server.kafka.dispatch import Context

FIRST_WITH_ABORTABLE = 11
FIRST_THAT_ADDS = 12
"""From here on a producer adds no partition itself: its batches do."""


class Unverified(NamedTuple):
    """A batch whose producer has no transaction open on its partition."""

    partition: Partition
    position: int
    header: BatchHeader
    verification: Verification


class Beforehand(NamedTuple):
    """What is known of batches, by their positions, before they are appended."""

    failed: Mapping[int, TieredError]
    verifications: Mapping[int, Verification]


NOTHING = Beforehand({}, {})


def unverified(partition: Partition, buffer: memoryview, position: int, end: int) -> Unverified | None:
    """What the coordinator must be asked before this transactional batch is appended; None for nothing.

    What is wrong with the batch itself is said when its turn comes.
    """
    if partition.leadership is None:
        return None
    try:
        header = record_batch.read_header(buffer, position, end)
    except TieredError:
        return None
    if header.producer_id < 0:
        return None
    verification = partition.begin_verification(header.producer_id, header.producer_epoch)
    return None if verification is None else Unverified(partition, position, header, verification)


async def verified(context: Context, transactional_id: str, batches: Sequence[Unverified]) -> Beforehand:
    """Which of these batches may be appended, by their coordinator's word; why the others may not, for this client."""
    broker = context.broker
    adds = context.api_version >= FIRST_THAT_ADDS
    producers = {ProducerIdAndEpoch(each.header.producer_id, each.header.producer_epoch) for each in batches}
    partitions = list(dict.fromkeys(each.partition.topic_partition for each in batches))
    outcomes: Mapping[TopicPartition, TieredError | None]
    if len(producers) > 1:
        outcomes = dict.fromkeys(
            partitions, InvalidProducerIdMapping("a transactional id has one producer, and this request names several")
        )
    elif adds or broker.settings.transactions.transaction_partition_verification_enable:
        outcomes = await broker.verifications.verify(transactional_id, producers.pop(), partitions, adds=adds)
    else:
        outcomes = dict.fromkeys(partitions)
    errors = {partition: told(error, context.api_version) for partition, error in outcomes.items() if error is not None}
    return _beforehand(batches, errors, broker.clock.now_ms())


def refused_for_now(batches: Iterable[Unverified | None], now_ms: int) -> Beforehand:
    """There is no room for requests that wait."""
    error = NotEnoughReplicas("too many requests of transactions wait for their coordinators; nothing was appended")
    asked = [each for each in batches if each is not None]
    return _beforehand(asked, {each.partition.topic_partition: error for each in asked}, now_ms)


def _beforehand(batches: Sequence[Unverified], errors: Mapping[TopicPartition, TieredError], now_ms: int) -> Beforehand:
    failed: dict[int, TieredError] = {}
    verifications: dict[int, Verification] = {}
    for each in batches:
        error = errors.get(each.partition.topic_partition)
        if error is None:
            verifications[each.position] = each.verification
            continue
        failed[each.position] = error
        if isinstance(error, Retriable):
            # The producer's next batches are on their way, and must not be taken for its first.
            each.partition.producers.refused(each.header, error, now_ms)
    return Beforehand(failed, verifications)


def told(error: TieredError, api_version: int) -> TieredError:
    """The coordinator's refusal as a client of this version understands it.

    What may pass is NotEnoughReplicas: old clients try again on it, and ask nobody for a new leader.
    """
    match error:
        case TransactionAbortable() if api_version < FIRST_WITH_ABORTABLE:
            return InvalidTransactionState(str(error))
        case ConcurrentTransactions() if api_version >= FIRST_THAT_ADDS:
            return error
        case ProducerFenced():
            return StaleProducerEpoch(str(error))
        case TransactionAbortable() | InvalidTransactionState() | InvalidProducerIdMapping() | StaleProducerEpoch():
            return error
        case NotAuthorized():  # This broker's right, not the client's.
            return InvalidTransactionState(f"the coordinator verifies nothing for this broker: {error}")
    return NotEnoughReplicas(f"the coordinator of the transaction gave no answer, nothing was appended: {error}")
