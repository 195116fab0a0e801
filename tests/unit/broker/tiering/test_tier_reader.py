"""Reads and look-ups by time over both tiers: the store's part first, and never what lies below the log start."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker.tiering.tiers import SEGMENTS, Tiers, tiers
from tiered.account import Account, on_behalf_of
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.readable import Readable
from tiered.broker.tiering.tier_reader import COLD_READS_OF_OWNER, DISK_READS_OF_OWNER, TierReader
from tiered.errors import CorruptObject
from tiered.file_slice import FileSlice, ReadBatches
from tiered.formats.record_batch import Record, encode_batch, read_header
from tiered.hot.log import Log
from tiered.runtime import BlockingPool
from tiered.server.kafka.transport.turns import Stepped, let_others

FIRST_MS = 1_700_000_000_000


def written(number: int) -> bytearray:
    """Each a second later than the one before, but for the fourth, which is the latest."""
    at_ms = FIRST_MS + (100_000 if number == 3 else 1000 * number)
    return bytearray(encode_batch([Record(offset=0, timestamp_ms=at_ms, key=None, value=b"v" * 500)]))


@asynccontextmanager
async def cold(folder: Path) -> AsyncIterator[tuple[Tiers, TierReader]]:
    """All closed segments are in the store alone."""
    async with tiers(folder, {"local.retention.bytes": "0", "retention.ms": "-1"}, written=written) as made:
        await made.upload_all()
        await made.lifecycle.delete_local(made.partition)
        assert made.partition.log.local_log_start_offset == SEGMENTS
        async with asyncio.TaskGroup() as group:
            await made.cold_reader.start(group)
            yield made, TierReader(made.cold_reader, made.context.disk, made.context.counters)
            await made.cold_reader.stop()


async def test_a_cold_offset_is_read_from_the_store_and_a_hot_one_is_not(folder_on_disk: Path) -> None:
    async with cold(folder_on_disk) as (made, reader):
        found = await reader.read_cold(made.partition, 2, 1)
        assert found is not None
        assert read_header(found.records.read(), 0).base_offset == 2
        assert made.context.counters.fetched_cold_bytes == found.records.length
        await reader.make_resident(found.records)
        assert reader.is_resident(found.records)
        assert await reader.read_cold(made.partition, SEGMENTS, 1) is None


async def test_a_damaged_object_is_counted_and_refused_by_its_place(tmp_path: Path) -> None:
    async with cold(tmp_path) as (made, reader):
        store, key = made.context.store, made.partition.committed[1].object_key
        kept, _ = store.get(key, max_bytes=1 << 20)
        store.delete(key)
        store.put(key, kept[:80] + bytes([kept[80] ^ 1]) + kept[81:])
        with pytest.raises(CorruptObject, match="topic orders partition 0 offsets 1 to 1"):
            await reader.read_cold(made.partition, 1, 1)
        assert made.context.counters.cold_corruptions == 1


async def test_the_first_record_at_a_time_is_found_in_either_tier_from_the_log_start_on(tmp_path: Path) -> None:
    async with cold(tmp_path) as (made, reader):
        partition = made.partition
        assert await reader.offset_for_timestamp(partition, FIRST_MS + 1) == (1, FIRST_MS + 1000)
        assert await reader.offset_for_timestamp(partition, FIRST_MS + 3000) == (3, FIRST_MS + 100_000)
        assert await reader.offset_for_timestamp(partition, FIRST_MS + 100_001) is None
        await made.lifecycle.move_log_start(partition, 4)
        assert await reader.offset_for_timestamp(partition, 0) == (4, FIRST_MS + 4000)
        assert await reader.offset_for_timestamp(partition, FIRST_MS + 4001) == (5, FIRST_MS + 5000)


async def test_the_latest_record_may_be_a_cold_one(tmp_path: Path) -> None:
    async with cold(tmp_path) as (made, reader):
        assert await reader.max_timestamp(made.partition) == (3, FIRST_MS + 100_000)
        await made.lifecycle.move_log_start(made.partition, 4)
        assert await reader.max_timestamp(made.partition) == (5, FIRST_MS + 5000)


@pytest.mark.parametrize("is_looked_at_first", [True, False])
async def test_what_moves_to_the_store_between_the_looks_at_the_two_tiers_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_looked_at_first: bool
) -> None:
    configs = {"local.retention.bytes": "0", "retention.ms": "-1"}
    async with tiers(tmp_path, configs, written=written) as made, asyncio.TaskGroup() as group:
        await made.upload_all()
        await made.cold_reader.start(group)
        partition, reader = made.partition, TierReader(made.cold_reader, made.context.disk, made.context.counters)
        due = [1, 3, 5]

        def beside(plain: Callable[..., tuple[int, int] | None]) -> Callable[..., tuple[int, int] | None]:
            def looked_at(*arguments: int) -> tuple[int, int] | None:
                early = plain(*arguments) if is_looked_at_first else None
                if due:
                    partition.log.delete_local_before(due.pop(0))
                return early if is_looked_at_first else plain(*arguments)

            return looked_at

        for name in ("offset_for_timestamp", "max_timestamp_offset"):
            monkeypatch.setattr(Log, name, beside(getattr(Log, name)))
        assert await reader.max_timestamp(partition) == (3, FIRST_MS + 100_000)
        assert not due
        due = [5]
        assert await reader.offset_for_timestamp(partition, FIRST_MS + 1) == (1, FIRST_MS + 1000)
        await made.cold_reader.stop()


async def test_a_look_up_by_time_finds_nothing_below_a_log_start_within_a_batch(tmp_path: Path) -> None:
    two = [Record(offset=at, timestamp_ms=FIRST_MS + at, key=None, value=b"v" * 250) for at in range(2)]
    configs = {"local.retention.bytes": "0", "retention.ms": "-1"}
    async with (
        tiers(tmp_path, configs, written=lambda _: bytearray(encode_batch(two))) as made,
        asyncio.TaskGroup() as group,
    ):
        await made.cold_reader.start(group)
        partition, reader = made.partition, TierReader(made.cold_reader, made.context.disk, made.context.counters)
        await made.lifecycle.upload(partition, 0)
        await made.lifecycle.delete_local(partition)
        assert await reader.offset_for_timestamp(partition, 0) == (0, FIRST_MS)
        await made.lifecycle.move_log_start(partition, 1)
        assert await reader.offset_for_timestamp(partition, 0) == (1, FIRST_MS + 1)
        await made.cold_reader.stop()


def one_record(times: list[int], number: int) -> bytearray:
    return bytearray(encode_batch([Record(offset=0, timestamp_ms=times[number], key=None, value=b"v" * 500)]))


async def test_minus_three_is_the_first_of_the_latest_records_whichever_tier_they_are_in(tmp_path: Path) -> None:
    """The times of the segments' records, the last one hot; what objects from before say of them is wrong."""
    for times, expected in (
        ([5, 9, 9, 1, 9, 9], (1, 9)),
        ([5, 1, 2, 3, 4, 5], (0, 5)),
        ([5, 1, 2, 3, 4, 6], (5, 6)),
        ([-1] * 6, None),
    ):
        for wrong in (False, True):
            folder = tmp_path / f"{times}-{wrong}"
            folder.mkdir()
            configs = {"local.retention.bytes": "0", "retention.ms": "-1"}
            batches = partial(one_record, times)
            async with tiers(folder, configs, written=batches) as made, asyncio.TaskGroup() as group:
                partition, reader = (
                    made.partition,
                    TierReader(made.cold_reader, made.context.disk, made.context.counters),
                )
                assert await reader.max_timestamp(partition) == expected, "all hot"
                await made.upload_all()
                await made.lifecycle.delete_local(partition)
                await made.cold_reader.start(group)
                if wrong:
                    old = [
                        replace(each, max_timestamp_ms=-1, max_timestamp_is_proven=None) for each in partition.committed
                    ]
                    partition._committed = old
                assert await reader.max_timestamp(partition) == expected
                await made.cold_reader.stop()


