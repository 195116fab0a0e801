"""A coordinator of transactions that goes by the rules alone, in memory, and the way to it from another broker."""

import asyncio
from collections.abc import Collection, Sequence
from uuid import UUID

from tiered.broker.transactions.broker_channel import AskedTransaction, Outcomes, ProducersMarker
from tiered.errors import TieredError
from tiered.ids import TopicId, TopicPartition
from tiered.meta.brokers import BrokerRow
from tiered.rules.transactions import transaction_state
from tiered.rules.transactions.transaction_state import (
    RAISES_EPOCH,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)

TOPIC = TopicId(UUID(int=7))
PRODUCER = ProducerIdAndEpoch(4000, 3)


def partition(number: int) -> TopicPartition:
    return TopicPartition(TOPIC, number)


def open_transaction(transactional_id: str, *numbers: int, producer: ProducerIdAndEpoch = PRODUCER) -> Transaction:
    """With these partitions in it."""
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=frozenset(map(partition, numbers)),
        started_at_ms=0,
        changed_at_ms=0,
    )


class RulesOnly:
    """Holds transactions, and does with them what the rules say."""

    def __init__(self, *transactions: Transaction) -> None:
        self.transactions = {each.transactional_id: each for each in transactions}
        self.asked = 0
        self.is_at_rest = False

    def at_rest(self, transactional_id: str) -> Transaction | None:
        return self.transactions.get(transactional_id) if self.is_at_rest else None

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        protocol: int,
    ) -> None:
        self.asked += 1
        self.transactions[transactional_id] = transaction_state.with_partitions(
            self.transactions.get(transactional_id), producer, frozenset(partitions), protocol=protocol, now_ms=1
        )

    async def check_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, TieredError | None]:
        self.asked += 1
        found: dict[TopicPartition, TieredError | None] = {}
        for each in partitions:
            try:
                transaction_state.check_partition(self.transactions.get(transactional_id), producer, each)
                found[each] = None
            except TieredError as error:
                found[each] = error.without_frames()
        return found


class ValuesAlong:
    """Passes questions on to coordinators by the ids of their brokers; while `gate` is clear they are on their way."""

    def __init__(self, **coordinators: RulesOnly) -> None:
        self._coordinators = coordinators
        self.gate = asyncio.Event()
        self.gate.set()
        self.requests: list[list[str]] = []
        """The transactional ids of each request."""
        self.error: TieredError | None = None

    async def add_partitions(self, coordinator: BrokerRow, asked: Sequence[AskedTransaction]) -> Sequence[Outcomes]:
        self.requests.append([each.transactional_id for each in asked])
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        rules = self._coordinators[f"broker_{coordinator.broker_id}"]
        return [await self._answer(rules, each) for each in asked]

    async def _answer(self, rules: RulesOnly, asked: AskedTransaction) -> Outcomes:
        if not asked.adds:
            return await rules.check_partitions(asked.transactional_id, asked.producer, asked.partitions)
        try:
            await rules.add_partitions(asked.transactional_id, asked.producer, asked.partitions, protocol=RAISES_EPOCH)
        except TieredError as error:
            return dict.fromkeys(asked.partitions, error)
        return dict.fromkeys(asked.partitions)

    async def write_markers(self, leader: BrokerRow, markers: Sequence[ProducersMarker]) -> Sequence[Outcomes]:
        raise AssertionError("nobody asks this")

    def close(self) -> None: ...
