"""Neighbouring chunks that come with one request: shared chunk by chunk, bounded, and each with its own outcome."""

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from tests.unit.cold.cached_chunks import OBJECT, Loads, content, on_disk, until, with_cache
from tiered.cold.chunks.cache import ChunkCache
from tiered.cold.single_flight import SingleFlight
from tiered.errors import CorruptObject, ShuttingDown, StoreUnavailable

FOUR = [1000, 900, 1100, 1000]


def test_one_request_brings_neighbours_and_each_is_found_by_itself(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        first = await cache.loading(loads.run((OBJECT, 0), FOUR))
        assert first.read() == content((OBJECT, 0), 1000)
        assert loads.runs == [(0, 4)]
        for index, length in enumerate(FOUR):
            held = cache.held((OBJECT, index))
            assert held is not None
            assert held.read() == content((OBJECT, index), length)
        assert on_disk(tmp_path) == cache.state.held_bytes == sum(FOUR)
        assert (cache.state.loads, cache.state.read_ahead, cache.state.hits) == (4, 3, 4)

    with_cache(tmp_path, test)


def test_who_comes_for_one_of_the_chunks_shares_the_request_that_brings_it(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        loads.gate.clear()
        first = cache.loading(loads.run((OBJECT, 0), FOUR))
        later = [cache.loading(loads.run((OBJECT, 2), FOUR[2:])) for _ in range(5)]
        alone = asyncio.ensure_future(cache.get((OBJECT, 3), loads.of((OBJECT, 3), 1000), length=1000))
        await asyncio.sleep(0)
        loads.gate.set()
        assert (await first).read() == content((OBJECT, 0), 1000)
        assert {(await each).read() for each in later} == {content((OBJECT, 2), 1100)}
        assert (await alone).read() == content((OBJECT, 3), 1000)
        assert loads.runs == [(0, 4)]
        assert cache.joined == 6

    with_cache(tmp_path, test)


def test_a_run_ends_before_what_is_here_or_on_its_way(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        await cache.get((OBJECT, 2), loads.of((OBJECT, 2), 1100), length=1100)
        loads.gate.clear()
        first = cache.loading(loads.run((OBJECT, 0), FOUR))
        assert cache.read_ahead(loads.run((OBJECT, 1), FOUR[1:])) == 0
        assert cache.read_ahead(loads.run((OBJECT, 3), FOUR[3:])) == 1
        loads.gate.set()
        await first
        await until(lambda: cache.loading_chunks == 0)
        assert cache.state.held_bytes == sum(FOUR)
        assert sorted(loads.runs) == [(0, 2), (3, 1)]

    with_cache(tmp_path, test)


def test_a_bad_chunk_in_a_run_is_told_to_those_who_want_it_and_the_others_are_served(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        loads.gate.clear()
        loads.bad = {1: CorruptObject("flipped")}
        first = cache.loading(loads.run((OBJECT, 0), FOUR))
        bad = cache.loading(loads.run((OBJECT, 1), FOUR[1:]))
        last = cache.loading(loads.run((OBJECT, 3), FOUR[3:]))
        loads.gate.set()
        assert (await first).read() == content((OBJECT, 0), 1000)
        assert (await last).read() == content((OBJECT, 3), 1000)
        with pytest.raises(CorruptObject, match="flipped"):
            await bad
        assert cache.state.failures == 1
        assert on_disk(tmp_path) == cache.state.held_bytes == sum(FOUR) - 900
        assert cache.held((OBJECT, 1)) is None, "it is not kept"
        loads.bad = {}
        assert (await cache.loading(loads.run((OBJECT, 1), FOUR[1:]))).read() == content((OBJECT, 1), 900)
        assert loads.runs == [(0, 4), (1, 1)]

    with_cache(tmp_path, test)


def test_a_chunk_that_failed_first_and_is_loaded_again_leaves_its_neighbours_as_they_are(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        loads.bad[0] = CorruptObject("not what was uploaded")
        with pytest.raises(CorruptObject):
            await cache.loading(loads.run((OBJECT, 0), FOUR))
        loads.bad.clear()
        alone = await cache.get((OBJECT, 0), loads.of((OBJECT, 0), 1000), length=1000)
        assert alone.read() == content((OBJECT, 0), 1000)
        for index, length in enumerate(FOUR):
            held = cache.held((OBJECT, index))
            assert held is not None
            assert held.read() == content((OBJECT, index), length)
        assert on_disk(tmp_path) == cache.state.held_bytes == sum(FOUR)

    with_cache(tmp_path, test)


def test_a_request_that_fails_fails_for_all_its_chunks_and_is_not_remembered(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        other = (uuid4(), 0)
        await cache.get(other, loads.of(other, 500), length=500)
        loads.gate.clear()
        loads.fail = StoreUnavailable("away")
        waiting = [cache.loading(loads.run((OBJECT, index), FOUR[index:])) for index in range(4)]
        loads.gate.set()
        for each in waiting:
            with pytest.raises(StoreUnavailable, match="away"):
                await each
        assert (cache.state.held_bytes, cache.state.unread_bytes, cache.loading_bytes) == (500, 0, 0)
        assert cache.held(other) is not None, "what was here stays"
        loads.fail = None
        assert (await cache.loading(loads.run((OBJECT, 0), FOUR))).read() == content((OBJECT, 0), 1000)

    with_cache(tmp_path, test, max_bytes=5000)


def test_who_goes_away_stops_neither_the_request_nor_those_who_share_it(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        loads.gate.clear()
        leaving = cache.loading(loads.run((OBJECT, 0), FOUR))
        staying = cache.loading(loads.run((OBJECT, 1), FOUR[1:]))
        await until(lambda: loads.runs != [])
        leaving.cancel()
        loads.gate.set()
        assert (await staying).read() == content((OBJECT, 1), 900)
        assert leaving.cancelled()
        assert cache.held((OBJECT, 0)) is not None
        assert loads.runs == [(0, 4)]

    with_cache(tmp_path, test)


def test_runs_stay_within_the_byte_budget_and_leave_room_for_a_reader(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        loads.gate.clear()
        first = cache.loading(loads.run((OBJECT, 0), [1000] * 20))
        await until(lambda: loads.runs != [])
        assert loads.runs == [(0, 4)], "of five, one is left"
        assert cache.loading_bytes == 4000
        assert cache.read_ahead(loads.run((OBJECT, 4), [1000] * 16)) == 0
        late = cache.loading(loads.run((uuid4(), 0), [1000] * 20))
        await until(lambda: len(loads.runs) == 2)
        assert loads.runs[1] == (0, 1)
        assert cache.loading_bytes == 5000
        loads.gate.set()
        await asyncio.gather(first, late)
        assert cache.loading_bytes == 0

    with_cache(tmp_path, test, max_bytes=100_000, max_bytes_in_flight=5000)


def test_what_nobody_has_read_yet_takes_half_of_the_cache_at_most(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        assert cache.read_ahead(loads.run((OBJECT, 0), [1000] * 20)) == 5
        assert cache.read_ahead(loads.run((OBJECT, 5), [1000] * 15)) == 0
        await until(lambda: cache.loading_chunks == 0)
        assert cache.state.unread_bytes == 5000
        assert cache.held((OBJECT, 0)) is not None
        assert cache.held((OBJECT, 0)) is not None
        assert cache.state.unread_bytes == 4000
        assert cache.read_ahead(loads.run((OBJECT, 5), [1000] * 15)) == 1
        await until(lambda: cache.loading_chunks == 0)
        # Others push it out unread: then it takes no room any more.
        for index in range(10):
            await cache.get((uuid4(), index), loads.of((OBJECT, index), 1000), length=1000)
        assert cache.state.unread_bytes == 0
        assert on_disk(tmp_path) == 10_000

    with_cache(tmp_path, test)


def test_a_run_that_the_disk_does_not_take_is_served_from_memory(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        # A folder in the place of the file makes every write of it fail, as a full disk would.
        (tmp_path / f"{OBJECT}-0.unfinished").mkdir()
        first = cache.loading(loads.run((OBJECT, 0), FOUR))
        third = cache.loading(loads.run((OBJECT, 2), FOUR[2:]))
        assert (await first).read() == content((OBJECT, 0), 1000)
        assert (await third).read() == content((OBJECT, 2), 1100)
        assert cache.state.uncached == 4
        assert (cache.state.held_bytes, cache.state.unread_bytes) == (0, 0)
        assert (await cache.loading(loads.run((OBJECT, 2), FOUR[2:]))).read() == content((OBJECT, 2), 1100)
        assert cache.state.held_bytes == 2100, "a file of another name is written"


def test_chunks_that_came_together_take_one_file_and_go_together(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        await cache.loading(loads.run((OBJECT, 0), FOUR))
        await until(lambda: cache.loading_chunks == 0)
        assert len(list(tmp_path.iterdir())) == 1
        other = (uuid4(), 0)
        held = cache.held((OBJECT, 3))
        await cache.get(other, loads.of(other, 2500), length=2500)
        assert [cache.held((OBJECT, index)) for index in range(4)] == [None] * 4
        assert (cache.state.held_bytes, cache.state.evictions, on_disk(tmp_path)) == (2500, 4, 2500)
        assert held is not None
        assert held.read() == content((OBJECT, 3), 1000), "who reads it keeps it"

    with_cache(tmp_path, test, max_bytes=6000)


def test_stop_tells_all_who_wait_even_before_the_request_has_begun(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        waiting = [cache.loading(loads.run((OBJECT, index), FOUR[index:])) for index in range(4)]
        await cache.stop()
        for each in waiting:
            with pytest.raises(ShuttingDown):
                await each
        assert loads.runs == []
        with pytest.raises(ShuttingDown):
            cache.loading(loads.run((OBJECT, 0), FOUR))

    with_cache(tmp_path, test)


def test_work_for_several_gives_each_its_outcome_and_a_later_one_begins_anew() -> None:
    async def test() -> None:
        flights: SingleFlight[str, int] = SingleFlight()
        begun = 0

        async def work() -> list[int | Exception]:
            nonlocal begun
            begun += 1
            await asyncio.sleep(0)
            return [1, StoreUnavailable("only this one")]

        async with asyncio.TaskGroup() as tasks:
            flights.start(tasks)
            for _ in range(2):
                flights.begin(("one", "other"), work)
                one, other = flights.join("one"), flights.join("other")
                assert await one == 1
                with pytest.raises(StoreUnavailable, match="only this one"):
                    await other
                assert not flights.is_flying("one")
            assert (begun, flights.joined) == (2, 4)
            await flights.stop()

    asyncio.run(test())
