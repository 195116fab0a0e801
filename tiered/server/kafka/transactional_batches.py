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

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.header.producer_id, self.header.producer_epoch)


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


def verified_at_once(
    context: Context, transactional_id: str, batches: Iterable[Unverified | None]
) -> Beforehand | None:
    """As `verified`, where all of these batches may be appended, and their coordinator is here and knows it; else
    None."""
    verifications: dict[int, Verification] = {}
    for each in batches:
        if each is not None:
            partition = each.partition.topic_partition
            if not context.broker.verifications.is_open_here(transactional_id, each.producer, partition):
                return None
            verifications[each.position] = each.verification
    return Beforehand({}, verifications)


async def verified(context: Context, transactional_id: str, batches: Sequence[Unverified]) -> Beforehand:
    """Which of these batches may be appended, by their coordinator's word; why the others may not, for this client."""
    broker = context.broker
    producers = {each.producer for each in batches}
    partitions = {each.partition.topic_partition: each.partition for each in batches}
    found: Mapping[TopicPartition, Verification | TieredError | None]
    if len(producers) > 1:
        error = InvalidProducerIdMapping("a transactional id has one producer, and this request names several")
        found = dict.fromkeys(partitions, error)
    else:
        found = await broker.verifications.verify_appends(
            transactional_id,
            producers.pop(),
            list(partitions.values()),
            adds=context.api_version >= FIRST_THAT_ADDS,
        )
    now_ms = broker.clock.now_ms()
    failed: dict[int, TieredError] = {}
    verifications: dict[int, Verification] = {}
    for each in batches:
        outcome = found[each.partition.topic_partition]
        if isinstance(outcome, TieredError):
            failed[each.position] = _refused(each, told(outcome, context.api_version), now_ms)
        elif outcome is not None:
            verifications[each.position] = outcome
    return Beforehand(failed, verifications)


def refused_for_now(batches: Iterable[Unverified | None], now_ms: int) -> Beforehand:
    """There is no room for requests that wait."""
    error = NotEnoughReplicas("too many requests of transactions wait for their coordinators; nothing was appended")
    return Beforehand({each.position: _refused(each, error, now_ms) for each in batches if each is not None}, {})


def _refused(batch: Unverified, error: TieredError, now_ms: int) -> TieredError:
    if isinstance(error, Retriable):
        # The producer's next batches are on their way, and none of them must be taken for its first.
        batch.partition.producers.refused(batch.header, error, now_ms)
    return error


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
