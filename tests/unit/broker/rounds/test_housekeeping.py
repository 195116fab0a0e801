"""Periodic work goes on whatever becomes of one kind of it, and complains once."""

import asyncio

import pytest

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
