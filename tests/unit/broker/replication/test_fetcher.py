"""What a follower makes of its leader's answers, and which of them it drops."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.partition_appends import append, batch
from tests.unit.broker.replication.replicas import EPOCHS, TOPIC_ID, replica, row, tell
from tests.unit.broker.tiering.tiers import tiers
from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.replication.catch_up import CatchUp
from tiered.broker.replication.fetcher import ReplicaFetcher, ReplicationThrottle
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.errors import RequestTimedOut
from tiered.meta import brokers
from tiered.meta.brokers import BrokerRow
from tiered.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest, FetchResponse, FetchTopicResult

LEADER = 1
WAIT_S = 30.0


class ScriptedLeader:
    """Both sides of the seam: the follower's channels, of which a test takes the questions and answers them."""

    def __init__(self) -> None:
        self.questions: asyncio.Queue[tuple[FetchPartition, asyncio.Future[FetchResponse]]] = asyncio.Queue()
        self.opened = 0

    async def open(self, leader: BrokerRow) -> "ScriptedLeader":
        self.opened += 1
        return self

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        answer: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
        self.questions.put_nowait((request.topics[0].partitions[0], answer))
        return await answer

    def close(self) -> None:
        """A test answers what it took."""

    async def asked(self) -> tuple[FetchPartition, asyncio.Future[FetchResponse]]:
        async with asyncio.timeout(WAIT_S):
            return await self.questions.get()