class SlowReader(TierReader):
    """Notes what begins, and answers nothing before it may."""

    def begin(self) -> None:
        self.begun: list[int] = []
        self.may_end = asyncio.Event()

    async def _in_store(
        self, partition: Readable, offset: int, max_bytes: int, joined_bytes: int
    ) -> ReadBatches | None:
        self.begun.append(offset)
        await self.may_end.wait()
        return await super()._in_store(partition, offset, max_bytes, joined_bytes)

    async def _first_at(self, partition: Readable, timestamp_ms: int, run: Any) -> tuple[int, int] | None:
        self.begun.append(timestamp_ms)
        await self.may_end.wait()
        return await super()._first_at(partition, timestamp_ms, run)


@asynccontextmanager
async def slow(folder: Path) -> AsyncIterator[tuple[Partition, SlowReader]]:
    async with cold(folder) as (made, _):
        reader = SlowReader(made.cold_reader, made.context.disk, made.context.counters)
        reader.begin()
        yield made.partition, reader
        reader.may_end.set()


async def test_who_reads_what_is_cold_and_hangs_up_again_and_again_has_few_downloads_go_before_others(
    tmp_path: Path,
) -> None:
    async with slow(tmp_path) as (partition, reader):
        for _ in range(3):
            hers = [
                asyncio.create_task(reader.read_cold(partition, 1, 1, owner="alice"))
                for _ in range(COLD_READS_OF_OWNER)
            ]
            await asyncio.sleep(0.01)
            for task in hers:
                task.cancel()
            await asyncio.wait(hers)
        his = asyncio.create_task(reader.read_cold(partition, 2, 1, owner="bob"))
        await asyncio.sleep(0.01)
        assert reader.begun == [1] * COLD_READS_OF_OWNER + [2]
        reader.may_end.set()
        assert await his is not None


