"""Cold loads give way while the tail is used, and only then."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.cold.cached_chunks import OBJECT, Loads, until, with_cache
from tiered.broker.tiering.cold_pacing import ColdPacing
from tiered.cold.chunks.cache import ChunkCache
from tiered.metrics import CountersState
from tiered.runtime import SystemClock


@pytest.mark.parametrize("field", ["produced_bytes", "fetched_local_bytes", "replication_bytes_in"])
def test_loads_are_held_back_while_records_go_into_the_log_or_out_of_it(tmp_path: Path, field: str) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        counters = CountersState(produced_bytes=5, fetched_local_bytes=5)
        pacing = ColdPacing(cache, counters, SystemClock(), most=8)

        async def use_tail() -> None:
            while True:
                setattr(counters, field, getattr(counters, field) + 1)
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as tasks:
            pacing.start(tasks)
            using = tasks.create_task(use_tail())
            await asyncio.sleep(0.3)
            assert cache.turns.allowed == 8, "nothing is loaded"
            loads.gate.clear()
            first = cache.loading(loads.run((OBJECT, 0), [1000]))
            await until(lambda: cache.turns.allowed == 1)
            using.cancel()
            await until(lambda: cache.turns.allowed == 8)
            loads.gate.set()
            await first
            await pacing.stop()

    with_cache(tmp_path, test)


def test_a_backfill_alone_is_never_held_back(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        counters = CountersState(produced_bytes=5)
        pacing = ColdPacing(cache, counters, SystemClock(), most=8)
        async with asyncio.TaskGroup() as tasks:
            pacing.start(tasks)
            loads.gate.clear()
            first = cache.loading(loads.run((OBJECT, 0), [1000]))
            for _ in range(60):
                counters.fetched_cold_bytes += 1000
                counters.fetched_bytes += 1000
                await asyncio.sleep(0.01)
                assert cache.turns.allowed == 8
            loads.gate.set()
            await first
            await pacing.stop()

    with_cache(tmp_path, test)
