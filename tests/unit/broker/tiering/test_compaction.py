"""Which replica is compacted, when, and what of it must stay."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.partition_appends import append, bytes_of, keyed
from tests.unit.broker.tiering.tiers import SEGMENTS, Tiers, tiers
from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.tiering.compaction import REST_MS, CompactionRounds
from tiered.file_slice import OpenFile
from tiered.formats import record_batch
from tiered.hot.file_system import RealFileSystem
from tiered.ids import InSyncReplica
from tiered.rules.segments.compaction import CompactionReason, Due

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
A, B, C = ("a" * 500, "b" * 500, "c" * 500)
"""Keys so long that each record closes the segment of the one before."""
RECORDS = [(A, "old"), (B, "old"), (A, "new"), (B, None), (C, "new"), (C, "active")]


class FullDisk(RealFileSystem):
    is_full = False

    def create(self, path: str) -> OpenFile:
        if self.is_full:
            raise OSError(28, "no space left")
        return super().create(path)


class FirstIsAlwaysLate(CompactionRounds):
    """Somebody keeps writing to the first partition, whose topic has a `max.compaction.lag.ms` of 1."""

    def due(self, partition: Partition) -> Due:
        due = super().due(partition)
        return due if partition.topic_partition.partition else replace(due, why=CompactionReason.LATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacting:
    made: Tiers
    context: BrokerContext
    files: FullDisk
    rounds: CompactionRounds

    @property
    def partition(self) -> Partition:
        return self.made.partition

    @property
    def offsets(self) -> list[int]:
        data = bytes_of(self.partition)
        found = record_batch.whole_batches(data, 0, len(data))
        return [record.offset for position, _ in found for record in record_batch.records(data, position)]

    async def flush(self) -> None:
        await self.context.flusher.flushed(self.partition.log, self.partition.log.log_end_offset)


@asynccontextmanager
async def compacting(
    folder: Path,
    configs: dict[str, str] | None = None,
    *,
    enabled: str = "true",
    partition_count: int = 1,
    rounds_of: type[CompactionRounds] = CompactionRounds,
) -> AsyncIterator[Compacting]:
    async with tiers(
        folder,
        {**COMPACT, **(configs or {})},
        partition_count=partition_count,
        written=lambda number: keyed(*RECORDS[number]),
        log_cleaner_enable=enabled,
    ) as made:
        files = FullDisk()
        context = replace(made.context, files=files)
        rounds = rounds_of(context=context, topics=made.topics, image=made.image)
        yield Compacting(made=made, context=context, files=files, rounds=rounds)
        await asyncio.to_thread(rounds.close)


async def test_the_newest_of_each_key_stays_at_its_offset_and_the_active_segment_is_left_alone(tmp_path: Path) -> None:
    async with compacting(tmp_path) as parts:
        await parts.flush()
        await parts.rounds.round()
        assert parts.offsets == [2, 3, 4, 5]
        assert (parts.context.counters.compactions, parts.context.counters.compaction_removed_records) == (1, 2)
        await parts.rounds.round()
        assert parts.context.counters.compactions == 1, "nothing is dirty any more"


async def test_what_a_power_loss_could_take_removes_nothing(tmp_path: Path) -> None:
    async with compacting(tmp_path) as parts:
        assert parts.partition.log.flushed_offset < SEGMENTS
        await parts.rounds.round()
        assert parts.offsets == [0, 1, 2, 3, 4, 5]
        await parts.flush()
        await parts.rounds.round()
        assert parts.offsets == [2, 3, 4, 5]


@pytest.mark.parametrize(("in_the_store", "left"), [("true", [3, 6, 7, 8]), ("false", [6, 7, 8])])
async def test_a_tombstone_outlives_its_time_where_what_it_deletes_may_be_in_the_store(
    tmp_path: Path, in_the_store: str, left: list[int]
) -> None:
    async with compacting(tmp_path, {"remote.storage.enable": in_the_store}) as parts:
        await parts.flush()
        await parts.rounds.round()
        # With a retention of nothing, the second pass may remove it.
        parts.made.clock.set_by_ms += 1
        for value in ("newer", "newest", "active"):
            append(parts.partition, keyed(A if value == "newer" else C, value), acks=1)
        await parts.flush()
        await parts.rounds.round()
        assert parts.offsets == left


@pytest.mark.parametrize("in_isr", [False, True], ids=["not in the ISR", "in it, and not in service"])
async def test_a_tombstone_outlives_its_time_while_a_replica_may_not_have_it(tmp_path: Path, in_isr: bool) -> None:
    """It would go on where it was, and keep what is deleted."""
    async with compacting(tmp_path, {"remote.storage.enable": "false"}) as parts:
        await parts.flush()
        row = parts.partition.row
        assert row is not None
        away = InSyncReplica(99, 1)
        one_more = replace(
            row,
            replicas=(*row.replicas, away.broker_id),
            isr=(*row.isr, away) if in_isr else row.isr,
            partition_epoch=row.partition_epoch + 1,
        )
        parts.partition.apply_row(one_more, broker_epoch=parts.made.context.state.broker_epoch)
        await parts.rounds.round()
        parts.made.clock.set_by_ms += 1
        await parts.rounds.round()
        assert parts.offsets == [2, 3, 4, 5]
        parts.partition.apply_row(
            replace(row, partition_epoch=row.partition_epoch + 2),
            broker_epoch=parts.made.context.state.broker_epoch,
        )
        await parts.rounds.round()
        assert parts.offsets == [2, 4, 5]


@pytest.mark.parametrize("why", ["switched off", "disk low"])
async def test_nothing_is_compacted_while_it_is_switched_off_or_the_disk_is_full(tmp_path: Path, why: str) -> None:
    async with compacting(tmp_path, enabled="false" if why == "switched off" else "true") as parts:
        parts.context.reserve.is_low = why == "disk low"
        await parts.flush()
        await parts.rounds.round()
        assert parts.offsets == [0, 1, 2, 3, 4, 5]


async def test_a_pass_that_failed_leaves_the_log_and_is_tried_again_after_a_rest(tmp_path: Path) -> None:
    async with compacting(tmp_path) as parts:
        await parts.flush()
        parts.files.is_full = True
        await parts.rounds.round()
        await parts.rounds.round()
        assert (parts.offsets, parts.context.counters.compaction_failures) == ([0, 1, 2, 3, 4, 5], 1)
        parts.files.is_full = False
        await parts.rounds.round()
        assert parts.offsets == [0, 1, 2, 3, 4, 5]
        parts.made.clock.waited_ms += REST_MS
        await parts.rounds.round()
        assert parts.offsets == [2, 3, 4, 5]


async def test_a_partition_that_is_late_all_the_time_keeps_no_other_from_its_pass(tmp_path: Path) -> None:
    async with compacting(tmp_path, partition_count=2, rounds_of=FirstIsAlwaysLate) as parts:
        for partition in parts.made.partitions:
            await parts.context.flusher.flushed(partition.log, partition.log.log_end_offset)
        await parts.rounds.round()
        assert [partition.log.compacted.clean_end_offset for partition in parts.made.partitions] == [5, 5]