class NothingInMemory(TierReader):
    def is_resident(self, part: FileSlice) -> bool:
        return False


async def test_who_reads_what_is_not_in_memory_and_hangs_up_leaves_the_disks_threads_to_others(
    tmp_path: Path,
) -> None:
    disk, may_end = BlockingPool("disk", threads=1), threading.Event()
    async with cold(tmp_path) as (made, _):
        reader = NothingInMemory(made.cold_reader, disk, made.context.counters)
        batches = await reader.read_cold(made.partition, 1, 1)
        assert batches is not None
        flushing = asyncio.create_task(disk.run(may_end.wait, 30))
        for _ in range(3):
            hers = [asyncio.create_task(reader.make_resident(batches.records, owner="alice")) for _ in range(20)]
            await asyncio.sleep(0.01)
            for task in hers:
                task.cancel()
            await asyncio.wait(hers)
        assert disk.pending == 1 + DISK_READS_OF_OWNER
        may_end.set()
        assert await flushing
        await reader.make_resident(batches.records, owner="alice")
    await asyncio.to_thread(disk.close)


async def test_lookups_by_time_of_one_owner_wait_for_each_other_and_those_of_others_do_not(tmp_path: Path) -> None:
    async with slow(tmp_path) as (partition, reader):

        def of(owner: str, timestamp_ms: int) -> "asyncio.Task[tuple[int, int] | None]":
            step = partial(on_behalf_of, Account(owner))
            return asyncio.create_task(
                Stepped(reader.offset_for_timestamp(partition, timestamp_ms), step=step, pause=let_others)
            )

        hers = [of("alice", FIRST_MS + number) for number in range(3)]
        his = of("bob", FIRST_MS + 9)
        await asyncio.sleep(0.01)
        assert reader.begun == [FIRST_MS, FIRST_MS + 9]
        hers[0].cancel()
        await asyncio.sleep(0.01)
        assert reader.begun == [FIRST_MS, FIRST_MS + 9], "the first goes on though nobody waits for it"
        reader.may_end.set()
        assert await his == (1, FIRST_MS + 1000)
        await asyncio.wait(hers)
