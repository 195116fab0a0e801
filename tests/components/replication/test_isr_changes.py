"""ISR changes among brokers, while SQL loses answers or is away: nothing that waits is lost, and producing goes on."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from tests.components.replication.brokers import Cluster, cluster, eventually, produce
from tests.support.partition_appends import append, batch
from tiered.broker.broker import Broker
from tiered.broker.partitions.partition import Partition
from tiered.errors import MetadataOutcomeUnknown, MetadataUnavailable
from tiered.meta.engine import Database

T = TypeVar("T")


class UnsureDatabase(Database):
    """The real one, but for ISR changes that it is told to lose the answer of, or to refuse."""

    def begin(self) -> None:
        self.faults: list[str] = []
        self.asked = 0

    async def run(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None, ahead: bool = False) -> T:
        if "IsrChanges" not in fn.__qualname__:
            return await super().run(fn, deadline_ms=deadline_ms, ahead=ahead)
        self.asked += 1
        match self.faults.pop(0) if self.faults else "":
            case "answer lost":
                await super().run(fn, deadline_ms=deadline_ms)
                raise MetadataOutcomeUnknown("the answer to COMMIT is missing")
            case "away":
                raise MetadataUnavailable("the database is away")
        return await super().run(fn, deadline_ms=deadline_ms)


async def led(made: Cluster) -> tuple[Broker, Partition, UnsureDatabase, int]:
    """The leader of a topic that has one record everywhere, its database, and a follower to unplug."""
    await made.create("t")
    await produce(made, "t", "a")
    leader = await made.leader("t")
    partition = leader.topics.by_name("t").partition(0)
    assert isinstance(leader.database, UnsureDatabase)
    # A follower of whom nothing was heard for half a second of a busy machine is out of the ISR already.
    await eventually(lambda: isr_of(partition) == {1, 2, 3} and not is_pending(partition))
    leader.database.begin()
    away = next(broker_id for broker_id in made.brokers if broker_id != leader.broker_id)
    return leader, partition, leader.database, away


def isr_of(partition: Partition) -> set[int]:
    return set() if partition.row is None else {member.broker_id for member in partition.row.isr}


def is_pending(partition: Partition) -> bool:
    return partition.leadership is not None and partition.leadership.pending is not None


async def test_a_shrink_whose_answer_is_lost_is_settled_and_what_waited_is_committed(tmp_path: Path) -> None:
    async with cluster(tmp_path, database=UnsureDatabase, replica_lag_time_max_ms="500") as made:
        leader, partition, database, away = await led(made)
        database.faults = ["answer lost", "away"]
        made.channels.unplug(away)
        appended = append(partition, batch("b"))
        await eventually(lambda: isr_of(partition) == {1, 2, 3} - {away})
        await eventually(lambda: partition.high_watermark == appended.end_offset)
        assert database.asked >= 1
        assert leader.counters.isr_change_failures >= 1
        assert partition.leadership is not None
        assert partition.leadership.pending is None


async def test_while_sql_is_away_produce_goes_on_with_an_unchanged_isr(tmp_path: Path) -> None:
    async with cluster(tmp_path, database=UnsureDatabase, replica_lag_time_max_ms="500") as made:
        _, partition, database, _ = await led(made)
        leadership = partition.leadership
        assert leadership is not None
        await eventually(lambda: isr_of(partition) == {1, 2, 3} and leadership.pending is None)
        database.faults = ["away"] * 100
        for number in range(20):
            await produce(made, "t", f"value {number}")
        assert isr_of(partition) == {1, 2, 3}
