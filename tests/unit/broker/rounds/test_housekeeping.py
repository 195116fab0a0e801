"""Periodic work goes on whatever becomes of one kind of it, and complains once."""

import asyncio
from random import Random

import pytest

from tests.simulation.loop import SimLoop
from tiered.broker.rounds.housekeeping import Housekeeping, Tick
from tiered.errors import MetadataUnavailable
from tiered.metrics import CountersState


async def test_work_that_fails_is_told_once_and_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    counters, others, again = CountersState(), asyncio.Event(), asyncio.Event()
    left = 3

    async def fails() -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise MetadataUnavailable("SQL is away")
        again.set()

    async def works() -> None:
        if left < 0:
            others.set()

    async with asyncio.TaskGroup() as group:
        housekeeping = Housekeeping(counters=counters)
        housekeeping.start(group, [Tick(1, fails, "reports"), Tick(lambda: 1, works, "retention")])
        async with asyncio.timeout(10):
            await again.wait()
            await others.wait()
        await housekeeping.stop()
    assert counters.housekeeping_failures == 3
    assert caplog.text.count("reports failed and is tried again") == 1
    assert caplog.text.count("reports: works again") == 1


def test_a_stall_is_as_long_as_a_beat_comes_late_or_its_own_work_blocks() -> None:
    loop, counters = SimLoop(Random(0)), CountersState()

    def block(seconds: float) -> None:
        loop._now += seconds

    async def work() -> None:
        block(0.05)

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            housekeeping = Housekeeping(counters=counters)
            housekeeping.start(group, [Tick(200, work, "work")])
            await asyncio.sleep(1.0)
            assert counters.event_loop_max_stall_ms == pytest.approx(50)
            loop.call_at(1.15, block, 0.35)
            await asyncio.sleep(1.0)
            await housekeeping.stop()

    loop.run_until_complete(run())
    assert counters.event_loop_max_stall_ms == pytest.approx(300)
