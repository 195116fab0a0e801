"""A transactional producer on a machine of its own: it writes to several partitions, works off inputs, and fails.

Owns what such a producer knows: its epoch, its sequences, what was acknowledged. It commits only what it knows brokers
to have. Now and then it dies, hangs, or is replaced while it goes on. What it does and what it is told goes to the
checker. Must never read a broker's state but through the network.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, TypeVar, cast

from sqlalchemy import Connection

from tests.simulation.clients import ALL, REQUEST_TIMEOUT_MS, Client, Route
from tests.simulation.network import Unanswered
from tests.simulation.transaction_book import Attempt, SentOffsets
from tiered.broker.broker import Broker
from tiered.broker.groups.committed_offsets import OffsetEntry
from tiered.broker.partitions.acknowledge import acknowledged, is_acknowledged
from tiered.broker.partitions.topics import OFFSETS_TOPIC
from tiered.errors import (
    Fenced,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    MetadataUnavailable,
    OutOfOrderSequence,
    TieredError,
    TransactionAbortable,
    UnknownTopicOrPartition,
    UnstableOffset,
)
from tiered.formats import record_batch
from tiered.formats.record_batch import Record, encode_batch
from tiered.ids import TopicPartition
from tiered.rules.transactions.transaction_state import KEEPS_EPOCH, RAISES_EPOCH, ProducerIdAndEpoch
from tiered.server.kafka import transactional_batches
from tiered.server.kafka.dispatch import Context

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

TRIES = 12
"""Then a producer gives its transaction up."""
API_VERSIONS = {KEEPS_EPOCH: 11, RAISES_EPOCH: 12}
"""Of Produce."""


class Over(Exception):
    """The transaction cannot be committed any more: it is to be aborted."""


class Replaced(Exception):
    """Another producer has the transactional id, or nobody knows: a new instance begins."""


class Transactor(Client):
    """One instance after the other of one transactional id."""

    def __init__(
        self, world: "World", number: int, transactional_id: str, keys: Sequence[TopicPartition], *, protocol: int
    ) -> None:
        super().__init__(world, f"c{number}", keys[0])
        self._number = number
        self._id = transactional_id
        self._group_id = f"loop-of-{transactional_id}"
        self._protocol = protocol
        self._routes = {key: Route(world, self.name, key) for key in keys}
        self._keys = sorted(keys)
        self._coordinators: dict[str, int] = {}
        self._producer = ProducerIdAndEpoch(-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._batches = 0
        self._book = world.checker.transactions
        self._timeout_ms = self.rng.choice([1_000, 2_500, 4_000])

    async def run(self) -> None:
        world, rng = self.world, self.rng
        while not world.stops_producing:
            await asyncio.sleep(rng.expovariate(1.0))
            try:
                await self._live()
            except Replaced as error:
                world.counts[f"transactions: {error}"] += 1
        await self.leave_nothing_open()

    async def leave_nothing_open(self) -> None:
        """Whoever has an old time in SQL may be waited for: somebody starts the program once more."""
        if "clock jumps" in self.world.nemesis.faults:
            while not await self._ended_by_a_new_instance():
                pass

    async def _live(self) -> None:
        """One instance, to its end. Raises Replaced."""
        await self._initialize(claimed=None)
        while not self.world.stops_producing and self.rng.random() > 0.05:
            await asyncio.sleep(self.rng.expovariate(4.0))
            await self._transact()

    async def _ended_by_a_new_instance(self) -> bool:
        try:
            await self._initialize(claimed=None)
        except Replaced:
            return False
        return True

    def check_stored(self, conn: Connection) -> None:
        """In a SQL transaction that is about to be committed."""
        found = conn.exec_driver_sql(
            "SELECT max(committed_offset) FROM group_offset WHERE group_id = ?", (self._group_id,)
        ).scalar()
        self._book.check_position(self._group_id, found or 0)

    def forget(self, key: TopicPartition) -> None:
        """Its program writes there no more; what it has begun goes on."""
        self._keys.remove(key)

    async def prepare(self) -> Attempt:
        """A transaction of a new instance, which is left open. Raises Over, Replaced."""
        await self._initialize(claimed=None)
        attempt = self._book.begin(self._id, self._producer)
        await self._write(attempt, self.rng.randint(0, 40))
        return attempt

    # One transaction

    async def _transact(self) -> None:
        rng, world = self.rng, self.world
        attempt = self._book.begin(self._id, self._producer)
        try:
            fails_at = rng.randint(0, 40)
            await self._write(attempt, fails_at)
            commits = rng.random() < 0.8
        except Over as error:
            world.counts[f"transactions: over: {error}"] += 1
            commits = False
        if not attempt.batches and attempt.offsets is None and (commits or self._protocol == KEEPS_EPOCH):
            return  # Nothing has begun.
        attempt.asks_commit = commits
        told = await self._insist("end", lambda: self._end(attempt.producer, commits=commits))
        self._book.told(attempt, commits=commits)
        world.trace(self.name, f"{'committed' if commits else 'aborted'} {attempt}")
        world.counts["transactions committed" if commits else "transactions aborted"] += 1
        if told != self._producer and self._protocol == RAISES_EPOCH:
            self._goes_on_as(told)
        elif not commits:
            await self._initialize(claimed=self._producer)  # Of some batch nobody knows whether it arrived (KIP-360).

    async def _write(self, attempt: Attempt, fails_at: int) -> None:
        """Raises Over, Replaced."""
        rng = self.rng
        keys = rng.sample(self._keys, rng.randint(1, len(self._keys)))
        position = None
        if rng.random() < 0.5:
            position = await self._insist("position", self._position)
        if self._protocol == KEEPS_EPOCH:
            await self._insist("add", lambda: self._add(attempt, keys))
        for key in keys:
            for _ in range(rng.randint(1, 2)):
                await self._send(attempt, key)
            if fails_at == 0:
                raise Replaced("crashed")
            if fails_at == 1:
                await asyncio.sleep(rng.random() * 6.0)
            if fails_at == 2:
                raise Over("changed its mind")
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.3)
        if position is not None:
            sent = SentOffsets(self._group_id, position, position + rng.randint(1, 3))
            if self._protocol == KEEPS_EPOCH:
                await self._insist("add offsets", lambda: self._add_offsets(attempt))
            attempt.offsets = sent
            await self._insist("send offsets", lambda: self._send_offsets(attempt, sent))

    async def _send(self, attempt: Attempt, key: TopicPartition) -> None:
        sequence, count = self._sequences.get(key, 0), self.rng.randint(1, 2)
        batch = self._batch(attempt, sequence, count)
        crc = record_batch.read_header(batch, 0).crc
        attempt.batches[crc] = key
        self._book.attempts[crc] = attempt
        base_offset, leader_epoch = await self._insist(
            "produce", lambda: self._produce(key, batch, attempt.producer), self._routes[key]
        )
        self.world.checker.was_acknowledged(key, crc, base_offset, count, leader_epoch)
        self._sequences[key] = sequence + count

    def _batch(self, attempt: Attempt, sequence: int, count: int) -> bytes:
        now_ms = self.world.now_ms()
        self._batches += 1
        values = [f"t{self._number}/{attempt.number}/{self._batches}/{place}".ljust(60) for place in range(count)]
        return bytes(
            encode_batch(
                [
                    Record(offset=place, timestamp_ms=now_ms, key=None, value=value.encode())
                    for place, value in enumerate(values)
                ],
                producer_id=attempt.producer.producer_id,
                producer_epoch=attempt.producer.producer_epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )

    def _goes_on_as(self, producer: ProducerIdAndEpoch) -> None:
        if producer != self._producer:
            self._producer = producer
            self._sequences.clear()

    async def _insist(self, what: str, work: Callable[[], Awaitable[T]], route: Route | None = None) -> T:
        """Until it is answered. Raises Over where the transaction can only be aborted, Replaced where not even that:
        of an `add` without an answer nobody knows whether there is a transaction to abort."""
        for _ in range(TRIES):
            try:
                return await work()
            except (Fenced, InvalidProducerIdMapping) as error:
                raise Replaced(f"{what}: {type(error).__name__}") from error
            except (TransactionAbortable, InvalidTransactionState) as error:
                raise (Replaced if what == "end" else Over)(f"{what}: {type(error).__name__}") from error
            except OutOfOrderSequence as error:
                self.world.violate(f"a transactional producer was told {error}")
            except MetadataUnavailable as error:
                self.world.violate(f"a transactional producer was told what older ones take for the end: {error!r}")
            except (Unanswered, TieredError, OSError) as error:
                self.world.counts[f"{what}: {type(error).__name__}"] += 1
                self._coordinators.clear()
                await (route or self).rest()
        raise (Replaced if what in ("end", "initialize", "add") else Over)(f"{what}: no answer")

    # Questions

    async def _coordinator(self, name: str) -> int:
        known = self._coordinators.get(name)
        if known is None:
            known = self._coordinators[name] = await self.find_coordinator(name)
        return known

    async def _initialize(self, *, claimed: ProducerIdAndEpoch | None) -> None:
        async def initialize() -> ProducerIdAndEpoch:
            return await self.ask(
                await self._coordinator(self._id),
                lambda broker: broker.transactions.init_producer_id(self._id, self._timeout_ms, claimed),
            )

        told = await self._insist("initialize", initialize)
        self._book.initialized(self._id, told)
        self.world.trace(self.name, f"is {self._id} as {told}")
        self._goes_on_as(told)

    async def _add(self, attempt: Attempt, keys: Sequence[TopicPartition]) -> None:
        await self.ask(
            await self._coordinator(self._id),
            lambda broker: broker.transactions.add_partitions(
                self._id, attempt.producer, frozenset(keys), protocol=KEEPS_EPOCH
            ),
        )

    async def _end(self, producer: ProducerIdAndEpoch, *, commits: bool) -> ProducerIdAndEpoch:
        return await self.ask(
            await self._coordinator(self._id),
            lambda broker: broker.transactions.end(self._id, producer, commits=commits, protocol=self._protocol),
        )

    async def _produce(self, key: TopicPartition, batch: bytes, producer: ProducerIdAndEpoch) -> tuple[int, int]:
        where = await self._routes[key].leader()

        async def produce(broker: Broker) -> tuple[int, int]:
            topic = broker.topics.find_id(key.topic_id)
            if topic is None:
                raise UnknownTopicOrPartition("not here yet")
            partition = topic.partition(key.partition)
            data = memoryview(bytearray(batch))
            asked = transactional_batches.unverified(partition, data, 0, len(data))
            verification = None
            if asked is not None:
                context = cast(Context, SimpleNamespace(broker=broker, api_version=API_VERSIONS[self._protocol]))
                failed, verified = await transactional_batches.verified(context, self._id, [asked])
                if failed:
                    raise failed[0]
                verification = verified.get(0)
            appended = partition.append(
                data, 0, len(data), acks=ALL, now_ms=broker.clock.now_ms(), verified=verification
            )
            if not is_acknowledged(partition, appended, ALL):
                await acknowledged(broker.context, partition, appended, acks=ALL, timeout_ms=REQUEST_TIMEOUT_MS)
            return appended.base_offset, appended.leader_epoch

        return await self.ask(where.leader, produce)

    def _offsets_partition(self, broker: Broker) -> TopicPartition:
        return TopicPartition(broker.topics.by_name(OFFSETS_TOPIC).topic_id, broker.groups.slot(self._group_id))

    async def _add_offsets(self, attempt: Attempt) -> None:
        await self.ask(
            await self._coordinator(self._id),
            lambda broker: broker.transactions.add_partitions(
                self._id, attempt.producer, {self._offsets_partition(broker)}, protocol=KEEPS_EPOCH
            ),
        )

    async def _send_offsets(self, attempt: Attempt, sent: SentOffsets) -> None:
        """As `api.txn_offset_commit`."""

        async def send(broker: Broker) -> None:
            broker.groups.check_ours(self._group_id)
            if self._protocol == RAISES_EPOCH:
                offsets = self._offsets_partition(broker)
                outcomes = await broker.verifications.verify(self._id, attempt.producer, [offsets], adds=True)
                error = outcomes[offsets]
                if error is not None:
                    raise error
            fence = await broker.groups.check_commit(self._group_id, "", None, -1, is_transactional=True)
            entry = OffsetEntry(
                topic_id=self.key.topic_id,
                partition=self.key.partition,
                offset=sent.end,
                leader_epoch=-1,
                metadata="",
            )
            sent_with = broker.groups.offsets.submit_with_transaction(
                fence, [entry], transactional_id=self._id, producer=attempt.producer
            )
            await asyncio.shield(sent_with)

        await self.ask(await self._coordinator(self._group_id), send)

    async def _position(self) -> int:
        """How many inputs are worked off, once no transaction is about to change that."""

        async def look(broker: Broker) -> int:
            broker.groups.check_ours(self._group_id)
            found = await broker.groups.offsets.fetch_stable(self._group_id, [self.key])
            if self.key in found.unstable:
                raise UnstableOffset("a transaction has sent an offset")
            return max((row.committed_offset for row in found.offsets.values()), default=0)

        return await self.ask(await self._coordinator(self._group_id), look)
