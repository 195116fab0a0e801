"""Rounds over partitions: each has its turn when something is due, and only then, whatever became of the others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tests.support.counted_turns import counted_turns
from tests.support.partition_appends import batch
from tests.unit.broker.tiering.tiers import DAY_MS, SEGMENTS, Tiers, tiers
from tests.unit.broker.tiering.unsteady_store import UnsteadyStore
from tiered.broker.partitions.partition import NOBODY, Partition
from tiered.broker.people.sql_reports import SqlReports
from tiered.broker.rounds.partition_rounds import MAX_WAITING_FOR_UPLOAD, QUIET_DISK_MS, PartitionRounds
from tiered.broker.tiering.upload_pipeline import UploadPipeline
from tiered.config import TopicConfig
from tiered.errors import StoreUnavailable
from tiered.ids import InSyncReplica
from tiered.rules.pacing import early_closes

WAIT_S = 30.0
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    made: Tiers
    rounds: PartitionRounds
    uploads: UploadPipeline
    reports: SqlReports
    store: UnsteadyStore
    let_down: list[Partition]

    async def look(self) -> None:
        """One round, and the uploads that it begins."""
        await self.rounds.look()
        async with asyncio.timeout(WAIT_S):
            while self.uploads.running:
                await asyncio.sleep(0.001)

    async def rest(self) -> None:
        """Returns once there is nothing to do until something happens, or until it is time."""
        async with asyncio.timeout(WAIT_S):
            while self.taken():
                await self.look()

    def tell(self, partition: Partition, **changed: Any) -> None:
        """The partition's row says something else, and nothing newer comes from SQL."""
        assert partition.row is not None
        row = replace(partition.row, change_number=10**6, **changed)
        partition.apply_row(row, broker_epoch=self.made.context.state.broker_epoch)

    def taken(self) -> list[Partition]:
        """What the next round would look at."""
        found = self.made.agenda.take(self.made.clock.now_ms())
        for each in found:
            each.changed()
        return found


@asynccontextmanager
async def rounds(
    folder: Path, configs: dict[str, str] | None = None, *, closes_per_hour: int = 3600
) -> AsyncIterator[Rounds]:
    """Over three partitions that this broker leads; it remembers four producers, for a second."""
    stores: list[UnsteadyStore] = []

    def store_at(url: str) -> UnsteadyStore:
        stores.append(UnsteadyStore(url))
        return stores[0]

    async with (
        tiers(
            folder,
            configs,
            partition_count=3,
            store_at=store_at,
            tiered_max_producers="4",
            producer_id_expiration_ms="1000",
            tiered_retention_max_clock_jump_ms="-1",
            tiered_disk_only_closes_per_hour=str(closes_per_hour),
        ) as made,
        asyncio.TaskGroup() as group,
    ):
        uploads = UploadPipeline(
            context=made.context, lifecycle=made.lifecycle, topics=made.topics, uploaded=lambda _where: None
        )
        uploads.start(group)
        let_down: list[Partition] = []
        reports = SqlReports(context=made.context, topics=made.topics)
        over = PartitionRounds(
            agenda=made.agenda,
            context=made.context,
            disk_failed=let_down.append,
            reports=reports,
            topics=made.topics,
            upload_pipeline=uploads,
        )
        yield Rounds(made=made, rounds=over, uploads=uploads, reports=reports, store=stores[0], let_down=let_down)
        await uploads.stop()


def append(partition: Partition, producer_id: int, now_ms: int) -> None:
    data = batch("v", producer_id=producer_id, sequence=0)
    partition.append(memoryview(data), 0, len(data), acks=0, now_ms=now_ms)


async def test_a_partition_whose_disk_failed_is_given_up_and_the_others_are_rolled_and_uploaded(tmp_path: Path) -> None:
    async with rounds(tmp_path, {"segment.ms": "3600000"}) as has:
        made = has.made
        failed, *others = made.partitions
        failed.log.fail("it went away")
        made.clock.set_by_ms = 2 * 3_600_000
        await has.look()
        assert has.let_down == [failed]
        assert [each.cold_end_offset for each in others] == [SEGMENTS + 1] * 2


