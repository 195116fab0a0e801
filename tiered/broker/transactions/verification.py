"""The questions of a partition's leader: is this partition in the producer's open transaction? (KIP-890)

Owns the way to the coordinator, which may be this broker, and the questions that wait. What comes for a broker while
one request to it is under way goes there together with the next. Must never append, nor take silence for a yes.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.transactions import Verification
from tiered.broker.transactions.broker_channel import AskedTransaction, Outcomes, TransactionChannels
from tiered.errors import ConcurrentTransactions, CoordinatorNotAvailable, TieredError
from tiered.ids import TopicPartition
from tiered.meta.brokers import BrokerRow
from tiered.rules.transactions.transaction_state import (
    RAISES_EPOCH,
    ProducerIdAndEpoch,
    Transaction,
    check_partition,
)

MAX_WAITING = 10_000
"""Questions for one broker. Each holds back a request of a producer, and so its connection."""
MAX_PARTITIONS = 20_000
"""In one request; as many as a Produce request may have."""
MOST_VOIDED = 5
"""Markers that may come while a partition's leader asks; each ended a transaction of the same producer."""


class CoordinatorHere(Protocol):
    """What this broker's own coordinator of transactions is asked."""

    def at_rest(self, transactional_id: str) -> Transaction | None:
        """The transaction as SQL has it, where that is known here and no request is about to change it."""

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        protocol: int,
    ) -> None:
        """Puts the partitions into the producer's transaction, which begins if none is open. Raises TieredError."""

    async def check_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, TieredError | None]:
        """Of each partition why the producer may not write to it; None where it may. Raises TieredError."""


@dataclass(slots=True, eq=False)
class _QuestionState:
    """One question that waits, until it has `outcomes`."""

    asked: AskedTransaction
    outcomes: Outcomes | None = None


