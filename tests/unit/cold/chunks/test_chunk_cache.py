"""The chunk cache: bounded, shared, and never stopped by a reader that went away."""

import asyncio
import os
from pathlib import Path
from uuid import UUID

import pytest

from tests.unit.cold.cached_chunks import OBJECT, Loads, content, on_disk, until, with_cache
from tiered.cold.budget import Budget
from tiered.cold.chunks.cache import ChunkCache
from tiered.errors import CorruptObject, ShuttingDown, StoreUnavailable, Throttled


def test_second_read_comes_from_disk(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        key = (OBJECT, 0)
        for _ in range(3):
            found = await cache.get(key, loads.of(key, 500), length=500)
            assert found.read() == content(key, 500)
        assert loads.calls == [key]
        assert (cache.state.loads, cache.state.hits, cache.state.held_bytes) == (1, 2, 500)
        assert on_disk(tmp_path) == 500

    with_cache(tmp_path, test)


def test_readers_of_one_chunk_share_one_load(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        key = (OBJECT, 7)
        loads.gate.clear()
        readers = [asyncio.ensure_future(cache.get(key, loads.of(key, 500), length=500)) for _ in range(20)]
        await until(lambda: loads.calls != [])
        loads.gate.set()
        assert {(await reader).read() for reader in readers} == {content(key, 500)}
        assert loads.calls == [key]
        assert cache.joined == 19

    with_cache(tmp_path, test)


def test_reader_that_goes_away_does_not_stop_the_load(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        key = (OBJECT, 1)
        loads.gate.clear()
        reader = asyncio.ensure_future(cache.get(key, loads.of(key, 500), length=500))
        await until(lambda: loads.calls != [])
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        loads.gate.set()
        await until(lambda: cache.state.held_bytes == 500)
        assert (await cache.get(key, loads.of(key, 500), length=500)).read() == content(key, 500)
        assert loads.calls == [key]

    with_cache(tmp_path, test)


def test_failure_reaches_every_waiter_and_is_not_remembered(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        key = (OBJECT, 2)
        loads.gate.clear()
        loads.fail = CorruptObject("flipped")
        readers = [asyncio.ensure_future(cache.get(key, loads.of(key, 500), length=500)) for _ in range(3)]
        await until(lambda: loads.calls != [])
        loads.gate.set()
        for reader in readers:
            with pytest.raises(CorruptObject, match="flipped"):
                await reader
        assert on_disk(tmp_path) == 0
        loads.fail = None
        assert (await cache.get(key, loads.of(key, 500), length=500)).read() == content(key, 500)
        assert len(loads.calls) == 2

    with_cache(tmp_path, test)


def test_disk_never_holds_more_than_the_bound_and_the_oldest_use_goes_first(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        for index in range(10):
            key = (OBJECT, index)
            await cache.get(key, loads.of(key, 1000), length=1000)
            assert on_disk(tmp_path) <= 3000
            await cache.get((OBJECT, 0), loads.of((OBJECT, 0), 1000), length=1000)
        assert loads.calls.count((OBJECT, 0)) == 1, "what is used again and again stays"
        assert cache.state.held_bytes == on_disk(tmp_path) == 3000
        assert cache.state.evictions == 7
        await cache.get((OBJECT, 1), loads.of((OBJECT, 1), 1000), length=1000)
        assert loads.calls.count((OBJECT, 1)) == 2

    with_cache(tmp_path, test, max_bytes=3000)


def test_many_loads_at_once_stay_within_the_bound(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        keys = [(OBJECT, index) for index in range(30)]
        found = await asyncio.gather(*(cache.get(key, loads.of(key, 1000), length=1000) for key in keys))
        assert [each.read() for each in found] == [content(key, 1000) for key in keys]
        assert cache.state.held_bytes == on_disk(tmp_path) <= 2500

    with_cache(tmp_path, test, max_bytes=2500)


def test_evicted_chunk_stays_readable_for_those_who_hold_it(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        held = await cache.get((OBJECT, 0), loads.of((OBJECT, 0), 1000), length=1000)
        for index in range(1, 5):
            await cache.get((OBJECT, index), loads.of((OBJECT, index), 1000), length=1000)
        assert not (tmp_path / f"{OBJECT}-0.chunk").exists()
        assert held.read() == content((OBJECT, 0), 1000)

    with_cache(tmp_path, test, max_bytes=2000)


def test_chunk_larger_than_the_cache_is_served_and_not_kept(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        small, large = (OBJECT, 0), (OBJECT, 1)
        await cache.get(large, loads.of(large, 5000), length=5000)
        assert (await cache.get(large, loads.of(large, 5000), length=5000)).read() == content(large, 5000)
        assert cache.state.uncached == 2
        await cache.get(small, loads.of(small, 100), length=100)
        assert cache.state.held_bytes == on_disk(tmp_path) == 100

    with_cache(tmp_path, test, max_bytes=2000)


def test_loads_together_stay_within_the_byte_budget(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        loads.gate.clear()
        keys = [(OBJECT, index) for index in range(9)]
        readers = [asyncio.ensure_future(cache.get(key, loads.of(key, 1000), length=1000)) for key in keys]
        await until(lambda: len(loads.calls) == 3)
        assert cache.loading_bytes == 3000
        loads.gate.set()
        await asyncio.gather(*readers)
        assert loads.most_at_once <= 3
        assert cache.loading_bytes == 0

    with_cache(tmp_path, test, max_bytes_in_flight=3000)


def test_read_ahead_gives_way_to_readers(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        first, ahead, late = (OBJECT, 0), (OBJECT, 1), (OBJECT, 2)
        cache.read_ahead(loads.run(ahead, [1000]))
        await until(lambda: cache.state.held_bytes == 1000)
        loads.gate.clear()
        reader = asyncio.ensure_future(cache.get(first, loads.of(first, 1000), length=1000))
        await until(lambda: first in loads.calls)
        cache.read_ahead(loads.run(ahead, [1000]))
        cache.read_ahead(loads.run(late, [1000]))
        loads.gate.set()
        await reader
        assert late not in loads.calls
        assert loads.calls.count(ahead) == 1
        assert cache.state.read_ahead == 1

    with_cache(tmp_path, test, max_bytes_in_flight=2000)


def test_failed_read_ahead_disturbs_nobody(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        key = (OBJECT, 3)
        loads.fail = StoreUnavailable("away")
        cache.read_ahead(loads.run(key, [1000]))
        await until(lambda: cache.state.failures == 1)
        loads.fail = None
        assert (await cache.get(key, loads.of(key, 1000), length=1000)).read() == content(key, 1000)

    with_cache(tmp_path, test)


def test_full_disk_is_read_past(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        key = (OBJECT, 4)
        # A folder in the place of the file makes every write of this chunk fail, as a full disk would.
        (tmp_path / f"{OBJECT}-4.unfinished").mkdir()
        for _ in range(2):
            assert (await cache.get(key, loads.of(key, 1000), length=1000)).read() == content(key, 1000)
        assert cache.state.uncached == 2
        assert cache.state.held_bytes == 0

    with_cache(tmp_path, test)


def test_chunk_removed_behind_our_back_is_loaded_again(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        key = (OBJECT, 5)
        await cache.get(key, loads.of(key, 1000), length=1000)
        (tmp_path / f"{OBJECT}-5.chunk").unlink()
        assert (await cache.get(key, loads.of(key, 1000), length=1000)).read() == content(key, 1000)
        assert cache.state.held_bytes == on_disk(tmp_path) == 1000

    with_cache(tmp_path, test)


def test_a_chunk_is_never_found_through_a_file_that_closes_in_another_thread(tmp_path: Path) -> None:
    """Slices are dropped in threads while the loop looks the same chunk up."""

    async def test(cache: ChunkCache, loads: Loads) -> None:
        key = (OBJECT, 7)
        for _ in range(300):
            slices = [await cache.get(key, loads.of(key, 100), length=100) for _ in range(3)]
            reads = [asyncio.get_running_loop().run_in_executor(None, slices.pop().read) for _ in range(3)]
            again = await cache.get(key, loads.of(key, 100), length=100)
            assert again.read() == content(key, 100)
            assert await asyncio.gather(*reads) == [content(key, 100)] * 3

    with_cache(tmp_path, test)


def test_start_wipes_what_an_earlier_process_left(tmp_path: Path) -> None:
    (tmp_path / f"{OBJECT}-0.chunk").write_bytes(b"from before, unverified")
    (tmp_path / f"{OBJECT}-1.unfinished").write_bytes(b"torn")

    async def test(cache: ChunkCache, loads: Loads) -> None:
        assert on_disk(tmp_path) == 0
        key = (OBJECT, 0)
        assert (await cache.get(key, loads.of(key, 23), length=23)).read() == content(key, 23)

    with_cache(tmp_path, test)


def test_stop_tells_those_who_wait(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        key = (OBJECT, 6)
        loads.gate.clear()
        reader = asyncio.ensure_future(cache.get(key, loads.of(key, 1000), length=1000))
        await until(lambda: loads.calls != [])
        await cache.stop()
        with pytest.raises(ShuttingDown):
            await reader
        with pytest.raises(ShuttingDown):
            await cache.get((OBJECT, 8), loads.of((OBJECT, 8), 10), length=10)

    with_cache(tmp_path, test)


def test_open_files_do_not_grow_with_the_cache(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        def open_files() -> int:
            return len(os.listdir("/proc/self/fd"))

        before = open_files()
        for index in range(50):
            await cache.get((UUID(int=index), 0), loads.of((UUID(int=index), 0), 100), length=100)
        assert open_files() - before < 10

    with_cache(tmp_path, test)


def test_budget_is_given_in_order_and_survives_waiters_that_leave() -> None:
    async def test() -> None:
        budget = Budget(10, max_waiting=3)
        order: list[str] = []

        async def use(name: str, size_bytes: int) -> None:
            async with budget.taken(size_bytes):
                order.append(name)
                await asyncio.sleep(0)

        async with budget.taken(8):
            large = asyncio.ensure_future(use("large", 9))
            small = asyncio.ensure_future(use("small", 1))
            huge = asyncio.ensure_future(use("huge", 1_000))
            await asyncio.sleep(0)
            assert budget.waiting == 3, "a small one may not starve a large one"
            with pytest.raises(Throttled):
                await use("too many", 1)
            large.cancel()
        await asyncio.gather(small, huge)
        assert order == ["small", "huge"]
        assert budget.taken_now == 0

    asyncio.run(test())


def test_turn_that_comes_while_its_waiter_leaves_is_not_lost() -> None:
    async def test() -> None:
        budget = Budget(10)

        async def use() -> None:
            async with budget.taken(10):
                pass

        async with budget.taken(10):
            leaving = asyncio.ensure_future(use())
            await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert budget.taken_now == 0

    asyncio.run(test())


def test_waiter_that_leaves_as_the_budget_comes_back_ends_as_one_that_was_cancelled() -> None:
    async def test() -> None:
        budget = Budget(10)

        async def use() -> None:
            async with budget.taken(10):
                pass

        async with budget.taken(10):
            leaving, stays = asyncio.ensure_future(use()), asyncio.ensure_future(use())
            await asyncio.sleep(0)
            leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await stays
        assert budget.taken_now == 0

    asyncio.run(test())
