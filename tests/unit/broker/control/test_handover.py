"""What a controlled shutdown hands over, in which order, and when it does not try (rule 9)."""

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import Connection

from tests.catalogue import register
from tests.support.partition_appends import append, batch
from tests.unit.broker.groups.coordinators import Coordinating, coordinating
from tests.unit.broker.replication.replicas import TOPIC_ID, replica
from tiered.broker.control.handover import hand_over
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topic
from tiered.broker.view.feed import ChangeFeed
from tiered.config import TopicConfig
from tiered.errors import MetadataUnavailable
from tiered.file_slice import OpenFile
from tiered.hot.file_system import RealFileSystem
from tiered.meta import brokers, coordinator_slots, partitions, topics
from tiered.meta.changes import ChangeSet
from tiered.meta.engine import Database
from tiered.meta.partitions import PartitionRow

T = TypeVar("T")
ME, OTHER = 1, 2


class WatchedDatabase(Database):
    """The real one, which first tells of the transaction that takes a broker out of service."""

    async def run(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None, ahead: bool = False) -> T:
        if "_hand_over" in getattr(fn, "__qualname__", ""):
            await self.asked()
        return await super().run(fn, deadline_ms=deadline_ms, ahead=ahead)

    async def asked(self) -> None:
        """Nobody looks, unless a test does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """Broker 1, which leads a partition with a record that is not flushed; broker 2 follows it, or does not exist."""

    broker: Coordinating
    partition: Partition
    feed: ChangeFeed

    async def hand_over(self) -> None:
        broker = self.broker
        await hand_over(
            context=broker.context, topics=broker.topics, image=broker.image, feed=self.feed, groups=broker.groups
        )

    async def row(self) -> PartitionRow:
        return await self.broker.database.run(lambda conn: partitions.load(conn, TOPIC_ID, 0))

    async def is_in_service(self) -> bool:
        found = await self.broker.database.run(lambda conn: brokers.load(conn, ME))
        return found is not None and not found.fenced

    async def holders_of_slots(self) -> set[int | None]:
        return {row.broker_id for row in (await self.broker.database.run(coordinator_slots.load_all)).values()}


@asynccontextmanager
async def leaving(folder: Path, *, replicas: tuple[int, ...] = (ME, OTHER), **settings: str) -> AsyncIterator[Leaving]:
    async with coordinating(folder, sql=WatchedDatabase, **settings) as broker, asyncio.TaskGroup() as group:
        database, image = broker.database, broker.image
        if OTHER in replicas:
            await database.run(partial(register, broker_id=OTHER))
        create = partial(topics.create, name="t", topic_id=TOPIC_ID, configs={}, now_ms=0)
        await database.run(lambda conn: create(conn, assignments=[replicas]))
        partition = replica(folder, ME, image.is_current, min_insync_replicas=1)

        async def apply(found: ChangeSet) -> None:
            image.put_brokers(found.brokers, 0.0)
            for row in found.partitions:
                image.put_row(row)
                if row.topic_id == TOPIC_ID:
                    partition.apply_row(row, broker_epoch=broker.broker_epoch)
            image.put_slots(found.slots)
            broker.groups.slots_changed(found.slots)
            image.change_number = found.number

        feed = ChangeFeed(context=broker.context, image=image)
        feed.apply = apply
        feed.start(group)
        await feed.refresh()
        broker.topics.put(
            Topic(
                name="t",
                topic_id=TOPIC_ID,
                partition_count=1,
                config=TopicConfig(),
                overrides={},
                partitions=(partition,),
            )
        )
        append(partition, batch("a"), acks=1)
        assert partition.leadership is not None
        yield Leaving(broker=broker, partition=partition, feed=feed)
        await feed.stop()
        partition.log.close()


async def test_another_broker_leads_and_this_one_knows_it_and_is_out_of_service(tmp_path: Path) -> None:
    async with leaving(tmp_path) as parts:
        await parts.hand_over()
        assert (await parts.row()).leader == OTHER
        assert not await parts.is_in_service()
        assert parts.partition.leadership is None, "clients are answered with NOT_LEADER from now on"


async def test_all_is_flushed_and_groups_have_their_coordinators_before_it_is_out_of_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leaving(tmp_path) as parts:
        assert parts.partition.log.flushed_offset == 0
        assert await parts.holders_of_slots() == {ME}
        seen: list[object] = []

        async def asked(_: Database) -> None:
            seen.extend([parts.partition.log.flushed_offset, await parts.holders_of_slots()])

        monkeypatch.setattr(WatchedDatabase, "asked", asked)
        await parts.hand_over()
        assert seen == [1, {OTHER}]


async def test_a_log_that_cannot_be_flushed_keeps_nothing_from_being_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: RealFileSystem, file: OpenFile) -> None:
        raise OSError(errno.EIO, "fsync failed")

    async with leaving(tmp_path) as parts:
        with monkeypatch.context() as patch:
            patch.setattr(RealFileSystem, "sync", refused)
            await parts.hand_over()
        assert (await parts.row()).leader == OTHER
        assert "t-0: what followers lack is not on the disk" in caplog.text


@pytest.mark.parametrize("why", ["alone", "switched off"])
async def test_nothing_is_handed_over_where_nobody_could_take_it_or_nobody_wants_it(tmp_path: Path, why: str) -> None:
    replicas, enabled = ((ME,), "true") if why == "alone" else ((ME, OTHER), "false")
    async with leaving(tmp_path, replicas=replicas, controlled_shutdown_enable=enabled) as parts:
        before = await parts.row()
        await parts.hand_over()
        assert await parts.row() == before
        assert await parts.is_in_service()


async def test_a_database_that_is_away_holds_up_no_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(_: Database) -> None:
        raise MetadataUnavailable("SQL is away")

    async with leaving(tmp_path) as parts:
        with caplog.at_level(logging.WARNING), monkeypatch.context() as patch:
            patch.setattr(WatchedDatabase, "asked", away)
            await parts.hand_over()
        assert (await parts.row()).leader == ME
        assert [each.getMessage() for each in caplog.records] == [
            "at shutdown: partitions were not handed over, others will find them: SQL is away"
        ]
