"""A replica that its disk has let down, and all on a full disk, are given up to those who can lead, and kept where
nobody could."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection

from tests.support.partition_appends import append, batch
from tests.unit.broker.context import Surroundings, surroundings
from tests.unit.broker.replication.replicas import replica
from tiered.broker.partitions.failed_replicas import FailedReplicas
from tiered.broker.partitions.topics import Topic, Topics
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.ids import TopicId, TopicPartition
from tiered.meta import brokers, topics
from tiered.meta.changes import ChangeSet

TOPIC_ID = TopicId(UUID(int=7))
SHARED, ALONE, WELL = (TopicPartition(TOPIC_ID, number) for number in range(3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    made: Surroundings
    image: ClusterImage
    topics: Topics
    failed: FailedReplicas

    @property
    def leaders(self) -> list[int]:
        """Of each partition."""
        return [row.leader for key in (SHARED, ALONE, WELL) if (row := self.image.row(key))]


def registered(conn: Connection, *, broker_id: int) -> None:
    brokers.register(conn, broker_id=broker_id, host="h", port=broker_id, boot_id="", clean_epoch=None)


@asynccontextmanager
async def replicas(folder: Path) -> AsyncIterator[Replicas]:
    """Broker 1 leads all partitions; broker 2 follows in the first and the last, and nobody in the second."""
    async with surroundings(folder) as made, asyncio.TaskGroup() as group:
        context, image = made.context, ClusterImage()
        for broker_id in (1, 2):
            await context.database.run(partial(registered, broker_id=broker_id))
        create = partial(topics.create, name="orders", topic_id=TOPIC_ID, configs={}, now_ms=0)
        await context.database.run(partial(create, assignments=[(1, 2), (1,), (1, 2)]))
        feed = ChangeFeed(context=context, image=image)

        async def apply(found: ChangeSet) -> None:
            image.put_brokers(found.brokers, 0.0)
            for row in found.partitions:
                image.put_row(row)
            image.change_number = found.number

        feed.apply = apply
        feed.start(group)
        await feed.refresh()
        known = Topics()
        yield Replicas(
            made=made,
            image=image,
            topics=known,
            failed=FailedReplicas(context=context, feed=feed, image=image, topics=known),
        )
        await feed.stop()


async def test_another_leads_where_one_can_and_where_none_can_nothing_changes(tmp_path: Path) -> None:
    async with replicas(tmp_path) as has:
        assert has.leaders == [1, 1, 1]
        for key in (SHARED, ALONE):
            has.failed.add(key)
        await has.failed.resign()
        assert has.leaders == [2, 1, 1]
        row = has.image.row(SHARED)
        assert row is not None
        assert [each.broker_id for each in row.isr] == [2]
        before = has.image.change_number
        await has.failed.resign()
        assert has.image.change_number == before, "what can be given up no further costs SQL nothing"


async def test_a_replica_that_works_again_stays(tmp_path: Path) -> None:
    async with replicas(tmp_path) as has:
        has.failed.add(SHARED)
        assert SHARED in has.failed
        has.failed.discard(SHARED)
        await has.failed.resign()
        assert has.leaders == [1, 1, 1]


async def test_a_full_disk_leaves_to_others_what_their_logs_have_all_of(tmp_path: Path) -> None:
    async with replicas(tmp_path) as has:
        context = has.made.context
        context.state.broker_epoch = has.image.brokers[1].broker_epoch
        led = replica(tmp_path, 1, has.image.is_current, min_insync_replicas=1)
        row = has.image.row(SHARED)
        assert row is not None
        led.apply_row(row, broker_epoch=context.state.broker_epoch)
        has.topics.put(
            Topic(
                name="orders",
                topic_id=TOPIC_ID,
                partition_count=3,
                config=led.config,
                overrides={},
                partitions=(led,),
            )
        )
        append(led, batch("a record that only this broker has"))
        context.reserve.is_short = True
        await has.failed.resign()
        assert has.leaders == [1, 1, 1]
        led.note_fetch(row.isr[1], 1, 0.0)
        await has.failed.resign()
        assert has.leaders == [2, 1, 1]
        led.log.close()
