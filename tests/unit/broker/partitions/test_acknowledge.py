"""When a producer is told that its batch is stored, and what it is told when that cannot be known."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.partition_appends import append, batch
from tests.unit.broker.context import Surroundings, surroundings
from tests.unit.broker.replication.replicas import EPOCHS, replica, row, tell
from tiered.broker.partitions.acknowledge import NO_ACKS, acknowledged, is_acknowledged
from tiered.broker.partitions.partition import ALL, Appended, Partition
from tiered.errors import NotEnoughReplicasAfterAppend, NotLeader, RequestTimedOut
from tiered.ids import InSyncReplica


@dataclass(frozen=True, slots=True)
class Waiting:
    made: Surroundings
    leader: Partition

    async def acknowledged(self, appended: Appended, *, acks: int = ALL, timeout_ms: float = 20_000) -> None:
        await acknowledged(self.made.context, self.leader, appended, acks=acks, timeout_ms=timeout_ms)

    def fetched(self, offset: int) -> None:
        for broker_id in (2, 3):
            self.leader.note_fetch(InSyncReplica(broker_id, EPOCHS[broker_id]), offset, 0.0)


@pytest.fixture
async def waiting(tmp_path: Path) -> AsyncIterator[Waiting]:
    async with surroundings(tmp_path) as made:
        leader = replica(tmp_path, 1)
        tell(leader, row())
        yield Waiting(made, leader)


def flushing(folder: Path, *isr: int) -> Partition:
    """A leader whose every record has to be on disk first."""
    leader = replica(folder, 1, lambda _: True, "t", flush_messages=1, min_insync_replicas=1)
    tell(leader, row(isr=isr))
    return leader


async def test_acks_all_is_answered_once_every_in_sync_replica_has_the_batch(waiting: Waiting) -> None:
    appended = append(waiting.leader, batch("a"))
    assert not is_acknowledged(waiting.leader, appended, ALL)
    assert is_acknowledged(waiting.leader, appended, 1)
    told = asyncio.ensure_future(waiting.acknowledged(appended))
    await asyncio.sleep(0)
    assert not told.done()
    waiting.fetched(1)
    await told
    assert is_acknowledged(waiting.leader, appended, ALL)


async def test_acks_1_waits_for_the_disk_alone_where_the_topic_demands_it(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        leader = flushing(tmp_path, 1, 2, 3)
        appended = append(leader, batch("a"), acks=1)
        assert not is_acknowledged(leader, appended, 1)
        assert is_acknowledged(leader, appended, NO_ACKS)
        await acknowledged(made.context, leader, appended, acks=1, timeout_ms=0)
        assert (leader.log.flushed_offset, leader.high_watermark) == (1, 0)


async def test_the_flush_of_a_sole_replica_commits_what_it_has_flushed(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        leader = flushing(tmp_path, 1)
        appended = append(leader, batch("a"), acks=1)
        assert leader.high_watermark == 0
        await acknowledged(made.context, leader, appended, acks=ALL, timeout_ms=0)
        assert leader.high_watermark == 1


async def test_nobody_waits_on_another_leadership_than_that_of_the_batch(waiting: Waiting) -> None:
    appended = append(waiting.leader, batch("a"))
    tell(waiting.leader, row(epoch=1))
    with pytest.raises(NotLeader):
        await waiting.acknowledged(appended)
    tell(waiting.leader, row(leader=2, epoch=2))
    with pytest.raises(NotLeader):
        await waiting.acknowledged(appended)


async def test_the_error_of_a_wait_that_was_too_long_says_whose_fault_it_is(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        living = {1, 2, 3}
        leader = replica(tmp_path, 1, lambda member: member.broker_id in living)
        tell(leader, row())
        appended = append(leader, batch("a"))
        with pytest.raises(RequestTimedOut, match="retry"):
            await acknowledged(made.context, leader, appended, acks=ALL, timeout_ms=1)
        living -= {2, 3}
        with pytest.raises(NotEnoughReplicasAfterAppend, match="retry"):
            await acknowledged(made.context, leader, appended, acks=ALL, timeout_ms=1)