@dataclass(slots=True)
class _QueueState:
    """The questions for one broker, oldest first; `turn` has who asks."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[_QuestionState] = field(default_factory=list)


class Verifications:
    """Asks for the requests of producers; each waits here for its own answer."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        here: CoordinatorHere,
        coordinator_elsewhere: Callable[[str], BrokerRow | None],
        channels: TransactionChannels,
    ) -> None:
        """`coordinator_elsewhere` gives the other broker that coordinates a transactional id, None where that is this
        one, or raises CoordinatorNotAvailable."""
        self._context = context
        self._here = here
        self._elsewhere = coordinator_elsewhere
        self._channels = channels
        self._queues: dict[int, _QueueState] = {}

    def is_open_here(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition) -> bool:
        """True where it is known without waiting that the partition is in the producer's open transaction.

        This broker coordinates it then. Where it is False, `verify` tells.
        """
        now = self._here.at_rest(transactional_id)
        if now is None:
            return False
        try:
            check_partition(now, producer, partition)
        except TieredError:
            return False
        return True

    async def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
    ) -> Outcomes:
        """Of each partition None where the producer may write to it in its open transaction, else why not.

        With `adds` the partitions are put into the transaction, which begins if none is open. While the last one is
        being ended that is tried again for a moment: the producer would have to send its records again. An error of
        the way to the coordinator is that of each partition; then nothing is known.
        """
        started_ms = self._context.clock.monotonic_ms()
        while True:
            outcomes = await self._outcomes(transactional_id, producer, partitions, adds)
            if not await self._waited(outcomes, adds, started_ms):
                return outcomes

    async def verify_appends(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Sequence[Partition], *, adds: bool
    ) -> Mapping[TopicPartition, Verification | TieredError | None]:
        """As `verify`, for the leader of these partitions: of each what its `append` is to be given for the producer's
        first batch there, None where the producer's transaction is open by now, or why it may not write.

        A marker that comes meanwhile voids the question, for the answer may be older: then it is asked again.
        """
        if not adds and not self._context.settings.transactions.transaction_partition_verification_enable:
            return _questions(producer, partitions)
        started_ms = self._context.clock.monotonic_ms()
        voided = 0
        while voided < MOST_VOIDED:
            questions = _questions(producer, partitions)
            asked = [partition for partition, question in questions.items() if question is not None]
            outcomes = await self._outcomes(transactional_id, producer, asked, adds)
            if await self._waited(outcomes, adds, started_ms):
                continue
            # The same object as long as it counts; None is the transaction that another request has opened meanwhile.
            # Where one was open that has ended, nobody vouches for the next.
            now = _questions(producer, partitions)
            if all(now[each] is None or now[each] is questions[each] for each in now if outcomes.get(each) is None):
                return {partition: outcomes.get(partition) or question for partition, question in now.items()}
            voided += 1
        error = ConcurrentTransactions("one transaction after the other was ended here meanwhile; retry")
        return dict.fromkeys((each.topic_partition for each in partitions), error)

    async def _waited(self, outcomes: Outcomes, adds: bool, started_ms: float) -> bool:
        """Whether it is worth asking again, after a pause: the last transaction is still being ended."""
        settings = self._context.settings.transactions
        if not adds or not any(isinstance(each, ConcurrentTransactions) for each in outcomes.values()):
            return False
        if self._context.clock.monotonic_ms() - started_ms >= settings.add_partitions_to_txn_retry_backoff_max_ms:
            return False
        await asyncio.sleep(settings.add_partitions_to_txn_retry_backoff_ms / 1000.0)
        return True

    async def _outcomes(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        adds: bool,
    ) -> Outcomes:
        """Asked once. An error of the way to the coordinator is that of each partition."""
        if not partitions:
            return {}
        asked = AskedTransaction(transactional_id=transactional_id, producer=producer, partitions=partitions, adds=adds)
        try:
            return await self._ask(asked)
        except TieredError as error:
            return dict.fromkeys(partitions, error.without_frames())

    async def _ask(self, asked: AskedTransaction) -> Outcomes:
        coordinator = self._elsewhere(asked.transactional_id)
        if coordinator is not None:
            return await self._ask_elsewhere(coordinator, asked)
        if not asked.adds:
            return await self._here.check_partitions(asked.transactional_id, asked.producer, asked.partitions)
        await self._here.add_partitions(asked.transactional_id, asked.producer, asked.partitions, protocol=RAISES_EPOCH)
        return dict.fromkeys(asked.partitions)

    async def _ask_elsewhere(self, coordinator: BrokerRow, asked: AskedTransaction) -> Outcomes:
        queue = self._queues.setdefault(coordinator.broker_id, _QueueState())
        if len(queue.waiting) >= MAX_WAITING:
            raise CoordinatorNotAvailable(f"too many questions wait for broker {coordinator.broker_id}; retry")
        question = _QuestionState(asked)
        queue.waiting.append(question)
        try:
            async with queue.turn:
                # Whoever had the turn before may have asked for us.
                if question.outcomes is None:
                    await self._ask_together(coordinator, queue, question)
        finally:
            if question.outcomes is None:
                queue.waiting.remove(question)
        assert question.outcomes is not None
        return question.outcomes

    async def _ask_together(self, coordinator: BrokerRow, queue: _QueueState, first: _QuestionState) -> None:
        """One request for `first` and what waits beside it. If it is given up, the others ask for themselves."""
        together = _fitting(first, queue.waiting)
        try:
            found = await self._channels.add_partitions(coordinator, [each.asked for each in together])
        except TieredError as error:
            kept = error.without_frames()
            found = [dict.fromkeys(each.asked.partitions, kept) for each in together]
        for each, outcomes in zip(together, found, strict=True):
            each.outcomes = outcomes
        queue.waiting = [each for each in queue.waiting if each.outcomes is None]


def _questions(
    producer: ProducerIdAndEpoch, partitions: Sequence[Partition]
) -> dict[TopicPartition, Verification | None]:
    return {
        each.topic_partition: each.begin_verification(producer.producer_id, producer.producer_epoch)
        for each in partitions
    }


def _fitting(first: _QuestionState, waiting: Collection[_QuestionState]) -> list[_QuestionState]:
    """What goes into one request: `first` in any case, each transactional id once."""
    together = {first.asked.transactional_id: first}
    count = len(first.asked.partitions)
    for each in waiting:
        count_with = count + len(each.asked.partitions)
        if each.asked.transactional_id not in together and count_with <= MAX_PARTITIONS:
            together[each.asked.transactional_id], count = each, count_with
    return list(together.values())
