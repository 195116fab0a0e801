"""Threads for blocking calls: how many there are can change while calls wait and run."""

import asyncio
import threading

from tiered.runtime import BlockingPool


async def test_a_larger_pool_runs_more_at_once_and_loses_no_call_that_waits() -> None:
    pool = BlockingPool("test", threads=1)
    together = threading.Barrier(3)
    held = threading.Event()
    first = asyncio.ensure_future(pool.run(held.wait, 30))
    waits = asyncio.ensure_future(pool.run(str, "waited"))
    await asyncio.sleep(0)
    pool.resize(3)
    await asyncio.gather(*(pool.run(together.wait, 30) for _ in range(3)))
    assert not waits.done()
    held.set()
    assert [await first, await waits] == [True, "waited"]
    assert pool.pending == 0
    pool.close()


async def test_a_pool_that_closes_waits_for_the_calls_of_threads_that_it_had() -> None:
    pool = BlockingPool("test", threads=2)
    began, held, ended = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        began.set()
        held.wait(30)
        ended.set()

    running = asyncio.ensure_future(pool.run(call))
    await asyncio.to_thread(began.wait, 30)
    pool.resize(1)
    closing = asyncio.ensure_future(asyncio.to_thread(pool.close))
    held.set()
    await closing
    assert ended.is_set()
    await running


async def test_a_long_call_is_told_that_its_pool_closes() -> None:
    pool = BlockingPool("test", threads=1)
    began, ended = threading.Event(), threading.Event()

    def call() -> None:
        began.set()
        while not pool.is_closing():
            ended.wait(0.001)
        ended.set()

    running = asyncio.ensure_future(pool.run(call))
    await asyncio.to_thread(began.wait, 30)
    assert not ended.is_set()
    await asyncio.to_thread(pool.close)
    assert ended.is_set()
    await running


async def test_a_waiter_that_is_cancelled_ends_with_its_call_and_takes_back_one_that_has_not_begun() -> None:
    pool = BlockingPool("test", threads=1)
    began, stopped, may_end, second_ran = (threading.Event() for _ in range(4))

    def call() -> None:
        began.set()
        may_end.wait(30)

    first = asyncio.ensure_future(pool.run_to_end(call, stop=stopped.set))
    second = asyncio.ensure_future(pool.run_to_end(second_ran.set))
    await asyncio.to_thread(began.wait, 30)
    second.cancel()
    await asyncio.wait({second})
    assert (second.cancelled(), pool.pending) == (True, 1)
    for _ in range(2):
        first.cancel()
        await asyncio.wait({first}, timeout=0.02)
    assert (first.done(), stopped.is_set()) == (False, True)
    may_end.set()
    await asyncio.wait({first})
    assert (first.cancelled(), pool.pending) == (True, 0)
    await asyncio.to_thread(pool.close)
    assert not second_ran.is_set()
