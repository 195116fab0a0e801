"""ISR changes whose outcome nobody knows: both sides count until another swap has settled it (rule 7)."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from tests.catalogue import register
from tests.support.partition_appends import append, batch
from tests.unit.broker.context import SetClock, surroundings
from tests.unit.broker.replication.replicas import TOPIC_ID, replica
from tiered.broker.partitions.leadership import Leadership
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.replication.isr_changes import IsrChanges
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.errors import MetadataOutcomeUnknown, MetadataUnavailable
from tiered.ids import InSyncReplica
from tiered.meta import brokers, partitions, topics
from tiered.meta.engine import Database
from tiered.meta.partitions import IsrChange, PartitionRow

T = TypeVar("T")
LAG_MS = 60_000
"""More than replica.lag.time.max.ms allows."""


class UnsureDatabase(Database):
    """The real one, but for ISR changes that it is told to lose the answer of, to refuse, or to make later."""

    def begin(self) -> None:
        self.faults: list[str] = []
        self.late: list[Callable[[Connection], object]] = []

    async def run(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None, ahead: bool = False) -> T:
        fault = self.faults.pop(0) if "IsrChanges" in getattr(fn, "__qualname__", "") and self.faults else ""
        if fault == "away":
            raise MetadataUnavailable("the database is away")
        if fault == "late":
            self.late.append(fn)
        elif fault != "not committed":
            found = await super().run(fn, deadline_ms=deadline_ms, ahead=ahead)
            if fault != "answer lost":
                return found
        raise MetadataOutcomeUnknown("the answer to COMMIT is missing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leading:
    """Broker 1, which leads; 2 and 3 have fetched its first record, and after that 2 alone its second one."""

    database: UnsureDatabase
    clock: SetClock
    image: ClusterImage
    partition: Partition
    epochs: dict[int, int]
    changes: IsrChanges

    @property
    def leadership(self) -> Leadership:
        assert self.partition.leadership is not None
        return self.partition.leadership

    @property
    def isr(self) -> list[int]:
        return [member.broker_id for member in self.leadership.committed]

    @property
    def maximal(self) -> list[int]:
        return sorted(member.broker_id for member in self.leadership.maximal)

    @property
    def is_open(self) -> bool:
        return self.leadership.pending is not None

    def member(self, broker_id: int) -> InSyncReplica:
        return InSyncReplica(broker_id, self.epochs[broker_id])

    def fetched(self, *followers: int) -> None:
        """They have all that is there."""
        for broker_id in followers:
            end_offset = self.partition.log.log_end_offset
            self.partition.note_fetch(self.member(broker_id), end_offset, self.clock.monotonic_ms())

    async def round(self) -> bool:
        self.changes.caught_up(self.partition)
        return await self.changes.round()

    async def row(self) -> PartitionRow:
        return await self.database.run(lambda conn: partitions.load(conn, TOPIC_ID, 0))

    async def stored_isr(self) -> list[int]:
        return [member.broker_id for member in (await self.row()).isr]


@asynccontextmanager
async def leading(folder: Path) -> AsyncIterator[Leading]:
    async with surroundings(folder, UnsureDatabase) as made:
        database = made.context.database
        assert isinstance(database, UnsureDatabase)
        database.begin()
        epochs = {number: await database.run(partial(register, broker_id=number)) for number in (1, 2, 3)}
        made.state.broker_epoch = epochs[1]
        create = partial(topics.create, name="t", topic_id=TOPIC_ID, assignments=[(1, 2, 3)], configs={}, now_ms=0)
        await database.run(create)
        image = ClusterImage()
        image.put_brokers(await database.run(brokers.load_all), 0.0)
        partition = replica(folder, 1, image.is_current)
        partition.apply_row(await database.run(lambda conn: partitions.load(conn, TOPIC_ID, 0)), broker_epoch=epochs[1])
        feed = ChangeFeed(context=made.context, image=image)
        parts = Leading(
            database=database,
            clock=made.clock,
            image=image,
            partition=partition,
            epochs=epochs,
            changes=IsrChanges(context=made.context, feed=feed, image=image, topics=Topics()),
        )
        append(partition, batch("a"))
        parts.fetched(2, 3)
        append(partition, batch("b"))
        made.clock.waited_ms += LAG_MS
        parts.fetched(2)
        assert (parts.isr, partition.high_watermark) == ([1, 2, 3], 1)
        yield parts
        partition.log.close()


async def test_who_lags_leaves_and_what_waited_for_it_is_committed(tmp_path: Path) -> None:
    async with leading(tmp_path) as parts:
        assert await parts.round()
        assert parts.isr == await parts.stored_isr() == [1, 2]
        assert parts.partition.high_watermark == 2
        assert await parts.round(), "there is nothing more to change"
        parts.fetched(3)
        assert await parts.round()
        assert sorted(parts.isr) == [1, 2, 3]


async def test_a_change_whose_answer_is_lost_is_settled_by_another_one(tmp_path: Path) -> None:
    async with leading(tmp_path) as parts:
        parts.database.faults = ["answer lost", "away"]
        for _ in range(2):
            assert not await parts.round()
            assert (await parts.stored_isr(), parts.maximal, parts.partition.high_watermark) == ([1, 2], [1, 2, 3], 1)
        # The other one was too late, so the first has happened, or somebody else's: the feed tells which.
        assert await parts.round()
        assert (parts.maximal, parts.partition.high_watermark) == ([1, 2, 3], 1)
        parts.partition.apply_row(await parts.row(), broker_epoch=parts.epochs[1])
        assert (parts.isr, parts.is_open, parts.partition.high_watermark) == ([1, 2], False, 2)


async def test_until_it_is_settled_both_sides_count(tmp_path: Path) -> None:
    async with leading(tmp_path) as parts:
        parts.database.faults = ["not committed", "away", "not committed"]
        for _ in range(3):
            assert not await parts.round()
            assert (parts.maximal, parts.partition.high_watermark) == ([1, 2, 3], 1)
            assert parts.is_open
        assert await parts.round()
        assert (parts.isr, parts.is_open, parts.partition.high_watermark) == ([1, 2, 3], False, 1)
        assert await parts.round()
        assert (parts.isr, parts.partition.high_watermark) == ([1, 2], 2)


async def test_a_change_that_commits_after_it_was_settled_does_nothing(tmp_path: Path) -> None:
    async with leading(tmp_path) as parts:
        parts.database.faults = ["late"]
        assert not await parts.round()
        assert await parts.round()
        for fn in parts.database.late:
            await parts.database.run(fn)
        assert parts.isr == await parts.stored_isr() == [1, 2, 3]


async def test_a_change_that_certainly_did_not_happen_is_open_no_more(tmp_path: Path) -> None:
    async with leading(tmp_path) as parts:
        parts.database.faults = ["away"]
        assert not await parts.round()
        assert (parts.isr, parts.maximal, parts.is_open) == ([1, 2, 3], [1, 2, 3], False)
        # It is tried again without anybody's asking.
        assert await parts.changes.round()
        assert parts.isr == [1, 2]


async def test_after_somebody_elses_change_both_sides_count_until_the_feed_tells(tmp_path: Path) -> None:
    async with leading(tmp_path) as parts:
        before = await parts.row()
        await swap(parts, before, (parts.member(1), parts.member(3)))
        assert await parts.round()
        assert (parts.is_open, parts.maximal, parts.partition.high_watermark) == (True, [1, 2, 3], 1)
        parts.partition.apply_row(await parts.row(), broker_epoch=parts.epochs[1])
        assert (parts.isr, parts.is_open, parts.partition.high_watermark) == ([1, 3], False, 1)


async def test_a_follower_of_an_earlier_registration_does_not_join(tmp_path: Path) -> None:
    async with leading(tmp_path) as parts:
        assert await parts.round()
        await parts.database.run(partial(register, broker_id=3))
        parts.image.put_brokers(await parts.database.run(brokers.load_all), 0.0)
        parts.fetched(3)
        assert await parts.round()
        assert parts.isr == await parts.stored_isr() == [1, 2]


async def swap(parts: Leading, before: PartitionRow, members: Sequence[InSyncReplica]) -> None:
    change = IsrChange(
        topic_id=TOPIC_ID,
        partition=0,
        leader_epoch=before.leader_epoch,
        expected_partition_epoch=before.partition_epoch,
        isr=tuple(members),
    )
    await parts.database.run(
        lambda conn: partitions.change_isrs(conn, broker_id=1, broker_epoch=parts.epochs[1], changes=[change])
    )
