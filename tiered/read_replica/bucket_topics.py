"""The topics and partitions of a bucket as its checkpoints tell them, in memory: a read replica knows no more.

Owns the view and the one task that renews it, again and again. Changes of the bucket are taken over partition by
partition; a partition that cannot be read keeps its last view, and is logged. Must never write anywhere, and never list
a topic before it knows its offsets.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from tiered.broker.partitions.fetch_wait import Waiters
from tiered.broker.partitions.leadership import Leadership
from tiered.broker.partitions.readable import Readable
from tiered.cold.bucket.look import ClusterLook, PartitionLook, look_at_cluster, look_at_partition
from tiered.cold.object_store import ObjectStore
from tiered.cold.single_flight import SingleFlight
from tiered.errors import (
    Corrupt,
    InvalidConfig,
    InvalidTopic,
    OffsetNotAvailable,
    OffsetOutOfRange,
    StoreRefused,
    StoreUnavailable,
    TieredError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tiered.file_slice import ReadBatches
from tiered.formats.checkpoint import CommittedSegment, TopicEntry
from tiered.formats.segment_check import ExpectedSegment
from tiered.ids import TopicId, TopicPartition, is_legal_topic_name
from tiered.metrics import TrafficState
from tiered.rules.partition import read_plan
from tiered.rules.partition.partition_state import PartitionOffsets
from tiered.rules.segments.cold_partition import ColdPartition
from tiered.runtime import BlockingPool, Clock, QuietFailures, Worker, every

log = logging.getLogger(__name__)

LOOKS_AT_ONCE = 8
MAX_UNANSWERED = 8
"""Partitions of which the store gives no checkpoint; after so many a look ends."""
OF_ONE_PARTITION = (Corrupt, StoreRefused)
"""Faults of a checkpoint that say nothing of others, which are looked at, and end no start."""


@dataclass(slots=True)
class BucketTopicsState:
    """Counts since the start, for metrics."""

    refreshes: int = 0
    failures: int = 0
    """Rounds in which the store did not answer for everything."""


class BucketPartition:
    """One partition as the last look has seen it, told as a broker tells of one (`broker.partitions.readable`).

    It ends where the store does, nobody leads it, and what is cold is never truncated: any leader epoch will do.
    """

    __slots__ = ("look", "waiters")

    leadership: Leadership | None = None
    leader_epoch = -1
    is_withheld = False
    traffic = TrafficState()
    """Of all of them: nobody asks for that of one."""

    def __init__(self, look: PartitionLook, waiters: Waiters) -> None:
        self.look = look
        self.waiters = waiters

    @property
    def cold(self) -> ColdPartition:
        return self.look.partition

    @property
    def name(self) -> str:
        return self.cold.name

    @property
    def log_start_offset(self) -> int:
        return self.cold.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self.cold.cold_end_offset

    @property
    def last_stable_offset(self) -> int:
        return self.cold.cold_end_offset

    @property
    def offsets(self) -> PartitionOffsets:
        end = self.cold.cold_end_offset
        return PartitionOffsets(
            log_start_offset=self.cold.log_start_offset,
            local_log_start_offset=end,
            cold_end_offset=end,
            last_stable_offset=end,
            high_watermark=end,
            log_end_offset=end,
        )

    @property
    def committed(self) -> Sequence[CommittedSegment]:
        return self.cold.segments

    def require_leader(self) -> None: ...
    def require_readable(self, leader_epoch: int, offset: int, *, names_rack: bool) -> None: ...
    def check_leader_epoch(self, claimed: int) -> None: ...

    def plan_read(self, offset: int, *, committed_only: bool) -> read_plan.Plan:  # noqa: ARG002 - all is committed
        """Cold, CaughtUp, or OutOfRange; never Hot."""
        return self.cold.plan_read(offset)

    def read_hot(self, offset: int, *_: object, **__: object) -> ReadBatches | None:
        raise AssertionError(f"{self.name}: nothing is hot, and {offset} is asked for")

    def outside(self, plan: read_plan.OutsideLog) -> TieredError:
        """Above the end it is OffsetNotAvailable: brokers may have what is not in the bucket yet, and nobody is sent
        back to the beginning for it."""
        if plan.offset > plan.log_end_offset:
            return OffsetNotAvailable(
                f"{self.name}: offset {plan.offset} is not in the bucket, which ends at {plan.log_end_offset}; ask the "
                "brokers, or again later"
            )
        return OffsetOutOfRange(f"{self.name}: offset {plan.offset} is below the log's start, {plan.log_start_offset}")

    def bounds_of_refusal(self) -> tuple[int, int]:
        return self.cold.log_start_offset, self.cold.cold_end_offset

    def committed_segment_at(self, offset: int) -> CommittedSegment | None:
        cold = self.cold
        return cold.segment_at(offset) if cold.log_start_offset <= offset < cold.cold_end_offset else None

    def place_of(self, segment: CommittedSegment) -> ExpectedSegment:
        return self.cold.place_of(segment)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTopic:
    """One topic of the bucket; `configs` are those that differ from the brokers'."""

    name: str
    topic_id: UUID
    partition_count: int
    configs: Mapping[str, str]
    bucket: "BucketTopics"
    is_internal: bool = False

    def partition(self, number: int) -> Readable:
        """See `BucketTopics.partition`."""
        return self.bucket.partition(self, number)


