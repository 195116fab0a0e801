"""Waves of compacted segments in the store: what is due, and what a swap that fails leaves behind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.cold_passes import compact_store
from tests.support.partition_appends import keyed
from tests.unit.broker.tiering.tiers import SEGMENTS, TOPIC_ID, Tiers, tiers
from tiered.broker.tiering.cold_compaction import ColdCompaction, ColdCompactionState, DuePartition
from tiered.errors import CorruptObject, InvalidConfig, TieredError, UnknownTopicOrPartition
from tiered.formats.object_key import SEGMENTS_PREFIX
from tiered.meta import pins, segments
from tiered.meta.segments import SegmentRow
from tiered.rules.segments.segment_states import SegmentState

A, B = "a" * 500, "b" * 500
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
WAIT_S = 30.0
WAVE_BYTES = 1_000
"""Room for one segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Five segments in the store, each with one record: three of A and two of B."""

    made: Tiers

    def compact_now(self, before_swap: Callable[[int], None] = lambda _wave: None) -> ColdCompactionState:
        options = self.made.context.options
        return compact_store(
            options.meta_url, options.store_url, "orders", wave_bytes=WAVE_BYTES, before_swap=before_swap
        )

    async def compact(self, before_swap: Callable[[int], None] = lambda _wave: None) -> ColdCompactionState:
        return await asyncio.to_thread(self.compact_now, before_swap)

    async def look(self, *names: str) -> Sequence[DuePartition]:
        job = ColdCompaction(self.made.context.database, self.made.context.store)
        return (await asyncio.to_thread(job.look, names)).partitions

    async def rows(self) -> Sequence[SegmentRow]:
        return await self.made.context.database.run(lambda conn: segments.list_committed(conn, TOPIC_ID, 0))

    async def objects(self) -> set[str]:
        store = self.made.context.store
        return {key for key, _ in await self.made.context.uploads.run(store.list, SEGMENTS_PREFIX)}


@asynccontextmanager
async def stored(folder: Path, policy: str = "compact") -> AsyncIterator[Stored]:
    keys = (A, B, A, B, A, A)
    async with tiers(
        folder, {**COMPACT, "cleanup.policy": policy}, written=lambda number: keyed(keys[number], str(number))
    ) as made:
        await made.upload_all()
        made.context.state.is_controller = True
        await made.checkpoints.write_stale()
        yield Stored(made=made)


async def test_a_pass_swaps_in_smaller_objects_at_the_same_offsets_and_leaves_nothing_else(tmp_path: Path) -> None:
    async with stored(tmp_path) as parts:
        before = await parts.rows()
        state = await parts.compact()
        assert (state.failed, state.looked_at_segments, state.replaced_segments) == ({}, SEGMENTS, 3)
        after = await parts.rows()
        assert [(row.base_offset, row.end_offset) for row in after] == [
            (row.base_offset, row.end_offset) for row in before
        ]
        assert [now != old for now, old in zip(after, before, strict=True)] == [True, True, True, False, False]
        # Until their grace is over, what was replaced is there for readers.
        assert await parts.objects() == {row.object_key for row in (*before, *after)}
        known = await parts.made.context.database.run(lambda conn: segments.changed_since(conn, 0))
        assert SegmentState.PLANNED not in {row.state for row in known}
        assert (await parts.compact()).replaced_segments == 0


async def test_of_two_passes_at_once_the_slower_fails_and_goes_no_further(tmp_path: Path) -> None:
    async with stored(tmp_path) as parts:
        before = await parts.rows()
        waves: list[int] = []

        def meanwhile(wave: int) -> None:
            waves.append(wave)
            parts.compact_now()

        lost = await parts.compact(meanwhile)
        assert ([*lost.failed], lost.looked_at_segments, lost.replaced_segments) == (["orders-0"], 0, 0)
        assert waves == [0]
        assert await parts.objects() == {row.object_key for row in (*before, *await parts.rows())}


async def test_a_deletion_of_records_makes_a_swap_of_them_fail_and_the_next_run_goes_on(tmp_path: Path) -> None:
    async with stored(tmp_path) as parts:
        loop = asyncio.get_running_loop()

        def delete(_: int) -> None:
            moving = parts.made.lifecycle.move_log_start(parts.made.partition, 2)
            asyncio.run_coroutine_threadsafe(moving, loop).result(WAIT_S)

        lost = await parts.compact(delete)
        assert ([*lost.failed], lost.replaced_segments) == (["orders-0"], 0)
        assert (await parts.rows())[0].base_offset == 2
        again = await parts.compact()
        assert (again.failed, again.replaced_segments) == ({}, 1)


async def test_a_partition_whose_newest_object_is_gone_holds_up_no_other(tmp_path: Path) -> None:
    async with tiers(tmp_path, COMPACT, partition_count=2, written=lambda number: keyed(A, str(number))) as made:
        for partition in made.partitions:
            for base_offset in range(SEGMENTS):
                await made.lifecycle.upload(partition, base_offset)
        made.context.state.is_controller = True
        await made.checkpoints.write_stale()
        made.context.store.delete(made.partition.committed[-1].object_key)

        def begin() -> tuple[ColdCompactionState, set[int]]:
            job = ColdCompaction(made.context.database, made.context.store)
            due = job.look()
            (wave,) = job.waves(due.partitions, wave_bytes=1 << 30)
            orders = job.begin(due, wave)
            job.give_up(orders)
            return job.state, {order.partition.partition for order in orders}

        state, begun = await asyncio.to_thread(begin)
        assert (list(state.failed), begun) == (["orders-0"], {1})


async def test_a_segment_that_could_not_be_rewritten_ends_the_pass_over_its_partition_alone(tmp_path: Path) -> None:
    async with tiers(tmp_path, COMPACT, partition_count=2, written=lambda number: keyed(A, str(number))) as made:
        for partition in made.partitions:
            for base_offset in range(SEGMENTS):
                await made.lifecycle.upload(partition, base_offset)
        made.context.state.is_controller = True
        await made.checkpoints.write_stale()

        def carry_out() -> ColdCompactionState:
            job = ColdCompaction(made.context.database, made.context.store)
            due = job.look()
            (wave,) = job.waves(due.partitions, wave_bytes=1 << 30)
            orders = job.begin(due, wave)
            done = {
                order.object_id: CorruptObject("damaged") if order.partition.partition == 0 else None
                for order in orders
            }
            job.finish(orders, done)
            return job.state

        state = await asyncio.to_thread(carry_out)
        assert (state.failed, state.looked_at_segments) == ({"orders-0": "damaged"}, SEGMENTS)
        known = await made.context.database.run(lambda conn: segments.changed_since(conn, 0))
        assert SegmentState.PLANNED not in {row.state for row in known}


async def test_what_a_snapshot_holds_and_all_above_it_has_to_wait(tmp_path: Path) -> None:
    async with stored(tmp_path) as parts:
        await parts.made.context.database.run(
            lambda conn: pins.take(
                conn,
                pin_id=UUID(int=1),
                name="kept",
                topic_id=TOPIC_ID,
                owner="",
                ttl_ms=3_600_000,
                ranges=[pins.WantedRange(partition=0, start_offset=2, end_offset=3)],
                max_pins=10,
            )
        )
        (found,) = await parts.look("orders")
        assert (found.held_by, [row.base_offset for row in found.rows]) == ("kept", [0, 1])
        kept = (await parts.rows())[2:]
        await parts.compact()
        assert (await parts.rows())[2:] == kept


@pytest.mark.parametrize(
    ("policy", "name", "error"),
    [
        ("delete", "orders", InvalidConfig),
        ("compact", "unknown", UnknownTopicOrPartition),
    ],
)
async def test_a_topic_that_is_not_there_or_not_compacted_is_refused(
    tmp_path: Path, policy: str, name: str, error: type[TieredError]
) -> None:
    async with stored(tmp_path, policy) as parts:
        with pytest.raises(error, match=name):
            await parts.look(name)
