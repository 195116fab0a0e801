"""Virtual time, processes that stop and die, and threads that are calls."""

import asyncio
import time
from random import Random

import pytest

from tests.simulation.loop import PROCESS, Process, SimLoop, Stuck


def test_an_hour_passes_at_once(loop: SimLoop) -> None:
    started = time.monotonic()
    loop.run_until_complete(asyncio.sleep(3600))
    assert loop.time() == 3600
    assert time.monotonic() - started < 1


def test_a_stopped_process_goes_on_where_it_was(loop: SimLoop) -> None:
    process, seen = Process(loop, "b1"), []

    async def work() -> None:
        for _ in range(4):
            await asyncio.sleep(1)
            seen.append(loop.time())

    process.spawn(work())
    loop.call_later(1.5, process.pause)
    loop.call_later(10.0, process.resume)
    loop.run_until_complete(asyncio.sleep(20))
    assert seen == [1, 10, 11, 12]


def test_a_killed_process_never_runs_again_and_its_children_neither(loop: SimLoop) -> None:
    process, seen = Process(loop, "b1"), []

    async def child() -> None:
        assert PROCESS.get() is process
        try:
            await asyncio.sleep(5)
        finally:
            seen.append("cleaned up")

    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(child())

    process.spawn(work())
    loop.call_later(1, process.kill)
    loop.run_until_complete(asyncio.sleep(20))
    assert seen == []


def test_a_call_in_a_thread_is_whole_and_later(loop: SimLoop) -> None:
    async def work() -> tuple[float, float]:
        return loop.time(), await asyncio.to_thread(loop.time)

    before, after = loop.run_until_complete(work())
    assert before < after < before + 0.01


def test_waiting_for_nothing_is_an_error_and_not_a_hang(loop: SimLoop) -> None:
    with pytest.raises(Stuck):
        loop.run_until_complete(loop.create_future())


def test_equal_seeds_give_equal_digests() -> None:
    def digest(seed: int) -> int:
        loop = SimLoop(Random(seed))
        process = Process(loop, "b1")

        async def work() -> None:
            await asyncio.gather(*(asyncio.to_thread(int, "1") for _ in range(10)))

        loop.run_until_complete(process.spawn(work()))
        loop.close()
        return loop.digest

    assert digest(1) == digest(1) != digest(2)
