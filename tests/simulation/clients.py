"""Producers and consumers that go by what brokers tell them, on machines of their own.

Owns their retries and their positions. They know no more than real clients do: one broker's image at a time, which may
be old. What they were told goes to the checker. Must never read a broker's state but through the network.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, TypeVar

from tests.simulation import produce
from tests.simulation.books import Batch
from tests.simulation.network import Unanswered
from tiered.broker.broker import Broker
from tiered.broker.partitions.partition import Partition
from tiered.errors import NotLeader, OffsetNotAvailable, OffsetOutOfRange, TieredError, UnknownTopicOrPartition
from tiered.formats import record_batch
from tiered.formats.record_batch import Record, encode_batch
from tiered.ids import TopicPartition
from tiered.rules.partition import read_plan

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

ALL = -1
REQUEST_TIMEOUT_MS = 1_500
TIMEOUT_S = 2.5
READ_BYTES = 4096
FIRST_PRODUCER_ID = 1_000_000_000
"""Far above what SQL gives out in a run."""


@dataclass(slots=True)
class Where:
    """What a client believes of one partition."""

    leader: int
    leader_epoch: int


class Route:
    """Finds leaders, and asks them."""

    def __init__(self, world: "World", name: str, key: TopicPartition) -> None:
        self.world = world
        self.name = name
        self.key = key
        self.rng = Random(world.rng.random())
        self._where: Where | None = None

    async def ask(self, broker_id: int, work: Callable[[Broker], Awaitable[T]]) -> T:
        """Raises Unanswered and TieredError."""
        machine = self.world.machines[broker_id]
        process = machine.process
        if process is None:
            await asyncio.sleep(0.01)
            raise Unanswered("connection refused")

        async def at_broker() -> T:
            broker = machine.broker
            if broker is None or machine.process is not process or not machine.is_serving:
                raise Unanswered("not serving")
            return await work(broker)

        return await self.world.network.call(self.name, machine.name, process, at_broker, timeout_s=TIMEOUT_S)

    async def leader(self) -> Where:
        """From any broker's image; an older epoch than one that is known already is not believed."""
        where = self._where
        if where is not None:
            return where

        async def look(broker: Broker) -> Where:
            row = broker.image.row(self.key)
            leader = broker.image.leader_of(self.key)
            if row is None or leader is None:
                raise NotLeader("nobody leads")
            return Where(leader.broker_id, row.leader_epoch)

        found = await self.ask(self.rng.choice(sorted(self.world.machines)), look)
        if found.leader_epoch < self._newest_epoch:
            raise NotLeader("that is old news")
        self._newest_epoch = found.leader_epoch
        self._where = found
        return found

    _newest_epoch = -1

    async def find_coordinator(self, name: str) -> int:
        """Of a group or a transactional id, as any broker believes; they are found in the same way."""

        async def find(broker: Broker) -> int:
            elsewhere = broker.groups.coordinator_elsewhere(name)
            return broker.broker_id if elsewhere is None else elsewhere.broker_id

        return await self.ask(self.rng.choice(sorted(self.world.machines)), find)

    async def rest(self) -> None:
        """After an error: looks for the leader anew."""
        self._where = None
        await asyncio.sleep(0.05 + self.rng.random() * 0.25)


class Client(Route, ABC):
    """Has work of its own."""

    @abstractmethod
    async def run(self) -> None:
        """What it does on its machine, until nobody writes any more or for ever."""


class Producer(Client):
    """Idempotent with acks=all: each batch is repeated until it is acknowledged. With acks=1 each is sent once."""

    def __init__(self, world: "World", number: int, key: TopicPartition, *, acks: int) -> None:
        super().__init__(world, f"c{number}", key)
        self.number = number
        self._acks = acks
        self._sequence = 0
        self._base_sequence = 0

    async def run(self) -> None:
        while not self.world.stops_producing:
            rate = self.world.plan.batches_per_second * (1.0 if self._acks == ALL else 1.6)
            await asyncio.sleep(self.rng.expovariate(rate))
            count = self.rng.randint(1, 3)
            batch = self._batch(count)
            while not await self._send(batch, count) and self._acks == ALL:
                await self.rest()

    def _batch(self, count: int) -> bytes:
        world, idempotent = self.world, self._acks == ALL
        now_ms = world.now_ms()
        values = [f"{self.number}/{self._sequence}/{place}".ljust(60).encode() for place in range(count)]
        records = [
            Record(offset=place, timestamp_ms=now_ms, key=None, value=value) for place, value in enumerate(values)
        ]
        data = encode_batch(
            records,
            producer_id=FIRST_PRODUCER_ID + self.number if idempotent else -1,
            producer_epoch=0 if idempotent else -1,
            base_sequence=self._base_sequence if idempotent else -1,
        )
        crc = record_batch.read_header(data, 0).crc
        batch = Batch(self.number if idempotent else -1, self._sequence, count)
        assert world.checker.batches.setdefault(crc, batch) == batch, "two batches with one CRC"
        self._sequence += 1
        self._base_sequence += count
        return bytes(data)

    async def _send(self, batch: bytes, count: int) -> bool:
        """True when it was acknowledged."""
        pause_s = self.world.plan.pause_s and self.rng.random() * self.world.plan.pause_s
        try:
            where = await self.leader()
            base_offset, leader_epoch = await self.ask(
                where.leader,
                lambda broker: produce.produce(
                    broker, self.key, batch, self._acks, REQUEST_TIMEOUT_MS, pause_s=pause_s
                ),
            )
        except (Unanswered, TieredError, OSError) as error:
            self.world.produce_failed(self, error)
            return False
        if self._acks == ALL:
            crc = record_batch.read_header(batch, 0).crc
            self.world.trace(self.name, f"acknowledged at {base_offset} in {leader_epoch}")
            self.world.checker.was_acknowledged(self.key, crc, base_offset, count, leader_epoch)
        return True


