"""Waiting for partitions to change: nothing that happens after the look is missed, and nothing is left behind."""

import asyncio

from tiered.broker.partitions.fetch_wait import Waiters, Watch

LONG_MS = 60_000.0


async def test_a_change_between_the_look_and_the_waiting_is_noticed() -> None:
    lists = [Waiters(), Waiters()]
    watch = Watch(lists)
    lists[1].wake()
    async with asyncio.timeout(10):
        assert await watch.change(LONG_MS)


async def test_a_change_before_the_look_is_not_waited_for_again() -> None:
    waiters = Waiters()
    waiters.wake()
    assert not await Watch([waiters]).change(1.0)


async def test_a_change_of_any_of_them_ends_the_waiting_and_leaves_nothing_behind() -> None:
    lists = [Waiters(), Waiters()]
    waiting = asyncio.ensure_future(Watch(lists).change(LONG_MS))
    await asyncio.sleep(0)
    assert [len(each) for each in lists] == [1, 1]
    lists[0].wake()
    assert await waiting
    assert [len(each) for each in lists] == [0, 0]


async def test_one_that_gives_up_leaves_nothing_behind() -> None:
    waiters = Waiters()
    waiting = asyncio.ensure_future(Watch([waiters]).change(LONG_MS))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert len(waiters) == 0


def test_a_call_comes_once_and_at_once_if_the_change_has_been_already() -> None:
    lists = [Waiters(), Waiters()]
    calls: list[str] = []
    early, late = Watch(lists), Watch(lists)
    late.begin(lambda: calls.append("late"))
    lists[0].wake()
    early.begin(lambda: calls.append("early"))
    lists[1].wake()
    assert calls == ["late", "early"]


def test_no_call_comes_after_the_end() -> None:
    lists = [Waiters(), Waiters()]
    calls: list[str] = []
    watch = Watch(lists)
    watch.begin(lambda: calls.append("called"))
    watch.end()
    lists[0].wake()
    assert (calls, [len(each) for each in lists]) == ([], [0, 0])
