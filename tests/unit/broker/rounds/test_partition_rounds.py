"""Rounds over all partitions: each has its turn, whatever became of the one before it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.partition_appends import batch
from tests.unit.broker.tiering.tiers import SEGMENTS, Tiers, tiers
from tiered.broker.partitions.partition import Partition
from tiered.broker.rounds.partition_rounds import PartitionRounds
from tiered.broker.tiering.upload_pipeline import UploadPipeline

WAIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    made: Tiers
    rounds: PartitionRounds
    uploads: UploadPipeline
    let_down: list[Partition]


@asynccontextmanager
async def rounds(folder: Path, configs: dict[str, str] | None = None) -> AsyncIterator[Rounds]:
    """Over three partitions that this broker leads; it remembers four producers, for a second."""
    async with (
        tiers(folder, configs, partition_count=3, tiered_max_producers="4", producer_id_expiration_ms="1000") as made,
        asyncio.TaskGroup() as group,
    ):
        uploads = UploadPipeline(context=made.context, lifecycle=made.lifecycle, topics=made.topics)
        uploads.start(group)
        let_down: list[Partition] = []
        over = PartitionRounds(
            context=made.context, disk_failed=let_down.append, topics=made.topics, upload_pipeline=uploads
        )
        yield Rounds(made=made, rounds=over, uploads=uploads, let_down=let_down)
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
        await has.rounds.look()
        async with asyncio.timeout(WAIT_S):
            while has.uploads.running:
                await asyncio.sleep(0.001)
        assert has.let_down == [failed]
        assert [each.cold_end_offset for each in others] == [SEGMENTS + 1] * 2


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