class IdTaker(Client):
    """Asks brokers for producer ids, of which nobody may be told one twice."""

    async def run(self) -> None:
        while not self.world.stops_producing:
            await asyncio.sleep(self.rng.expovariate(3.0))
            try:
                producer_id = await self.ask(self.rng.choice(sorted(self.world.machines)), self._take)
            except (Unanswered, TieredError, OSError) as error:
                self.world.counts[f"producer ids: {type(error).__name__}"] += 1
            else:
                self.world.checker.was_given(producer_id)

    async def _take(self, broker: Broker) -> int:
        ids = broker.producer_ids
        if self.rng.random() < 0.5:
            ids._next = ids._end  # As if a thousand others had asked before.
        return await ids.next()


class Consumer(Client):
    """Reads a partition from its beginning on, from leaders and sometimes from followers."""

    def __init__(self, world: "World", number: int, key: TopicPartition) -> None:
        super().__init__(world, f"c{number}", key)
        self.position = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.rng.random() * self.world.plan.poll_s)
            try:
                where = await self.leader()
                if self.rng.random() < 0.3:
                    await self._look_at_the_end(where)
                at_follower = self.rng.random() < 0.2
                broker_id = self.rng.choice(sorted(self.world.machines)) if at_follower else where.leader
                await self.ask(broker_id, lambda broker, where=where: self._fetch(broker, where))  # type: ignore[misc]
            except OffsetNotAvailable:
                continue
            except (Unanswered, TieredError, OSError) as error:
                self.world.fetch_failed(self, error)
                await self.rest()

    async def _look_at_the_end(self, where: Where) -> None:
        async def look(broker: Broker) -> None:
            partition = self._partition(broker)
            partition.require_leader()
            partition.check_leader_epoch(where.leader_epoch)
            if partition.is_withheld:
                raise OffsetNotAvailable("the new leader does not know yet")
            # Said here and now: on its way the answer may be overtaken.
            self.world.checker.was_reported(self.key, partition.leader_epoch, partition.high_watermark)

        await self.ask(where.leader, look)

    async def _fetch(self, broker: Broker, where: Where) -> None:
        """On the broker; what was read is taken as seen there, which is stricter than when it arrives."""
        partition = self._partition(broker)
        partition.require_replica()
        partition.check_leader_epoch(where.leader_epoch)
        offset, batches = self.position, None
        match partition.plan_read(offset, committed_only=False):
            case read_plan.Hot():
                batches = partition.read_hot(offset, READ_BYTES, committed_only=False, at_least_one=True)
            case read_plan.Cold():
                batches = await broker.reader.read_cold(partition, offset, READ_BYTES)
                self.world.counts["cold reads"] += 1
            case read_plan.CaughtUp():
                return
            case read_plan.OutsideLog():
                # A follower that is behind, or a leader that does not know yet; never what retention took.
                if offset < partition.log_start_offset:
                    self.world.violate(f"R6: {partition.name}: offset {offset} is gone, nothing deletes here")
                raise OffsetOutOfRange("not here")
        data = b"" if batches is None else batches.records.read()
        for _, header in record_batch.whole_batches(data, 0, len(data)):
            if header.end_offset <= self.position:
                continue
            if header.base_offset > self.position:
                self.world.violate(f"R6: {partition.name}: a gap from {self.position} to {header.base_offset}")
            self.world.checker.was_read(
                self.key, header.base_offset, header.record_count, (header.partition_leader_epoch, header.crc)
            )
            self.position = header.end_offset

    def _partition(self, broker: Broker) -> Partition:
        topic = broker.topics.find_id(self.key.topic_id)
        if topic is None:
            raise UnknownTopicOrPartition("not here yet")
        return topic.partition(self.key.partition)