async def test_a_partition_that_fails_in_an_unforeseen_way_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rounds(tmp_path) as has:
        bad, *others = has.made.partitions
        plain = Partition.roll_if_due

        def roll_if_due(self: Partition, now_ms: int) -> bool:
            assert self is not bad, "a bug"
            return plain(self, now_ms)

        monkeypatch.setattr(Partition, "roll_if_due", roll_if_due)
        await has.look()
        assert [each.cold_end_offset for each in others] == [SEGMENTS] * 2
        assert has.made.context.counters.failing_items["looking at partitions"] == 1


async def test_a_partition_whose_flush_fails_is_given_up_in_the_next_round(tmp_path: Path) -> None:
    async with rounds(tmp_path, {"remote.storage.enable": "false"}) as has:
        failing = has.made.partitions[1]
        Path(failing.log.directory).rename(tmp_path / "elsewhere")
        await has.look()
        assert failing.log.failed is not None
        await has.look()
        assert has.let_down == [failing]


async def test_records_that_nobody_waits_for_are_flushed_and_become_readable(tmp_path: Path) -> None:
    async with rounds(tmp_path, {"flush.messages": "1"}) as has:
        partition = has.made.partition
        assert partition.high_watermark < partition.log.log_end_offset
        await has.rounds.look()  # Its closed segments are flushed anyway, and the active one with them.
        assert partition.high_watermark == partition.log.log_end_offset == partition.log.flushed_offset
        for producer_id in (1, 2):  # The first begins a segment; nothing but the setting has the second flushed.
            append(partition, producer_id, has.made.clock.now_ms())
            assert partition.high_watermark < partition.log.log_end_offset
            await has.rounds.look()
            assert partition.high_watermark == partition.log.log_end_offset == partition.log.flushed_offset


async def test_producers_that_are_silent_are_forgotten_and_all_partitions_share_a_bound(tmp_path: Path) -> None:
    async with rounds(tmp_path) as has:
        made = has.made
        few, many, _ = made.partitions
        now_ms = made.clock.now_ms()
        append(few, 1, now_ms)
        for producer_id in range(5):
            append(many, producer_id, now_ms)
        await has.rounds.bound_producers()
        assert (list(few.producers.entries), list(many.producers.entries)) == ([1], [2, 3, 4])
        await has.rounds.expire_producers()
        assert len(many.producers) == 3
        made.clock.set_by_ms += 2_000
        await has.rounds.expire_producers()
        assert len(few.producers) == len(many.producers) == 0


async def test_others_are_served_while_the_producers_of_all_partitions_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rounds(tmp_path) as has:
        append(has.made.partition, 1, has.made.clock.now_ms())
        monkeypatch.setattr("tiered.runtime.TURN_MS", -1.0)
        for look in (has.rounds.bound_producers, has.rounds.expire_producers):
            turns, _ = await counted_turns(look())
            assert turns > len(has.made.partitions), look.__name__


# What is due though nothing is written


async def test_a_partition_that_nothing_happens_to_is_looked_at_no_more(tmp_path: Path) -> None:
    async with rounds(tmp_path, {"tiered.disk.only.max.ms": "-1"}) as has:
        assert has.taken() == list(has.made.partitions)
        await has.rest()
        has.made.clock.set_by_ms += HOUR_MS
        assert has.taken() == []
        append(has.made.partitions[1], 1, has.made.clock.now_ms())
        assert has.taken() == [has.made.partitions[1]]
        await has.rest()


async def test_the_disk_is_looked_at_when_something_happens_and_otherwise_once_in_a_while(tmp_path: Path) -> None:
    async with rounds(tmp_path) as has:
        reserve = has.made.context.data.root / "reserve"

        async def is_looked_at() -> bool:
            reserve.unlink(missing_ok=True)  # Whoever looks at a disk with room makes it anew.
            await has.look()
            return reserve.exists()

        await has.rest()
        looks = [await is_looked_at()]
        append(has.made.partition, 1, has.made.clock.now_ms())
        looks.append(await is_looked_at())
        await has.rest()
        looks.append(await is_looked_at())
        has.made.clock.waited_ms += QUIET_DISK_MS
        looks += [await is_looked_at(), await is_looked_at()]
        assert looks == [False, True, False, True, False]


