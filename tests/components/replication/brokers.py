"""Brokers of one cluster in one event loop: real brokers, a real database, and channels that pass values along."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.follower_questions import found_for
from tests.support.partition_appends import append, batch
from tiered.broker.admin import NewTopic
from tiered.broker.broker import Broker
from tiered.broker.partitions.acknowledge import acknowledged
from tiered.broker.partitions.partition import Appended, Partition
from tiered.broker.replaceable_parts import BrokerParts
from tiered.config import BrokerSettings, ServeOptions
from tiered.errors import RequestTimedOut
from tiered.meta.brokers import BrokerRow
from tiered.meta.engine import Database
from tiered.runtime import SystemClock
from tiered.wire.fetch import FetchPartitionResult, FetchRequest, FetchResponse, FetchTopicResult

QUICK = {
    "broker.heartbeat.interval.ms": "200",
    # Long enough for a machine that other tests use too: they run beside them, with less right to a core.
    "broker.session.timeout.ms": "3000",
    "replica.fetch.wait.max.ms": "100",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "tiered.upload.interval.ms": "20",
}


class MemoryChannels:
    """Passes questions to brokers of the same process; those of a broker that is unplugged get no answer."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._unplugged: set[int] = set()
        self._open: set[MemoryChannel] = set()

    def unplug(self, broker_id: int) -> None:
        self._unplugged.add(broker_id)
        for channel in list(self._open):
            if broker_id in channel.ends:
                channel.close()

    def plug(self, broker_id: int) -> None:
        self._unplugged.discard(broker_id)

    def require(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            if broker_id in self._unplugged or broker_id not in self._cluster.brokers:
                raise RequestTimedOut(f"broker {broker_id} cannot be reached")

    def of(self, broker_id: int) -> "BrokerChannels":
        return BrokerChannels(self, broker_id)

    async def ask(self, channel: "MemoryChannel", request: FetchRequest) -> FetchResponse:
        self.require(*channel.ends)
        self._open.add(channel)
        try:
            answering = asyncio.ensure_future(answer_of(self._cluster.brokers[channel.leader_id], request))
            waited: set[asyncio.Future[Any]] = {answering, channel.closed}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if channel.closed.done():
                raise RequestTimedOut("the channel was closed")
            return answering.result()
        finally:
            answering.cancel()
            self._open.discard(channel)


class BrokerChannels:
    """One broker's channels."""

    def __init__(self, channels: MemoryChannels, broker_id: int) -> None:
        self._channels = channels
        self._broker_id = broker_id

    async def open(self, leader: BrokerRow) -> "MemoryChannel":
        self._channels.require(self._broker_id, leader.broker_id)
        return MemoryChannel(self._channels, self._broker_id, leader.broker_id)


class MemoryChannel:
    """One follower's questions to one leader."""

    def __init__(self, channels: MemoryChannels, follower_id: int, leader_id: int) -> None:
        self._channels = channels
        self.ends = (follower_id, leader_id)
        self.leader_id = leader_id
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        return await self._channels.ask(self, request)

    def close(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


async def answer_of(broker: Broker, request: FetchRequest) -> FetchResponse:
    """What the broker's door would send, as values."""
    from tiered.server.kafka.error_mapping import error_code

    found = await found_for(broker, request)
    topics = []
    for topic, entries in found.topics:
        results = []
        for entry in entries:
            partition = entry.partition
            start = -1 if partition is None else partition.log_start_offset
            if entry.error is not None or partition is None:
                assert entry.error is not None
                results.append(
                    FetchPartitionResult(entry.asked.partition, error_code(entry.error), log_start_offset=start)
                )
                continue
            records = None if entry.records is None else bytearray(entry.records.read())
            results.append(
                FetchPartitionResult(
                    entry.asked.partition,
                    0,
                    partition.high_watermark,
                    entry.segment_base_offset,
                    start,
                    records,
                    None,
                    entry.unproven_offsets,
                    diverging_epoch=entry.diverging,
                )
            )
        topics.append(FetchTopicResult(None, topic.topic_id, results))
    return FetchResponse(0, 0, 0, topics)


class Cluster:
    """Brokers 1 to n on one SQLite file and one folder as object store."""

    def __init__(
        self, root: Path, group: asyncio.TaskGroup, settings: dict[str, str], database: type[Database]
    ) -> None:
        self.root = root
        self._database = database
        self.brokers: dict[int, Broker] = {}
        self.channels = MemoryChannels(self)
        self._group = group
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._settings = BrokerSettings.of({**QUICK, **settings})

    async def start(self, broker_id: int, *, rack: str | None = None, boot_id: str = "boot") -> Broker:
        """A broker that serves, with tasks of its own."""
        options = ServeOptions(
            broker_id=broker_id,
            rack=rack or "here",
            data_dir=self.root / f"b{broker_id}",
            meta_url=f"sqlite:///{self.root / 'meta.db'}",
            store_url=f"file://{self.root / 'objects'}",
            settings=self._settings,
        )
        database = self._database.open(options.meta_url)
        if hasattr(database, "begin"):
            database.begin()
        parts = BrokerParts(database=database, channels=self.channels.of(broker_id), boot_id=boot_id)
        broker = Broker(options, SystemClock(), parts)
        ready = asyncio.Event()
        self._tasks[broker_id] = self._group.create_task(self._live(broker, ready))
        await ready.wait()
        self.brokers[broker_id] = broker
        return broker

    async def _live(self, broker: Broker, ready: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                await broker.start(tasks, advertised=("127.0.0.1", 9000 + broker.broker_id))
                ready.set()
                await asyncio.Event().wait()
        finally:
            ready.set()

    async def kill(self, broker_id: int) -> None:
        """As kill -9: nothing is flushed, nobody is told."""
        broker = self.brokers.pop(broker_id)
        task = self._tasks.pop(broker_id)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await broker.abandon()

    async def wipe(self, broker_id: int) -> None:
        """Takes the disk of a broker that is not running."""
        await asyncio.to_thread(shutil.rmtree, self.root / f"b{broker_id}")

    async def create(self, name: str, *, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        """A topic, known to every broker."""
        first = next(iter(self.brokers.values()))
        await eventually(lambda: len(first.image.live()) == len(self.brokers))
        await first.admin.create_topic(NewTopic(name=name, partition_count=partitions, configs=configs or {}))
        await eventually(lambda: all(each.topics.find(name) is not None for each in self.brokers.values()))

    def replicas(self, name: str, number: int = 0) -> dict[int, Partition]:
        """The partition on every broker that has it open."""
        found = {}
        for broker_id, broker in self.brokers.items():
            topic = broker.topics.find(name)
            hosted = None if topic is None else topic.hosted(number)
            if hosted is not None:
                found[broker_id] = hosted
        return found

    async def leader(self, name: str, number: int = 0) -> Broker:
        """The broker that leads now, as it sees it; the one of the newest epoch when several think so."""

        def newest() -> Broker | None:
            led = [
                (replica.leader_epoch, broker_id)
                for broker_id, replica in self.replicas(name, number).items()
                if replica.leadership is not None
            ]
            return self.brokers[max(led)[1]] if led else None

        await eventually(lambda: newest() is not None)
        found = newest()
        assert found is not None
        return found


@asynccontextmanager
async def cluster(
    root: Path, count: int = 3, database: type[Database] = Database, **settings: str
) -> AsyncIterator[Cluster]:
    """A cluster whose brokers are killed in the end."""
    async with asyncio.TaskGroup() as group:
        made = Cluster(root, group, {name.replace("_", "."): value for name, value in settings.items()}, database)
        try:
            for broker_id in range(1, count + 1):
                await made.start(broker_id)
            yield made
        finally:
            for broker_id in list(made.brokers):
                await made.kill(broker_id)


async def produce(cluster: Cluster, name: str, *values: str, timeout_ms: float = 5_000) -> Appended:
    """Appends one batch at the leader and waits until it is committed."""
    broker = await cluster.leader(name)
    partition = broker.topics.by_name(name).partition(0)
    appended = append(partition, batch(*values))
    await acknowledged(broker.context, partition, appended, acks=-1, timeout_ms=timeout_ms)
    return appended


async def eventually(is_so: Callable[[], bool], *, within_s: float = 10.0) -> None:
    """Returns once `is_so()`; fails after `within_s`."""
    async with asyncio.timeout(within_s):
        while not is_so():
            await asyncio.sleep(0.005)