def answer(high_watermark: int, records: bytes = b"", unproven_offsets: int = 0) -> FetchResponse:
    result = FetchPartitionResult(0, 0, high_watermark, 0, 0, bytearray(records), None, unproven_offsets)
    return FetchResponse(0, 0, 0, [FetchTopicResult(None, TOPIC_ID, [result])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    context: BrokerContext
    leader: ScriptedLeader
    fetcher: ReplicaFetcher
    follower: Partition
    failures: list[Partition]
    records: bytes
    """One batch, as the leader has it at offset 0."""

    @property
    def ends(self) -> tuple[int, int]:
        return self.follower.log.log_end_offset, self.follower.high_watermark


@asynccontextmanager
async def following(folder: Path) -> AsyncIterator[Following]:
    async with tiers(folder) as made, asyncio.TaskGroup() as group:
        image, scripted = ClusterImage(), ScriptedLeader()
        image.put_brokers(await made.context.database.run(brokers.load_all), 0.0)
        origin, follower = replica(folder / "leader", LEADER), replica(folder, 2)
        tell(origin, row(leader=LEADER))
        append(origin, batch("a"))
        found = origin.log.read(0, 1 << 20, end_offset=1)
        assert found is not None
        records = found.read()
        tell(follower, row(leader=LEADER))
        failures: list[Partition] = []
        fetcher = ReplicaFetcher(
            context=made.context,
            catch_up=CatchUp(context=made.context, cold_reader=made.cold_reader, rows_applied=lambda _: None),
            channels=scripted,
            disk_failed=failures.append,
            feed=ChangeFeed(context=made.context, image=image),
            image=image,
            incarnation_id=UUID(int=1),
            throttle=ReplicationThrottle(made.clock, lambda: 2**63 - 1),
            leader_id=LEADER,
            number=0,
        )
        fetcher.follow(follower)
        running = group.create_task(fetcher.run())
        yield Following(
            context=made.context,
            leader=scripted,
            fetcher=fetcher,
            follower=follower,
            failures=failures,
            records=records,
        )
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for each in (origin, follower):
            each.log.close()


async def test_what_the_leader_sends_is_appended_and_what_it_says_is_committed_is_learned(tmp_path: Path) -> None:
    async with following(tmp_path) as parts:
        asked, told = await parts.leader.asked()
        assert (asked.partition, asked.fetch_offset, asked.current_leader_epoch) == (0, 0, 0)
        told.set_result(answer(1, parts.records))
        asked, _ = await parts.leader.asked()
        assert (asked.fetch_offset, parts.ends) == (1, (1, 1))


async def test_an_answer_of_an_earlier_leader_epoch_is_dropped(tmp_path: Path) -> None:
    async with following(tmp_path) as parts:
        _, told = await parts.leader.asked()
        tell(parts.follower, row(leader=LEADER, epoch=1))
        told.set_result(answer(1, parts.records))
        asked, _ = await parts.leader.asked()
        assert (asked.current_leader_epoch, parts.ends) == (1, (0, 0))


async def test_an_answer_about_what_is_followed_no_more_is_dropped(tmp_path: Path) -> None:
    async with following(tmp_path) as parts:
        _, told = await parts.leader.asked()
        parts.fetcher.leave(parts.follower.topic_partition)
        parts.fetcher.follow(parts.follower)
        told.set_result(answer(1, parts.records))
        asked, _ = await parts.leader.asked()
        assert (asked.fetch_offset, parts.ends) == (0, (0, 0))


async def test_damaged_records_are_not_appended_and_the_partition_rests(tmp_path: Path) -> None:
    async with following(tmp_path) as parts:
        _, told = await parts.leader.asked()
        told.set_result(answer(1, parts.records[:-1] + bytes([parts.records[-1] ^ 1])))
        await asyncio.sleep(0.02)
        assert (parts.leader.questions.empty(), parts.ends, parts.failures) == (True, (0, 0), [])
        parts.fetcher.follow(parts.follower)  # A new row ends the rest.
        asked, _ = await parts.leader.asked()
        assert asked.fetch_offset == 0


async def test_nothing_is_fetched_to_a_full_disk_but_what_the_isr_waits_for(tmp_path: Path) -> None:
    async with following(tmp_path) as parts:
        _, told = await parts.leader.asked()
        parts.context.reserve.is_short = True
        told.set_result(answer(1, parts.records))
        await asyncio.sleep(0.02)
        assert (parts.leader.questions.empty(), parts.ends) == (True, (1, 1))
        parts.context.state.broker_epoch = EPOCHS[parts.context.broker_id]  # The one that the row has in the ISR.
        parts.fetcher.follow(parts.follower)
        asked, _ = await parts.leader.asked()
        assert asked.fetch_offset == 1


async def test_a_partition_that_fails_in_an_unforeseen_way_rests_and_the_connection_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append_fetched(*_: object, **__: object) -> None:
        raise AssertionError("a bug")

    async with following(tmp_path) as parts:
        _, told = await parts.leader.asked()
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append_fetched", append_fetched)
            told.set_result(answer(1, parts.records))
            await asyncio.sleep(0.02)
        parts.fetcher.follow(parts.follower)  # A new row ends the rest.
        await parts.leader.asked()
        assert parts.leader.opened == 1, "those behind it in the answer are followed on"


async def test_a_leader_that_does_not_answer_is_asked_again_on_another_connection(tmp_path: Path) -> None:
    async with following(tmp_path) as parts:
        _, told = await parts.leader.asked()
        told.set_exception(RequestTimedOut("it has stopped"))
        _, told = await parts.leader.asked()
        told.set_result(answer(1, parts.records))
        await parts.leader.asked()
        assert (parts.leader.opened, parts.ends) == (2, (1, 1))


@pytest.mark.parametrize(("unproven_offsets", "proven_from"), [(0, 0), (1, 1), (2**31 - 1, 1), (-1, 1)])
async def test_a_follower_takes_its_leaders_word_for_times_and_an_old_leaders_for_nothing(
    folder_on_disk: Path, unproven_offsets: int, proven_from: int
) -> None:
    async with following(folder_on_disk) as made:
        _, waiting = await made.leader.asked()
        waiting.set_result(answer(1, made.records, unproven_offsets))
        await made.leader.asked()
        assert made.follower.log.log_end_offset == 1
        assert made.follower.log.times_proven_from(0) == proven_from
