"""A replica that its disk has let down, all on a full disk, and the lead where the store is out of reach, are given up
to those who can lead, and kept where nobody could."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch
from uuid import UUID

import pytest
from sqlalchemy import Connection

from tests.support.partition_appends import append, batch
from tests.unit.broker.context import Surroundings, surroundings
from tests.unit.broker.replication.replicas import replica
from tiered.broker.partitions.failed_replicas import FailedReplicas
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topic, Topics
from tiered.broker.view import store_reach
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.broker.view.store_reach import StoreReach
from tiered.cold.local import LocalStore
from tiered.cold.object_store import ObjectInfo, parse_store_url
from tiered.errors import StoreTrouble, StoreUnavailable
from tiered.ids import TopicId, TopicPartition
from tiered.meta import brokers, topics
from tiered.meta.changes import ChangeSet
from tiered.meta.engine import Database
from tiered.meta.partitions import PartitionRow
from tiered.rules.replication import elections

TOPIC_ID = TopicId(UUID(int=7))
SHARED, ALONE, WELL = (TopicPartition(TOPIC_ID, number) for number in range(3))


class AwayStore(LocalStore):
    """The local store, which a test sends away."""

    is_away = False
    state = SimpleNamespace(timeouts=0)
    """A store over the network has one."""

    def __init__(self, url: str) -> None:
        super().__init__(parse_store_url(url).directory)  # type: ignore[union-attr]

    def head(self, key: str) -> ObjectInfo | None:
        if self.is_away:
            raise StoreUnavailable("no route to it")
        return super().head(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    made: Surroundings
    feed: ChangeFeed
    image: ClusterImage
    topics: Topics
    failed: FailedReplicas
    reach: StoreReach
    store: "AwayStore"

    async def after(self, waited_ms: int) -> None:
        """The time has passed, and what is done every now and then is done."""
        self.made.clock.waited_ms += waited_ms
        await self.reach.tick()
        await self.failed.resign()

    async def report(self, broker_id: int, trouble: StoreTrouble | None) -> None:
        """Another broker's word on the store."""
        report = partial(
            brokers.report_store_trouble,
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].broker_epoch,
            trouble=trouble,
        )
        await self.made.context.database.run(report)
        await self.feed.refresh()

    def reported(self) -> str | None:
        """This broker's own word."""
        return self.image.brokers[1].store_trouble

    def met(self) -> str | None:
        """What the last look at the store met."""
        return None if self.reach.trouble is None else self.reach.trouble.value

    @property
    def leaders(self) -> list[int]:
        """Of each partition."""
        return [row.leader for key in (SHARED, ALONE, WELL) if (row := self.image.row(key))]


def registered(conn: Connection, *, broker_id: int) -> None:
    brokers.register(conn, broker_id=broker_id, host="h", port=broker_id, boot_id="", clean_epoch=None)


@asynccontextmanager
async def replicas(folder: Path) -> AsyncIterator[Replicas]:
    """Broker 1 leads all partitions; broker 2 follows in the first and the last, and nobody in the second."""
    stores: list[AwayStore] = []

    def store_at(url: str) -> AwayStore:
        stores.append(AwayStore(url))
        return stores[-1]

    async with surroundings(folder, Database, store_at) as made, asyncio.TaskGroup() as group:
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
        context.state.broker_epoch = image.brokers[1].broker_epoch
        known, reach = Topics(), StoreReach(context=context, feed=feed, image=image)
        yield Replicas(
            made=made,
            feed=feed,
            image=image,
            topics=known,
            failed=FailedReplicas(context=context, feed=feed, image=image, topics=known, reach=reach),
            reach=reach,
            store=stores[0],
        )
        await feed.stop()


def leading(has: Replicas, folder: Path) -> tuple[Partition, PartitionRow]:
    """This broker's replica of the first partition, and its row."""
    led = replica(folder, 1, has.image.is_current, min_insync_replicas=1)
    row = has.image.row(SHARED)
    assert row is not None
    led.apply_row(row, broker_epoch=has.made.context.state.broker_epoch)
    has.topics.put(
        Topic(
            name="orders", topic_id=TOPIC_ID, partition_count=3, config=led.config, overrides={}, partitions=(led,)
        )
    )  # fmt: skip
    return led, row


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
        led, row = leading(has, tmp_path)
        append(led, batch("a record that only this broker has"))
        context.reserve.is_short = True
        await has.failed.resign()
        assert has.leaders == [1, 1, 1]
        led.note_fetch(row.isr[1], 1, 0.0)
        await has.failed.resign()
        assert has.leaders == [2, 1, 1]
        led.log.close()


