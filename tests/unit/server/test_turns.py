"""Requests that are not for records compute step by step, by asker, and one expensive step in a turn of the loop."""

import asyncio
from collections.abc import Coroutine, Hashable
from typing import Any

import pytest

from tiered.server.kafka.transport.turns import STEP_MS, Turns


class Clock:
    now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


class Stage:
    """Work whose steps take time on a clock of its own; notes in which turn of the loop each one was."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.turns = Turns(self.clock)
        self.steps: list[tuple[str, int]] = []
        self.loop_turn = 0

    async def work(self, name: str, steps: int, cost_ms: float) -> str:
        for number in range(steps):
            if number:
                await asyncio.sleep(0)
            self.clock.now_ms += cost_ms
            self.steps.append((name, self.loop_turn))
        return name

    def begin(self, asker: Hashable, name: str, steps: int = 1, cost_ms: float = STEP_MS) -> asyncio.Task[str]:
        return asyncio.ensure_future(self.run(self.turns.taking(asker, self.work(name, steps, cost_ms))))

    async def run(self, work: Coroutine[Any, Any, str]) -> str:
        return await work

    async def until(self, *tasks: asyncio.Task[str]) -> list[str]:
        while not all(task.done() for task in tasks):
            self.loop_turn += 1
            await asyncio.sleep(0)
        assert self.turns.waiting == 0
        return [task.result() for task in tasks]

    def order(self) -> list[str]:
        return [name for name, _ in self.steps]


async def test_no_turn_of_the_loop_has_more_than_one_expensive_step() -> None:
    stage = Stage()
    tasks = [stage.begin("flood", f"f{number}", steps=3) for number in range(50)]
    assert len(await stage.until(*tasks)) == 50
    of_turn = [turn for _, turn in stage.steps]
    assert len(set(of_turn)) == len(of_turn) == 150


async def test_cheap_steps_share_a_turn() -> None:
    stage = Stage()
    tasks = [stage.begin("many", f"c{number}", cost_ms=STEP_MS / 100) for number in range(50)]
    await stage.until(*tasks)
    assert len({turn for _, turn in stage.steps}) == 1


async def test_askers_take_turns_however_much_one_of_them_asks() -> None:
    stage = Stage()
    flood = [stage.begin("flood", "f", steps=10) for _ in range(100)]
    await asyncio.sleep(0)
    other = stage.begin("other", "other", steps=3)
    await stage.until(other, *flood)
    last = [at for at, name in enumerate(stage.order()) if name == "other"][-1]
    assert last <= 12


async def test_a_small_question_does_not_wait_for_the_large_answers_of_its_own_asker() -> None:
    stage = Stage()
    large = [stage.begin("one", "large", steps=100) for _ in range(10)]
    for _ in range(120):
        await asyncio.sleep(0)
    before = len(stage.steps)
    small = stage.begin("one", "small", cost_ms=0.1)
    await stage.until(small, *large)
    assert stage.order().index("small") - before <= 4


async def test_large_answers_of_one_asker_are_made_one_after_the_other() -> None:
    stage = Stage()
    tasks = [stage.begin("one", f"l{number}", steps=20) for number in range(5)]
    await stage.until(*tasks)
    order = stage.order()
    ends = sorted(len(order) - 1 - order[::-1].index(name) for name in set(order))
    assert ends[0] < 40  # Its own twenty steps and the first steps of the others, not five times twenty.
    assert ends[1] < 60


async def test_nobody_waits_where_nobody_else_computes() -> None:
    stage = Stage()
    task = stage.begin("one", "alone", cost_ms=5.0)
    await asyncio.sleep(0)
    assert stage.order() == ["alone"]
    assert await task == "alone"


async def test_who_goes_away_while_waiting_ends_and_leaves_the_turn_to_others() -> None:
    stage = Stage()
    first = stage.begin("one", "first")
    gone = stage.begin("one", "gone")
    other = stage.begin("one", "other")
    await asyncio.sleep(0)
    gone.cancel()
    assert await stage.until(first, other) == ["first", "other"]
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert "gone" not in stage.order()


async def test_an_error_comes_out_as_it_is() -> None:
    turns = Turns(Clock())

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("so")

    with pytest.raises(ValueError, match="so"):
        await turns.taking("one", fails())
