"""Tasks of a part, and what is said of work that fails again and again."""

import asyncio
import logging
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from tests.simulation.loop import SimLoop
from tiered import runtime
from tiered.runtime import QuietFailures, Worker, every, in_turns

log = logging.getLogger(__name__)


def test_a_failure_is_said_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    failures = QuietFailures(log, "%(name)s failed: %(error)s")
    failures.worked("reading")
    for error in (OSError("away"), OSError("still away")):
        failures.failed(error, "reading")
    failures.failed(OSError("full"), "writing")
    failures.worked("reading")
    failures.worked("reading")
    failures.failed(OSError("away again"), "reading")
    assert [each.getMessage() for each in caplog.records] == [
        "reading failed: away",
        "writing failed: full",
        "reading: works again",
        "reading failed: away again",
    ]


async def test_a_worker_that_stopped_has_no_task_left_and_may_start_again() -> None:
    ended = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async with asyncio.TaskGroup() as group:
        worker = Worker()
        await worker.stop()
        for name in ("one", "two"):
            worker.start(group, work(name))
        await asyncio.sleep(0)
        await worker.stop()
        assert sorted(ended) == ["one", "two"]
        worker.start(group, work("three"))
        await asyncio.sleep(0)
        await worker.stop()
        assert ended[2:] == ["three"]


async def test_others_have_their_turn_between_many_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "TURN_MS", -1.0)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def items() -> Iterator[int]:
        yield from range(10)

    beside = asyncio.create_task(other())
    assert [each async for each in in_turns(items())] == list(range(10))
    beside.cancel()
    assert turns == 10


def test_work_of_every_interval_wakes_the_process_together_and_never_later_than_asked() -> None:
    loop, woken = SimLoop(Random(0)), dict[int, list[float]]()

    async def work(interval_ms: int) -> None:
        woken.setdefault(interval_ms, []).append(loop.time())
        await asyncio.sleep(0.003)

    async def run() -> None:
        tasks = []
        for number, interval_ms in enumerate((30, 200, 250, 400, 1000)):
            await asyncio.sleep(0.013 * number)
            tasks.append(asyncio.create_task(every(interval_ms, lambda ms=interval_ms: work(ms), name="work")))  # type: ignore[misc]
        await asyncio.sleep(10)
        for each in tasks:
            each.cancel()

    loop.run_until_complete(run())
    for interval_ms, times in woken.items():
        pauses_ms = [round(1000 * (after - before), 3) - 3 for before, after in pairwise(times)]
        assert interval_ms / 2 <= min(pauses_ms) <= max(pauses_ms) <= interval_ms
    assert {round(each, 6) * 10 % 1 for ms in (200, 250, 400, 1000) for each in woken[ms][1:]} == {0.0}
    assert min(each * 10 % 1 for each in woken[30][1:]) > 0, "what comes more often than a beat does not wait for one"


async def test_a_tick_that_fails_as_it_is_cancelled_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "CANCEL_AGAIN_S", 0.01)
    begun = asyncio.Event()

    async def tick() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            raise OSError("the last deed failed")

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        worker = Worker()
        worker.start(group, every(60_000, tick, name="a tick"))
        await begun.wait()
        await worker.stop()