async def test_a_segment_is_closed_and_uploaded_when_its_time_has_come(tmp_path: Path) -> None:
    async with rounds(tmp_path, {"segment.ms": str(HOUR_MS)}) as has:
        await has.rest()
        has.made.clock.set_by_ms += HOUR_MS
        await has.look()
        assert [each.cold_end_offset for each in has.made.partitions] == [SEGMENTS + 1] * 3
        await has.rest()


async def test_a_record_is_on_disks_alone_for_an_hour_at_the_most_whatever_segment_ms_says(tmp_path: Path) -> None:
    async with rounds(tmp_path, {"segment.bytes": "100000"}) as has:
        await has.rest()
        assert [each.config.segment_ms for each in has.made.partitions] == [7 * DAY_MS] * 3
        has.made.clock.set_by_ms += HOUR_MS - 60_000
        assert has.taken() == []
        has.made.clock.set_by_ms += 60_000
        await has.rest()
        assert [each.cold_end_offset for each in has.made.partitions] == [SEGMENTS + 1] * 3
        has.made.clock.set_by_ms += 7 * DAY_MS
        assert has.taken() == []  # Nothing was written since.


@pytest.mark.parametrize("configs", [{"tiered.disk.only.max.ms": "-1"}, {"remote.log.copy.disable": "true"}])
async def test_no_segment_is_closed_early_without_a_bound_or_without_uploads(
    tmp_path: Path, configs: dict[str, str]
) -> None:
    async with rounds(tmp_path, {"segment.bytes": "100000"} | configs) as has:
        await has.rest()
        has.made.clock.set_by_ms += 6 * DAY_MS
        assert has.taken() == []


async def test_a_follower_closes_no_segment_early(tmp_path: Path) -> None:
    async with rounds(tmp_path, {"segment.bytes": "100000"}) as has:
        for each in has.made.partitions:
            has.tell(each, leader=NOBODY, partition_epoch=1)
        await has.rest()
        has.made.clock.set_by_ms += 2 * HOUR_MS
        await has.look()
        assert {each.log.active_base_offset for each in has.made.partitions} == {0}


async def test_partitions_close_early_one_after_the_other_where_more_are_due_than_an_hour_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_closes, "AT_ONCE", 1)
    async with rounds(tmp_path, {"segment.bytes": "100000"}, closes_per_hour=60) as has:
        await has.rest()
        ends = []
        has.made.clock.set_by_ms += HOUR_MS
        for _ in range(4):
            await has.rest()
            ends.append(sorted(each.cold_end_offset for each in has.made.partitions))
            assert has.taken() == []
            has.made.clock.set_by_ms += 60_000
            has.made.clock.waited_ms += 60_000
        one = SEGMENTS + 1
        assert ends == [[0, 0, one], [0, one, one], [one] * 3, [one] * 3]


async def test_no_more_segments_are_closed_early_while_many_wait_for_their_upload(tmp_path: Path) -> None:
    async with rounds(tmp_path, {"segment.bytes": "100000"}) as has:
        has.store.fails = lambda _key: StoreUnavailable("it is away")
        partition = has.made.partition
        for number in range(MAX_WAITING_FOR_UPLOAD + 5):
            append(partition, number + 1, has.made.clock.now_ms())
            has.made.clock.set_by_ms += HOUR_MS
            await has.look()
        assert len(partition.log.segments) == MAX_WAITING_FOR_UPLOAD + 1
        has.store.fails = lambda _key: None
        has.made.clock.waited_ms += HOUR_MS
        await has.rest()
        assert partition.cold_end_offset == partition.log.log_end_offset


async def test_a_record_is_flushed_when_its_time_has_come(tmp_path: Path) -> None:
    async with rounds(
        tmp_path, {"flush.ms": str(HOUR_MS), "segment.bytes": "100000", "tiered.disk.only.max.ms": "-1"}
    ) as has:
        await has.rest()
        partition = has.made.partition
        assert partition.log.flushed_offset < partition.log.log_end_offset
        has.made.clock.set_by_ms += HOUR_MS
        await has.look()
        assert partition.log.flushed_offset == partition.log.log_end_offset
        assert has.taken() == []


async def test_an_upload_that_failed_is_tried_again(tmp_path: Path) -> None:
    async with rounds(tmp_path) as has:
        has.store.fails = lambda _key: StoreUnavailable("it is away")
        await has.look()
        assert [each.cold_end_offset for each in has.made.partitions] == [0] * 3
        has.store.fails = lambda _key: None
        has.made.clock.waited_ms += HOUR_MS
        await has.rest()
        assert [each.cold_end_offset for each in has.made.partitions] == [SEGMENTS] * 3


