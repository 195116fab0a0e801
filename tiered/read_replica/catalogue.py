"""The topics and partitions of a bucket as its checkpoints tell them, in memory: a read replica's whole catalogue.

Owns the view and the one task that renews it, again and again. What changed in the bucket is taken over partition by
partition; what cannot be read leaves the last view of it as it was, and is said. Must never write anywhere, and never
list a topic before it knows its offsets.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from tiered.broker.partitions.fetch_wait import Waiters
from tiered.cold.bucket.look import ClusterLook, PartitionLook, look_at_cluster, look_at_partition
from tiered.cold.object_store import ObjectStore
from tiered.cold.single_flight import SingleFlight
from tiered.errors import (
    Corrupt,
    InvalidConfig,
    InvalidTopic,
    StoreUnavailable,
    TieredError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tiered.formats.checkpoint import TopicEntry
from tiered.ids import TopicId, TopicPartition, is_legal_topic_name
from tiered.rules.segments.cold_partition import ColdPartition
from tiered.runtime import BlockingPool, Clock, every

log = logging.getLogger(__name__)

LOOKS_AT_ONCE = 8


@dataclass(slots=True)
class CatalogueState:
    """Counts since the start, for metrics."""

    refreshes: int = 0
    failures: int = 0
    """Rounds in which the store did not answer for everything."""


class BucketCatalogue:
    """What is in one bucket. Lives on one loop, between `start` and `stop`."""

    def __init__(self, store: ObjectStore, clock: Clock, *, interval_ms: int) -> None:
        self._store = store
        self._clock = clock
        self._interval_ms = interval_ms
        self._pool = BlockingPool("look", threads=LOOKS_AT_ONCE)
        self._flights: SingleFlight[TopicPartition, None] = SingleFlight()
        self._cluster: ClusterLook | None = None
        self._by_name: Mapping[str, TopicEntry] = {}
        self._by_id: Mapping[UUID, TopicEntry] = {}
        self._looks: dict[TopicPartition, PartitionLook] = {}
        self._faults: dict[TopicPartition, TieredError] = {}
        self._seen_ms: float | None = None
        self._is_failing = False
        self._task: asyncio.Task[None] | None = None
        self.waiters = Waiters()
        """Those who wait for anything to change."""
        self.state = CatalogueState()

    # What is known

    @property
    def cluster_id(self) -> str:
        return "" if self._cluster is None else self._cluster.checkpoint.cluster_id

    @property
    def cluster_settings(self) -> Mapping[str, str]:
        """What was set for all brokers of the writing cluster at run time."""
        return {} if self._cluster is None else self._cluster.checkpoint.settings.get("", {})

    @property
    def age_ms(self) -> float:
        """How long ago the last look began that saw everything: what is here may be so old."""
        return 0.0 if self._seen_ms is None else max(0.0, self._clock.monotonic_ms() - self._seen_ms)

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Partitions whose checkpoints cannot be read: they stay as they were, if they were seen before."""
        return tuple(sorted(self._name(key) for key, error in self._faults.items() if isinstance(error, Corrupt)))

    def __iter__(self) -> Iterator[TopicEntry]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def by_name(self, name: str) -> TopicEntry:
        """The topic; InvalidTopic for an illegal name, UnknownTopicOrPartition for one that is not in the bucket."""
        topic = self._by_name.get(name)
        if topic is not None:
            return topic
        if not is_legal_topic_name(name):
            raise InvalidTopic(f"{name[:80]!r} is no topic name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'")
        raise UnknownTopicOrPartition(f"topic {name} is not in the bucket, or was not {self.age_ms:.0f} ms ago")

    def by_id(self, topic_id: UUID) -> TopicEntry:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"no topic of the bucket has the id {topic_id}; refresh metadata")
        return topic

    def partition(self, topic: TopicEntry, number: int) -> ColdPartition:
        """The partition as it was last seen. Raises UnknownTopicOrPartition; CorruptObject or StoreUnavailable when it
        was never seen whole."""
        if not 0 <= number < topic.partition_count:
            raise UnknownTopicOrPartition(f"{topic.name} has no partition {number}; refresh metadata")
        key = TopicPartition(TopicId(topic.topic_id), number)
        look = self._looks.get(key)
        if look is not None:
            return look.partition
        fault = self._faults.get(key)
        raise fault or StoreUnavailable(f"{topic.name}-{number} has not been looked at yet; try again")

    def partitions(self) -> Iterator[ColdPartition]:
        """Those that have been seen."""
        return (look.partition for look in list(self._looks.values()))

    # Keeping up

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Returns once there is a view, which is renewed from then on. Raises InvalidConfig when the bucket has no
        cluster's checkpoint, CorruptObject, StoreUnavailable."""
        self._flights.start(tasks)
        await self.refresh()
        self._task = tasks.create_task(every(self._interval_ms, self._tick, name="look at the bucket"))

    async def stop(self) -> None:
        """Looks no more. Who waits for a change is woken."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._flights.stop()
        self.waiters.wake()

    def close(self) -> None:
        """Ends the threads."""
        self._pool.close()

    async def refresh(self) -> None:
        """Looks at everything once. Raises what keeps the cluster's checkpoint from being read, and StoreUnavailable
        when the store did not answer for each partition; what it did answer is taken over."""
        started_ms = self._clock.monotonic_ms()
        cluster = await self._pool.run(look_at_cluster, self._store, self._cluster)
        if cluster is None:
            raise InvalidConfig(
                f"there is no cluster's checkpoint in {self._store.url}: are bucket and prefix those of the brokers' "
                "`--store`? A broker writes it when it starts"
            )
        topics = {topic.topic_id: topic for topic in cluster.checkpoint.topics}
        # One after the other: a checkpoint may name a million.
        left = (
            (topic, TopicPartition(TopicId(topic.topic_id), number))
            for topic in topics.values()
            for number in range(topic.partition_count)
        )

        async def look() -> None:
            for topic, key in left:
                await self._flights.result(key, partial(self._look, topic.name, key))

        await asyncio.gather(*(look() for _ in range(LOOKS_AT_ONCE)))
        self._take(cluster, topics)
        away = next((error for error in self._faults.values() if not isinstance(error, Corrupt)), None)
        if away is not None:
            raise StoreUnavailable(f"not every checkpoint could be read: {away}")
        self._seen_ms = started_ms
        self.state.refreshes += 1

    def _take(self, cluster: ClusterLook, topics: Mapping[UUID, TopicEntry]) -> None:
        if cluster is self._cluster:
            return
        self._cluster = cluster
        self._by_id = topics
        self._by_name = {topic.name: topic for topic in topics.values()}
        for key in [key for key in self._looks if not self._is_known(key)]:
            del self._looks[key]
        for key in [key for key in self._faults if not self._is_known(key)]:
            del self._faults[key]
        self.waiters.wake()

    def _is_known(self, key: TopicPartition) -> bool:
        topic = self._by_id.get(key.topic_id)
        return topic is not None and key.partition < topic.partition_count

    async def look_again(self, partition: ColdPartition) -> ColdPartition:
        """The partition as it is now. Raises UnknownTopicId when its topic went meanwhile, and what keeps its
        checkpoint from being read."""
        key = TopicPartition(TopicId(partition.topic_id), partition.partition)
        await self._flights.result(key, partial(self._look, partition.topic, key))
        fault = self._faults.get(key)
        if fault is not None:
            raise fault
        return self.partition(self.by_id(partition.topic_id), partition.partition)

    async def _look(self, topic: str, key: TopicPartition) -> None:
        before = self._looks.get(key)
        try:
            after = await self._pool.run(look_at_partition, self._store, topic, key.topic_id, key.partition, before)
        except TieredError as error:
            if isinstance(error, Corrupt) and str(error) != str(self._faults.get(key)):
                log.error("%s-%d stays as it was: %s", topic, key.partition, error)
            self._faults[key] = error
            return
        self._faults.pop(key, None)
        if after is not before:
            self._looks[key] = after
            self.waiters.wake()

    async def _tick(self) -> None:
        try:
            await self.refresh()
        except TieredError as error:
            self.state.failures += 1
            if not self._is_failing:
                self._is_failing = True
                log.warning("the bucket cannot be looked at; what was seen of it stays, tried again: %s", error)
        else:
            if self._is_failing:
                self._is_failing = False
                log.warning("the bucket is looked at again")

    def _name(self, key: TopicPartition) -> str:
        topic = self._by_id.get(key.topic_id)
        return f"{key.topic_id if topic is None else topic.name}-{key.partition}"
