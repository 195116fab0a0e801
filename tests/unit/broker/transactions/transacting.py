"""The coordinator of transactions without the broker: a real catalogue, and leaders that take markers or do not."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.broker_rows import broker_row
from tests.unit.broker.groups.coordinators import PARTITIONS, Coordinating, coordinating
from tiered.broker.host.producer_ids import ProducerIds
from tiered.broker.transactions import coordinator
from tiered.broker.transactions.broker_channel import Outcomes, PeerTransactionChannels, ProducersMarker
from tiered.broker.transactions.coordinator import TransactionCoordinator
from tiered.broker.transactions.marker_sender import MarkerSender
from tiered.errors import ConcurrentTransactions, TieredError
from tiered.ids import InSyncReplica, TopicPartition
from tiered.meta import transactions
from tiered.meta.engine import Database
from tiered.meta.partitions import PartitionRow
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch, Transaction, TransactionState


@dataclass(slots=True)
class Leaders:
    """Takes the markers of all partitions, in memory: what was written, and what is refused for now."""

    written: list[tuple[ProducersMarker, TopicPartition]] = field(default_factory=list)
    refuse: dict[TopicPartition, TieredError] = field(default_factory=dict)
    asked: int = 0

    async def write(self, markers: Sequence[ProducersMarker]) -> Sequence[Outcomes]:
        await asyncio.sleep(0)
        self.asked += 1
        outcomes: list[Outcomes] = []
        for each in markers:
            found = {partition: self.refuse.get(partition) for partition in each.partitions}
            self.written += [(each, partition) for partition, error in found.items() if error is None]
            outcomes.append(found)
        return outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Transacting:
    groups: Coordinating
    leaders: Leaders
    coordinator: TransactionCoordinator
    partitions: tuple[TopicPartition, ...]

    async def stored(self, transactional_id: str = "payments") -> Transaction | None:
        return await self.groups.database.run(lambda conn: transactions.load(conn, transactional_id))

    async def begun(self, transactional_id: str = "payments", *, protocol: int = 1) -> ProducerIdAndEpoch:
        """A producer with a transaction open on all partitions."""
        producer = await self.initialized(transactional_id)
        await self.coordinator.add_partitions(transactional_id, producer, self.partitions, protocol=protocol)
        return producer

    async def added(self, transactional_id: str, producer: ProducerIdAndEpoch, protocol: int) -> None:
        """All partitions, as clients add them: again while the last transaction is being ended."""
        while True:
            try:
                await self.coordinator.add_partitions(transactional_id, producer, self.partitions, protocol=protocol)
                return
            except ConcurrentTransactions:
                await asyncio.sleep(0.01)

    async def initialized(
        self, transactional_id: str = "payments", claimed: ProducerIdAndEpoch | None = None, timeout_ms: int = 60_000
    ) -> ProducerIdAndEpoch:
        """As clients do: again while the last transaction is being ended."""
        while True:
            try:
                return await self.coordinator.init_producer_id(transactional_id, timeout_ms, claimed)
            except ConcurrentTransactions:
                await asyncio.sleep(0.01)

    async def until(self, state: TransactionState, transactional_id: str = "payments") -> Transaction:
        async with asyncio.timeout(5):
            while True:
                found = await self.stored(transactional_id)
                if found is not None and found.state is state:
                    return found
                await asyncio.sleep(0.01)


@asynccontextmanager
async def transacting(
    folder: Path, *, sql: type[Database] = Database, look_ms: float = 100.0, **settings: str
) -> AsyncIterator[Transacting]:
    """SQL hears soon of what is complete, and is asked soon for what others decided: many tests wait for that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "COMPLETE_AFTER_MS", 10.0)
        patch.setattr(coordinator, "RETRY_MS", 100.0)
        patch.setattr(coordinator, "LOOK_MS", look_ms)
        async with _transacting(folder, sql=sql, **settings) as made:
            yield made


@asynccontextmanager
async def _transacting(folder: Path, *, sql: type[Database], **settings: str) -> AsyncIterator[Transacting]:
    async with coordinating(folder, sql=sql, **settings) as groups, asyncio.TaskGroup() as tasks:
        made = start(groups, tasks)
        try:
            yield made
        finally:
            await made.coordinator.stop()


def start(groups: Coordinating, tasks: asyncio.TaskGroup) -> Transacting:
    """This broker leads every partition of `orders`."""
    topic_id = groups.topics.by_name("orders").topic_id
    partitions = tuple(TopicPartition(topic_id, number) for number in range(PARTITIONS))
    _lead(groups, partitions)
    leaders = Leaders()
    coordinator = TransactionCoordinator(
        context=groups.context,
        slots=groups.groups.slots,
        slot_of=groups.groups.slot,
        is_ours=groups.groups.is_ours,
        commits=groups.groups.offsets.commits,
        producer_ids=ProducerIds(groups.database),
        markers=MarkerSender(
            context=groups.context,
            image=groups.image,
            topics=groups.topics,
            channels=PeerTransactionChannels(groups.broker_id, topics=groups.topics),
            write_here=leaders.write,
        ),
    )
    groups.groups.on_slots_changed = coordinator.slots_changed
    # The feed has brought the slots.
    groups.image.change_number = max(
        each or 0 for each in map(groups.groups.slots.held_since, groups.groups.slots.epochs)
    )
    coordinator.start(tasks)
    coordinator.slots_changed((), tuple(groups.groups.slots.epochs))
    return Transacting(groups=groups, leaders=leaders, coordinator=coordinator, partitions=partitions)


def _lead(groups: Coordinating, partitions: Sequence[TopicPartition]) -> None:
    me = InSyncReplica(groups.broker_id, groups.broker_epoch)
    groups.image.put_brokers([broker_row(me.broker_id, me.broker_epoch)], 0.0)
    for each in partitions:
        groups.image.put_row(
            PartitionRow(
                topic_id=each.topic_id,
                partition=each.partition,
                leader=me.broker_id,
                leader_epoch=0,
                partition_epoch=0,
                isr=(me,),
                replicas=(me.broker_id,),
                log_start_offset=0,
                cold_end_offset=0,
                change_number=1,
            )
        )