def fail(has: Replicas) -> None:
    """The store goes away, and the next one who wants something of it notices."""
    has.store.is_away = True
    with pytest.raises(StoreUnavailable):
        has.made.context.store.head("some")


async def test_who_alone_does_not_reach_the_store_leaves_the_lead_to_others_and_stays_in_sync(tmp_path: Path) -> None:
    async with replicas(tmp_path) as has:
        led, before = leading(has, tmp_path)
        fail(has)
        await has.after(0)
        await has.after(9_000)
        assert has.reported() is None, "it may come back at once"
        await has.after(1_000)
        assert has.reported() == "away"
        await has.after(29_000)
        assert has.leaders == [1, 1, 1], "the others may not have looked yet"
        assert not has.reach.is_others_turn()
        await has.after(1_000)
        assert has.leaders == [2, 1, 1]
        row = has.image.row(SHARED)
        assert row is not None
        assert row.isr == before.isr
        assert elections.preferred(row.replica_set, has.image.standings) is None
        assert has.reach.is_others_turn()
        has.store.is_away = False
        await has.after(10_000)
        assert has.reported() is None
        assert not has.reach.is_others_turn()
        assert elections.preferred(row.replica_set, has.image.standings) is not None, "it may lead again"
        led.log.close()


async def test_where_nobody_reaches_the_store_the_lead_stays_and_also_where_it_has_just_come_back(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path) as has:
        led, _ = leading(has, tmp_path)
        fail(has)
        await has.after(0)
        await has.after(10_000)
        await has.report(2, StoreTrouble.AWAY)
        await has.after(600_000)
        assert has.leaders == [1, 1, 1]
        await has.report(2, None)
        await has.after(0)
        await has.after(20_000)
        assert has.leaders == [1, 1, 1], "this broker may only not have looked again yet"
        has.reach.wait_anew()  # As where SQL gave no answer.
        await has.after(20_000)
        await has.after(20_000)
        assert has.leaders == [1, 1, 1], "what others said in SQL may be old"
        await has.after(10_000)
        assert has.leaders == [2, 1, 1]
        led.log.close()


async def test_a_broker_looks_and_reports_at_once_where_another_one_reports(tmp_path: Path) -> None:
    async with replicas(tmp_path) as has:
        has.store.is_away = True
        await has.after(60_000)
        assert has.reported() is None, "nothing was wanted of the store"
        await has.report(2, StoreTrouble.DENIED)
        await has.after(0)
        assert has.reported() == "away"


async def test_one_request_without_an_answer_is_reason_enough_to_look(tmp_path: Path) -> None:
    async with replicas(tmp_path) as has:
        has.store.is_away = True
        await has.after(60_000)
        assert has.met() is None, "nothing was wanted of the store"
        has.store.state = SimpleNamespace(timeouts=1)
        await has.after(0)
        assert has.met() == "away"
        await has.after(10_000)
        assert has.reported() == "away"
        has.store.is_away = False
        await has.after(10_000)
        assert (has.met(), has.reported()) == (None, None)


async def test_a_word_in_sql_that_does_not_hold_is_taken_back(tmp_path: Path) -> None:
    """A start while the store was away, or a COMMIT without an answer, left it."""
    async with replicas(tmp_path) as has:
        await has.report(1, StoreTrouble.AWAY)
        assert has.reported() == "away"
        await has.after(0)
        assert has.reported() is None


async def test_why_an_upload_failed_stays_known_after_a_look(tmp_path: Path) -> None:
    async with replicas(tmp_path) as has:
        has.made.context.store.trouble = StoreTrouble.DENIED
        await has.after(0)
        assert has.made.context.store.trouble is StoreTrouble.DENIED
        assert has.reported() is None, "the store answers who looks"


async def test_a_look_that_gets_no_answer_is_not_made_twice(tmp_path: Path) -> None:
    async with replicas(tmp_path) as has:
        begun, may_end = threading.Event(), threading.Event()
        looks: list[str] = []

        def head(key: str) -> ObjectInfo | None:
            looks.append(key)
            begun.set()
            may_end.wait(60)
            return None

        has.store.head = head  # type: ignore[method-assign]
        await has.report(2, StoreTrouble.AWAY)
        with patch.object(store_reach, "LOOK_MS", 1.0):
            await has.after(0)
            assert await asyncio.to_thread(begun.wait, 60)
            await has.after(10_000)
        assert has.reported() == "away"
        may_end.set()
        while has.made.context.uploads.pending:
            await asyncio.sleep(0.01)
        assert len(looks) == 1