class BucketTopics:
    """The contents of one bucket. Lives on one loop, between `start` and `stop`."""

    def __init__(self, store: ObjectStore, clock: Clock, *, interval_ms: int) -> None:
        self._store = store
        self._clock = clock
        self._interval_ms = interval_ms
        self._pool = BlockingPool("look", threads=LOOKS_AT_ONCE)
        self._flights: SingleFlight[TopicPartition, None] = SingleFlight()
        self._cluster: ClusterLook | None = None
        self._by_name: Mapping[str, BucketTopic] = {}
        self._by_id: Mapping[UUID, BucketTopic] = {}
        self._partitions: dict[TopicPartition, BucketPartition] = {}
        self._faults: dict[TopicPartition, TieredError] = {}
        self._seen_ms: float | None = None
        self._worker = Worker()
        self._failures = QuietFailures(
            log,
            "the bucket cannot be looked at; what was seen of it stays, tried again: %(error)s",
            "the bucket is looked at again",
        )
        self.waiters = Waiters()
        """Those who wait for anything to change."""
        self.state = BucketTopicsState()

    # What is known

    @property
    def cluster_id(self) -> str:
        return "" if self._cluster is None else self._cluster.checkpoint.cluster_id

    @property
    def cluster_settings(self) -> Mapping[str, str]:
        """Settings of all brokers of the writing cluster, altered at run time."""
        return {} if self._cluster is None else self._cluster.checkpoint.settings.get("", {})

    @property
    def age_ms(self) -> float:
        """How long ago the last look began that saw everything: what is here may be so old."""
        return 0.0 if self._seen_ms is None else max(0.0, self._clock.monotonic_ms() - self._seen_ms)

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Partitions whose checkpoints cannot be read: they stay as they were, if they were seen before."""
        faults = self._faults.items()
        return tuple(sorted(self._name(key) for key, error in faults if isinstance(error, OF_ONE_PARTITION)))

    def __iter__(self) -> Iterator[BucketTopic]:
        """The topics of the last look, in the order of their names."""
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def by_name(self, name: str) -> BucketTopic:
        """The topic; InvalidTopic for an illegal name, UnknownTopicOrPartition for one that is not in the bucket."""
        topic = self._by_name.get(name)
        if topic is not None:
            return topic
        if not is_legal_topic_name(name):
            raise InvalidTopic(f"{name[:80]!r} is no topic name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'")
        raise UnknownTopicOrPartition(f"topic {name} is not in the bucket, or was not {self.age_ms:.0f} ms ago")

    def by_id(self, topic_id: UUID | None) -> BucketTopic:
        topic = self._by_id.get(topic_id) if topic_id is not None else None
        if topic is None:
            raise UnknownTopicId(f"no topic of the bucket has the id {topic_id}; refresh metadata")
        return topic

    def partition(self, topic: BucketTopic, number: int) -> BucketPartition:
        """The partition as it was last seen. Raises UnknownTopicOrPartition; CorruptObject or StoreUnavailable when it
        was never seen whole."""
        if not 0 <= number < topic.partition_count:
            raise UnknownTopicOrPartition(f"{topic.name} has no partition {number}; refresh metadata")
        key = TopicPartition(TopicId(topic.topic_id), number)
        found = self._partitions.get(key)
        if found is not None:
            return found
        fault = self._faults.get(key)
        raise fault or StoreUnavailable(f"{topic.name}-{number} has not been looked at yet; try again")

    def partitions(self) -> Iterator[ColdPartition]:
        """The partitions that have been seen."""
        return (each.cold for each in list(self._partitions.values()))

    # Keeping up

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Returns once there is a view, which is renewed from then on. Raises InvalidConfig when the bucket has no
        cluster's checkpoint, CorruptObject, StoreUnavailable."""
        self._flights.start(tasks)
        await self.refresh()
        self._worker.start(tasks, every(self._interval_ms, self._tick, name="look at the bucket"))

    async def stop(self) -> None:
        """Looks no more. Wakes all waiting fetches."""
        await self._worker.stop()
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
        topics = {topic.topic_id: self._topic(topic) for topic in cluster.checkpoint.topics}
        # One after the other: a checkpoint may name a million.
        left = (
            (topic, TopicPartition(TopicId(topic.topic_id), number))
            for topic in topics.values()
            for number in range(topic.partition_count)
        )

        unanswered: list[TieredError] = []

        async def look() -> None:
            for topic, key in left:
                await self._flights.result(key, partial(self._look, topic.name, key))
                error = self._faults.get(key)
                if error is not None and not isinstance(error, OF_ONE_PARTITION):
                    unanswered.append(error)
                if len(unanswered) >= MAX_UNANSWERED:
                    return  # The store is away: the others need not wait for it.

        await asyncio.gather(*(look() for _ in range(LOOKS_AT_ONCE)))
        self._take(cluster, topics)
        if unanswered:
            raise StoreUnavailable(f"not every checkpoint could be read: {unanswered[0]}")
        self._seen_ms = started_ms
        self.state.refreshes += 1

    def _topic(self, told: TopicEntry) -> BucketTopic:
        return BucketTopic(
            name=told.name,
            topic_id=told.topic_id,
            partition_count=told.partition_count,
            configs=told.configs,
            bucket=self,
        )

    def _take(self, cluster: ClusterLook, topics: Mapping[UUID, BucketTopic]) -> None:
        if cluster is self._cluster:
            return
        self._cluster = cluster
        self._by_id = topics
        # Here, for each change of the cluster, and not for each list.
        self._by_name = {topic.name: topic for topic in sorted(topics.values(), key=lambda topic: topic.name)}
        for key in [key for key in self._partitions if not self._is_known(key)]:
            del self._partitions[key]
        for key in [key for key in self._faults if not self._is_known(key)]:
            del self._faults[key]
        self.waiters.wake()

    def _is_known(self, key: TopicPartition) -> bool:
        topic = self._by_id.get(key.topic_id)
        return topic is not None and key.partition < topic.partition_count

    async def look_again(self, partition: ColdPartition) -> None:
        """Looks at one partition. Raises UnknownTopicId when its topic went meanwhile, and what keeps its checkpoint
        from being read."""
        key = TopicPartition(TopicId(partition.topic_id), partition.partition)
        await self._flights.result(key, partial(self._look, partition.topic, key))
        fault = self._faults.get(key)
        if fault is not None:
            raise fault
        self.by_id(partition.topic_id)

    async def _look(self, topic: str, key: TopicPartition) -> None:
        found = self._partitions.get(key)
        before = None if found is None else found.look
        try:
            after = await self._pool.run(look_at_partition, self._store, topic, key.topic_id, key.partition, before)
        except TieredError as error:
            if isinstance(error, OF_ONE_PARTITION) and str(error) != str(self._faults.get(key)):
                log.error("%s-%d stays as it was: %s", topic, key.partition, error)
            self._faults[key] = error
            return
        self._faults.pop(key, None)
        if after is before:
            return
        if found is None:
            self._partitions[key] = BucketPartition(after, self.waiters)
        else:
            found.look = after
        self.waiters.wake()

    async def _tick(self) -> None:
        try:
            await self.refresh()
        except TieredError as error:
            self.state.failures += 1
            self._failures.failed(error)
        else:
            self._failures.worked()

    def _name(self, key: TopicPartition) -> str:
        topic = self._by_id.get(key.topic_id)
        return f"{key.topic_id if topic is None else topic.name}-{key.partition}"
