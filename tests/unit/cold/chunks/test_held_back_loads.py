"""Loads that are held back: how many run, in which order, and how short they are meanwhile."""

import asyncio
from pathlib import Path
from uuid import uuid4

from tests.unit.cold.cached_chunks import OBJECT, Loads, content, until, with_cache
from tiered.cold.budget import Budget
from tiered.cold.chunks.cache import HELD_BACK_REQUEST_BYTES, ChunkCache

MIB = 1 << 20


def test_no_more_run_than_are_allowed_and_the_first_to_come_goes_first() -> None:
    async def test() -> None:
        turns = Budget(4)
        running: list[int] = []
        order: list[int] = []

        async def load(number: int) -> None:
            async with turns.taken(1):
                running.append(number)
                order.append(number)
                assert len(running) <= 2
                await asyncio.sleep(0.001)
                running.remove(number)

        turns.allow(2)
        await asyncio.gather(*(load(number) for number in range(10)))
        assert order == list(range(10))
        assert turns.has_free(1)

    asyncio.run(test())


def test_those_that_run_go_on_when_fewer_are_allowed_and_all_go_when_more_are() -> None:
    async def test() -> None:
        turns = Budget(4)
        gate = asyncio.Event()
        begun = 0

        async def load() -> None:
            nonlocal begun
            async with turns.taken(1):
                begun += 1
                await gate.wait()

        loads = [asyncio.ensure_future(load()) for _ in range(6)]
        await asyncio.sleep(0)
        turns.allow(1)
        assert (begun, turns.is_held_back, turns.has_free(1)) == (4, True, False)
        turns.allow(4)
        assert begun == 4
        gate.set()
        await asyncio.gather(*loads)
        assert begun == 6

    asyncio.run(test())


def test_a_turn_that_is_given_up_goes_to_the_next() -> None:
    async def test() -> None:
        turns = Budget(1)
        done: list[str] = []

        async def load(name: str) -> None:
            async with turns.taken(1):
                done.append(name)

        async with turns.taken(1):
            leaves_waiting = asyncio.ensure_future(load("leaves waiting"))
            leaves_at_its_turn = asyncio.ensure_future(load("leaves at its turn"))
            stays = asyncio.ensure_future(load("stays"))
            await asyncio.sleep(0)
            leaves_waiting.cancel()
            await asyncio.sleep(0)
        leaves_at_its_turn.cancel()
        await asyncio.gather(leaves_waiting, leaves_at_its_turn, stays, return_exceptions=True)
        assert done == ["stays"]
        assert turns.has_free(1)

    asyncio.run(test())


def test_held_back_a_request_is_short_and_nothing_is_read_ahead_in_the_way_of_who_waits(tmp_path: Path) -> None:
    async def test(cache: ChunkCache, loads: Loads) -> None:
        loads.gate.clear()
        cache.turns.allow(1)
        first = cache.loading(loads.run((OBJECT, 0), [MIB] * 8))
        assert cache.read_ahead(loads.run((OBJECT, 2), [MIB] * 6)) == 0
        other = cache.loading(loads.run((uuid4(), 0), [MIB] * 8))
        await until(lambda: loads.runs != [])
        assert loads.runs == [(0, HELD_BACK_REQUEST_BYTES // MIB)]
        loads.gate.set()
        assert (await first).read() == content((OBJECT, 0), MIB)
        await other
        assert loads.runs == [(0, 2), (0, 2)]
        assert loads.most_at_once == 1
        await until(lambda: cache.loading_chunks == 0)
        assert cache.read_ahead(loads.run((OBJECT, 2), [MIB] * 6)) == 2, "nobody waits now"

    with_cache(tmp_path, test, max_bytes=64 * MIB, max_bytes_in_flight=64 * MIB)
