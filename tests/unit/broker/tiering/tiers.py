"""The parts that move segments between tiers, without a broker around them: partitions, led here, in real stores."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from uuid import UUID

from tests.support.partition_appends import batch
from tests.unit.broker.context import SetClock, surroundings
from tiered.broker.context import BrokerContext
from tiered.broker.control.registration import Registration
from tiered.broker.host.resource_configs import ResourceConfigs
from tiered.broker.partitions.agenda import PartitionAgenda
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topic, Topics
from tiered.broker.tiering import committed_rows
from tiered.broker.tiering.checkpoints import CheckpointWriter
from tiered.broker.tiering.clock_watch import ClockWatch
from tiered.broker.tiering.partition_loader import PartitionLoader
from tiered.broker.tiering.retention import RetentionRounds
from tiered.broker.tiering.segment_lifecycle import SegmentLifecycle
from tiered.broker.view.changes import Changes
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.cold.chunks.cache import ChunkCache
from tiered.cold.chunks.reader import ColdReader
from tiered.cold.object_store import ObjectStore
from tiered.cold.opening import open_store
from tiered.config import TopicConfig
from tiered.formats.checkpoint import CommittedSegment
from tiered.ids import TopicId, TopicPartition
from tiered.meta import partitions, topics
from tiered.meta.changes import ChangeSet
from tiered.meta.engine import Database
from tiered.meta.partitions import PartitionRow

TOPIC_ID = TopicId(UUID(int=7))
SEGMENTS = 5
"""Closed ones of one record each; a sixth is active."""
DAY_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    context: BrokerContext
    clock: SetClock
    partitions: Sequence[Partition]
    cold_reader: ColdReader
    image: ClusterImage
    topics: Topics
    agenda: PartitionAgenda
    checkpoints: CheckpointWriter
    feed: ChangeFeed
    lifecycle: SegmentLifecycle
    clock_watch: ClockWatch
    retention: RetentionRounds
    lost: dict[TopicPartition, int] = field(default_factory=dict)
    """The first offset that the store is known to have lost."""

    @property
    def partition(self) -> Partition:
        """The first one."""
        return self.partitions[0]

    async def upload_all(self) -> None:
        for base_offset in range(self.partition.cold_end_offset, SEGMENTS):
            await self.lifecycle.upload(self.partition, base_offset)


async def open_all(
    loader: PartitionLoader,
    topic: Topic,
    rows: Sequence[PartitionRow],
    committed: Mapping[TopicPartition, Sequence[CommittedSegment]] = MappingProxyType({}),
) -> list[Partition]:
    """The partitions of a topic, each of which must be opened."""
    found = await loader.open([(topic, row) for row in rows], committed)
    opened = [each for each in found if isinstance(each, Partition)]
    assert len(opened) == len(found), found
    return opened


@asynccontextmanager
async def tiers(
    folder: Path,
    configs: dict[str, str] | None = None,
    /,
    *,
    partition_count: int = 1,
    others: Sequence[str] = (),
    written: Callable[[int], bytearray] = lambda _number: batch("v" * 500),
    store_at: Callable[[str], ObjectStore] = open_store,
    **settings: str,
) -> AsyncIterator[Tiers]:
    """The topic `orders` and the `others`, each partition with `SEGMENTS` closed segments, none of them in the store.
    `written` gives the batch of each segment."""
    async with surroundings(folder, Database, store_at, **settings) as made:
        context, overrides = made.context, {"segment.bytes": "600", "retention.ms": str(DAY_MS), **(configs or {})}
        registered = await Registration(context=context, boot_id="a boot").register(
            advertised=("127.0.0.1", 9092), http=None
        )
        made.state.cluster_id, made.state.broker_epoch = registered.cluster_id, registered.broker_epoch
        wanted = {name: TopicId(UUID(int=TOPIC_ID.int + number)) for number, name in enumerate(("orders", *others))}
        for name, topic_id in wanted.items():
            create = partial(topics.create, name=name, topic_id=topic_id, configs=overrides, now_ms=0)
            replicas = [(context.broker_id,)] * partition_count
            await context.database.run(partial(create, assignments=replicas))
        rows = await context.database.run(partitions.load_all)
        image, known = ClusterImage(), Topics()
        image.put_brokers(registered.everything.brokers, 0.0)
        for row in rows:
            image.put_row(row)
        cache = ChunkCache(
            context.data.cache, max_bytes=1 << 20, pool=context.disk, max_bytes_in_flight=1 << 20, loads_at_once=1
        )
        cold_reader = ColdReader(context.store, cache, context.disk)
        agenda = PartitionAgenda()
        loader = PartitionLoader(
            changed=agenda.changed,
            context=context,
            cold_reader=cold_reader,
            image=image,
            log_failed=lambda: None,
            has_failed_log=lambda: False,
            topics=known,
        )
        opened: dict[TopicPartition, Partition] = {}
        for name, topic_id in wanted.items():
            topic = Topic(
                name=name,
                topic_id=topic_id,
                partition_count=partition_count,
                config=TopicConfig.of(overrides, context.settings),
                overrides=overrides,
                partitions=(),
            )
            hosted = await open_all(loader, topic, image.rows_of(topic_id))
            opened |= {partition.topic_partition: partition for partition in hosted}
            known.put(replace(topic, partitions=tuple(hosted)))
        for row in rows:
            partition = opened[row.topic_partition]
            partition.apply_row(row, broker_epoch=made.state.broker_epoch)
            for number in range(SEGMENTS + 1):
                data = written(number)
                partition.append(memoryview(data), 0, len(data), acks=1, now_ms=made.clock.now_ms())

        async def apply(found: ChangeSet) -> None:
            for each in found.partitions:
                image.put_row(each)
                opened[each.topic_partition].apply_row(each, broker_epoch=made.state.broker_epoch)
            for where, rows in committed_rows.by_partition(found.segments).items():
                committed_rows.apply(checkpoints, opened[where], rows)
            image.change_number = found.number

        feed = ChangeFeed(context=context, image=image)
        feed.apply = apply
        checkpoints = CheckpointWriter(
            context=context, image=image, resource_configs=ResourceConfigs(lambda: context.settings), topics=known
        )
        lost: dict[TopicPartition, int] = {}
        watch = ClockWatch(context=context)
        lifecycle = SegmentLifecycle(
            context=context,
            changes=Changes(feed=feed),
            checkpoints=checkpoints,
            clock_watch=watch,
            feed=feed,
            first_lost_offset=lost.get,
            image=image,
        )
        async with asyncio.TaskGroup() as group:
            feed.start(group)
            yield Tiers(
                context=context,
                clock=made.clock,
                partitions=tuple(opened.values()),
                cold_reader=cold_reader,
                image=image,
                topics=known,
                agenda=agenda,
                checkpoints=checkpoints,
                feed=feed,
                lifecycle=lifecycle,
                clock_watch=watch,
                retention=RetentionRounds(context=context, topics=known, lifecycle=lifecycle, clock_watch=watch),
                lost=lost,
            )
            await feed.stop()
        await loader.close_all()