async def test_a_segment_that_could_not_be_begun_is_tried_again(tmp_path: Path) -> None:
    async with rounds(tmp_path) as has:
        await has.rest()
        partition = has.made.partition
        partition.configure(TopicConfig.of({"segment.bytes": "100"}, has.made.context.settings))
        next_segment = Path(partition.log.directory) / f"{partition.log.log_end_offset:020d}.log"
        next_segment.mkdir()
        await has.look()
        assert has.taken() == [partition]
        next_segment.rmdir()
        await has.rest()
        assert partition.cold_end_offset == SEGMENTS + 1


async def test_new_settings_count_for_what_has_been_written(tmp_path: Path) -> None:
    async with rounds(tmp_path, {"remote.storage.enable": "false"}) as has:
        await has.rest()
        has.made.clock.set_by_ms += HOUR_MS
        assert has.made.partition.cold_end_offset == 0
        config = TopicConfig.of({"segment.ms": str(HOUR_MS)}, has.made.context.settings)
        for each in has.made.partitions:
            each.configure(config)
        await has.rest()
        assert [each.cold_end_offset for each in has.made.partitions] == [SEGMENTS + 1] * 3


async def test_a_new_leader_uploads_and_closes_what_the_one_before_it_wrote(tmp_path: Path) -> None:
    async with rounds(tmp_path, {"segment.ms": str(HOUR_MS)}) as has:
        partition = has.made.partition
        has.tell(partition, leader=NOBODY, partition_epoch=1)
        await has.rest()
        has.made.clock.set_by_ms += HOUR_MS
        await has.rest()
        assert (partition.cold_end_offset, partition.log.active_base_offset) == (0, SEGMENTS)
        has.tell(partition, leader=has.made.context.broker_id, partition_epoch=2)
        await has.rest()
        assert partition.cold_end_offset == SEGMENTS + 1


async def test_what_followers_have_at_last_is_reported(tmp_path: Path) -> None:
    async with rounds(tmp_path, {"segment.bytes": "100000"}) as has:
        partition, follower = has.made.partition, InSyncReplica(2, 1)
        assert partition.row is not None
        isr = (*partition.row.isr, follower)
        has.tell(partition, replicas=(has.made.context.broker_id, 2), isr=isr, partition_epoch=1)
        await has.look()
        append(partition, 1, has.made.clock.now_ms())
        await has.look()
        await has.reports.write()
        partition.note_fetch(follower, partition.log.log_end_offset, 0.0)
        await has.rest()
        await has.reports.write()
        of = text("SELECT high_watermark FROM partition_position WHERE partition = 0")
        told = await has.made.context.database.run(lambda conn: conn.execute(of).scalar_one())
        assert told == partition.high_watermark == partition.log.log_end_offset


async def test_what_retention_closes_is_uploaded_before_it_goes(tmp_path: Path) -> None:
    async with rounds(tmp_path, {"segment.bytes": "100000"}) as has:
        await has.rest()
        has.made.clock.set_by_ms += 2 * DAY_MS
        await has.made.retention.round()
        await has.rest()
        assert [each.cold_end_offset for each in has.made.partitions] == [SEGMENTS + 1] * 3
        await has.made.retention.round()
        assert [each.log_start_offset for each in has.made.partitions] == [SEGMENTS + 1] * 3


async def test_a_partition_that_left_is_forgotten_and_no_more_reported(tmp_path: Path) -> None:
    async with rounds(tmp_path, {"segment.ms": str(HOUR_MS)}) as has:
        await has.rest()
        await has.reports.write()
        topic = has.made.topics.by_name("orders")
        has.made.topics.put(replace(topic, partitions=topic.partitions[1:]))
        has.made.partition.stop()
        await has.rest()
        has.made.clock.set_by_ms += HOUR_MS
        assert has.taken() == list(topic.partitions[1:])
        await has.reports.write()
        of = text("SELECT DISTINCT partition FROM local_segment ORDER BY 1")
        assert await has.made.context.database.run(lambda conn: list(conn.execute(of).scalars())) == [1, 2]
