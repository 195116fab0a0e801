"""Requests that are not for records compute step by step, by asker, and one expensive step in a turn of the loop."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Coroutine, Hashable

import pytest

from tests.support.garbage import noted_garbage
from tiered.account import Account, current
from tiered.errors import ShuttingDown
from tiered.server.kafka.transport.outbox import Parts
from tiered.server.kafka.transport.requests import Answer, CarriedOut, DelayedAnswer, Overlapping, Requests
from tiered.server.kafka.transport.turns import ROUND_MS, SMALL_STEPS, STEP_MS, Turns, Work

EXPENSIVE_MS = 0.25
"""More than a step may take, and a sum of these is exact."""


class Clock:
    now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


class Answered(asyncio.Future[str]):
    """Of a request. To cancel it is what the end of its connection does."""

    wait: DelayedAnswer | None = None

    def cancel(self, msg: object = None) -> bool:
        if self.wait is not None:
            self.wait.cancel()
        return super().cancel(msg)


class Stage:
    """Work whose steps take time on a clock of its own; notes in which turn of the loop each one was."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.turns = Turns(self.clock)
        self.steps: list[tuple[str, int]] = []
        self.loop_turn = 0

    async def work(self, name: str, steps: int, cost_ms: float) -> Parts:
        for number in range(steps):
            if number:
                await asyncio.sleep(0)
            self.clock.now_ms += cost_ms
            self.steps.append((name, self.loop_turn))
        return [name.encode()]

    def begin(self, asker: Hashable, name: str, steps: int = 1, cost_ms: float = EXPENSIVE_MS) -> "asyncio.Future[str]":
        """As a connection does: in a callback of the loop, which is no task."""
        return self.ask(asker, self.work(name, steps, cost_ms))

    def ask(self, asker: Hashable, work: Work) -> "asyncio.Future[str]":
        answered = Answered()
        asyncio.get_running_loop().call_soon(lambda: self._take(answered, self.turns.begin(Account(asker), work)))
        return answered

    def _take(self, answered: "Answered", answer: Answer) -> None:
        answered.wait = None
        if isinstance(answer, DelayedAnswer):
            answered.wait = answer
            answer.begin(lambda: self._take(answered, answer.answer(is_last=False)))
        elif isinstance(answer, Coroutine):
            task = asyncio.ensure_future(answer)
            task.add_done_callback(lambda task: answered.set_result(_text(task.result())))
        else:
            answered.set_result(_text(answer))

    async def until(self, *tasks: "asyncio.Future[str]") -> list[str]:
        while not all(task.done() for task in tasks):
            self.loop_turn += 1
            await asyncio.sleep(0)
        assert self.turns.waiting == 0
        return [task.result() for task in tasks]

    def order(self) -> list[str]:
        return [name for name, _ in self.steps]


def _text(answer: Answer) -> str:
    assert isinstance(answer, list)
    (text,) = answer
    assert isinstance(text, bytes)
    return text.decode()


async def test_no_turn_of_the_loop_has_more_than_one_expensive_step() -> None:
    stage = Stage()
    tasks = [stage.begin("flood", f"f{number}", steps=3) for number in range(50)]
    assert len(await stage.until(*tasks)) == 50
    of_turn = [turn for _, turn in stage.steps]
    assert len(set(of_turn)) == len(of_turn) == 150


async def test_cheap_steps_share_a_turn() -> None:
    stage = Stage()
    tasks = [stage.begin("many", f"c{number}", cost_ms=STEP_MS / 100) for number in range(5)]
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


async def test_a_few_requests_of_one_asker_do_not_wait_for_a_turn_behind_the_many_of_another() -> None:
    """A commit passes through eight turns of the loop: it waited in two of them for requests before it."""
    stage = Stage()
    flood = [stage.begin("flood", "f") for _ in range(50)]
    for _ in range(10):
        await asyncio.sleep(0)
        stage.loop_turn += 1
    few = [stage.begin("few", "few", cost_ms=STEP_MS / 4) for _ in range(3)]
    await asyncio.sleep(0)
    assert stage.order()[-3:] == ["few", "few", "few"]
    await stage.until(*few, *flood)


async def test_however_many_askers_come_they_have_a_bounded_part_of_a_turn() -> None:
    stage = Stage()
    tasks = [stage.begin(f"asker {number}", "one") for number in range(50)]
    await stage.until(*tasks)
    assert max(Counter(turn for _, turn in stage.steps).values()) <= ROUND_MS / STEP_MS + 1


async def test_a_small_question_does_not_wait_for_the_large_answers_of_its_own_asker() -> None:
    stage = Stage()
    large = [stage.begin("one", "large", steps=100) for _ in range(10)]
    for _ in range(120):
        await asyncio.sleep(0)
    before = len(stage.steps)
    small = stage.begin("one", "small", cost_ms=0.1)
    await stage.until(small, *large)
    assert stage.order().index("small") - before <= 4


async def test_a_small_question_that_is_interrupted_does_not_wait_for_them_either() -> None:
    stage = Stage()
    large = [stage.begin("one", "large", steps=1_000) for _ in range(2)]
    for _ in range(120):
        await asyncio.sleep(0)
    before = len(stage.steps)
    small = stage.begin("one", "small", steps=3)
    await stage.until(small, *large)
    last = [at for at, name in enumerate(stage.order()) if name == "small"][-1]
    assert last - before <= 8


async def test_large_answers_of_one_asker_are_made_one_after_the_other() -> None:
    stage = Stage()
    tasks = [stage.begin("one", f"l{number}", steps=100) for number in range(5)]
    await stage.until(*tasks)
    order = stage.order()
    ends = sorted(len(order) - 1 - order[::-1].index(name) for name in set(order))
    assert ends[0] < 100 + 5 * SMALL_STEPS  # Its own steps and the first ones of the others, not five times a hundred.
    assert ends[1] < 200 + 5 * SMALL_STEPS


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


async def test_errors_come_out_as_they_are() -> None:
    turns = Turns(Clock())

    async def fails(pauses: int) -> Parts:
        for _ in range(pauses):
            await asyncio.sleep(0)
        raise ValueError("so")

    errors: list[Exception] = []

    def ask_at_once() -> None:
        try:
            turns.begin(Account("one"), fails(0))
        except ValueError as error:
            errors.append(error)

    rests: list[Answer] = []
    asyncio.get_running_loop().call_soon(lambda: rests.append(turns.begin(Account("one"), fails(1))))
    asyncio.get_running_loop().call_soon(ask_at_once)
    await asyncio.sleep(0)
    assert str(errors.pop()) == "so"
    (rest,) = rests
    assert isinstance(rest, Coroutine)
    with pytest.raises(ValueError, match="so"):
        await rest


async def test_a_request_that_waits_for_nothing_gets_no_task() -> None:
    stage = Stage()
    before = asyncio.all_tasks()
    answered = stage.begin("one", "a", cost_ms=0.1)
    await asyncio.sleep(0)
    assert answered.done()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("limit_s", [0.0, 0.001])
async def test_a_time_limit_counts_that_begins_before_there_is_a_task(limit_s: float) -> None:
    async def waits() -> Parts:
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            return [b"too late"]
        return [b"never"]

    async with asyncio.timeout(5):
        assert await Stage().ask("one", waits()) == "too late"


async def test_two_time_limits_may_be_over_before_there_is_a_task() -> None:
    async def waits() -> Parts:
        try:
            async with asyncio.timeout(0):
                try:
                    async with asyncio.timeout(0):
                        await asyncio.get_running_loop().create_future()
                except TimeoutError:
                    await asyncio.get_running_loop().create_future()
        except TimeoutError:
            return [b"too late"]
        return [b"never"]

    async with asyncio.timeout(5):
        assert await Stage().ask("one", waits()) == "too late"


async def test_tasks_of_a_group_that_begins_before_there_is_a_task_end_with_the_one_that_fails() -> None:
    cancelled: list[str] = []

    async def fails() -> None:
        raise ValueError("so")

    async def goes_on() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append("other")
            raise

    async def waits() -> Parts:
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(goes_on())
                group.create_task(fails())
                await asyncio.get_running_loop().create_future()
        return [b"failed"]

    async with asyncio.timeout(5):
        assert await Stage().ask("one", waits()) == "failed"
    assert cancelled == ["other"]


async def test_a_request_that_asks_for_what_was_cancelled_is_an_error_as_others() -> None:
    turns, loop = Turns(Clock()), asyncio.get_running_loop()
    gone: asyncio.Future[bytes] = loop.create_future()
    gone.cancel()

    async def waits() -> Parts:
        return [await gone]

    errors: list[Exception] = []

    def ask() -> None:
        try:
            turns.begin(Account("one"), waits())
        except ShuttingDown as error:
            errors.append(error)

    loop.call_soon(ask)
    await asyncio.sleep(0)
    assert errors


async def test_several_may_wait_for_what_one_has_waited_for_before_it_had_a_task() -> None:
    stage = Stage()
    shared: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def waits() -> Parts:
        return [await shared]

    answered = stage.ask("one", waits())

    async def waits_too() -> bytes:
        return await shared

    other = asyncio.ensure_future(waits_too())  # Its first step comes between the two of the request.
    asyncio.get_running_loop().call_later(0.001, shared.set_result, b"so")
    assert await answered == "so"
    assert await other == b"so"


class Client:
    """A connection, as far as its requests know it."""

    def __init__(self) -> None:
        self.closed = False
        self.requests = Requests(self, lambda work, **_: asyncio.ensure_future(work))

    def send(self, parts: Parts) -> None: ...

    def resume(self) -> None: ...

    def explain(self, error: Exception) -> None:
        raise error

    def close(self) -> None:
        self.closed = True
        self.requests.cancel(self)


@pytest.mark.parametrize("ends_it_itself", [False, True])
@pytest.mark.parametrize("waits_for_its_turn", [False, True])
async def test_a_request_that_has_begun_hears_that_its_connection_has_ended(
    ends_it_itself: bool, waits_for_its_turn: bool
) -> None:
    turns, client = Turns(Clock()), Client()
    heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def waits() -> Parts:
        try:
            if ends_it_itself:
                client.close()
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # It may have something to clear away.
            heard.set_result(None)
            raise
        raise AssertionError("nobody lets it go on")

    def ask() -> None:
        client.requests.take(turns.begin(Account("one"), waits()))
        if not ends_it_itself and not waits_for_its_turn:
            client.close()

    if waits_for_its_turn:
        ask()  # In the test's task: at once is only what no task asks for.
        if not ends_it_itself:
            asyncio.get_running_loop().call_later(0.001, client.close)
    else:
        asyncio.get_running_loop().call_soon(ask)
    async with asyncio.timeout(5):
        await heard


async def test_what_is_carried_out_goes_on_when_its_client_has_gone_with_its_second_part_too() -> None:
    turns, client, steps = Turns(Clock()), Client(), list[str]()
    waited_for: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ended = asyncio.Event()

    async def late() -> Parts:
        steps.append("late")
        ended.set()
        return [b"for nobody"]

    async def first() -> Overlapping:
        steps.append("begun")
        await waited_for
        await asyncio.sleep(0)
        steps.append("first")
        return Overlapping(turns.after(stored, Account("one"), late()))

    def ask() -> None:
        begun = turns.begin(Account("one"), first())
        assert isinstance(begun, Coroutine)
        client.requests.take(CarriedOut(begun))

    asyncio.get_running_loop().call_soon(ask)
    while not steps:
        await asyncio.sleep(0)
    client.close()
    waited_for.set_result(None)
    while steps[-1] != "first":
        await asyncio.sleep(0)
    stored.set_result(None)
    async with asyncio.timeout(5):
        await ended.wait()
    assert steps == ["begun", "first", "late"]


async def test_what_would_be_carried_out_does_not_begin_when_its_client_has_gone_before() -> None:
    turns, client = Turns(Clock()), Client()

    async def never() -> Parts:
        raise AssertionError("nobody waits for it")

    work = never()
    begun = turns.begin(Account("one"), work)  # In the test's task: it waits for its turn.
    assert isinstance(begun, DelayedAnswer)
    client.requests.take(CarriedOut(begun))
    client.close()
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


async def test_an_answer_whose_connection_ended_before_it_waited_is_cleared_away() -> None:
    turns, client = Turns(Clock()), Client()
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def later() -> Parts:
        return [b"never"]

    late = later()

    async def first() -> Overlapping:
        client.closed = True
        return Overlapping(turns.after(done, Account("one"), late))

    client.requests.take(first())
    async with asyncio.timeout(5):
        while inspect.getcoroutinestate(late) != inspect.CORO_CLOSED:
            await asyncio.sleep(0)


async def test_a_request_that_is_broken_off_in_a_pause_leaves_nothing_for_the_collector() -> None:
    turns, client = Turns(Clock()), Client()

    paused = asyncio.Event()

    async def pauses() -> Parts:
        while True:
            await asyncio.sleep(0)
            paused.set()

    with noted_garbage() as garbage:
        asyncio.get_running_loop().call_soon(lambda: client.requests.take(turns.begin(Account("one"), pauses())))
        await paused.wait()
        client.close()
        async with asyncio.timeout(5):
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0)
        for _ in range(3):  # What is called at the task's end.
            await asyncio.sleep(0)
    assert not garbage


async def test_each_step_is_made_on_behalf_of_its_asker_and_a_wait_on_behalf_of_nobody() -> None:
    stage, seen = Stage(), []

    async def work(name: str) -> Parts:
        for _ in range(3):
            seen.append((name, current()))
            await asyncio.sleep(0)
            seen.append((name, current()))
            await asyncio.sleep(0.001)
        return [name.encode()]

    tasks = [stage.ask(name, work(name)) for name in ("ann", "ben", "ann")]
    while not all(task.done() for task in tasks):
        assert current() is None
        await asyncio.sleep(0)
    assert len(seen) == 18
    assert all(account == Account(name) for name, account in seen)


async def test_what_has_a_task_of_its_own_waits_for_its_turn_too() -> None:
    """As over HTTP: a flood of small requests of one asker, refusals say, takes one step in a turn of the loop."""
    stage = Stage()
    loop = asyncio.get_running_loop()

    def ask(name: str, steps: int = 1) -> "asyncio.Task[Parts]":
        return loop.create_task(stage.turns.stepped(Account(name), stage.work(name, steps, STEP_MS)))

    tasks = [ask("flood") for _ in range(50)]
    while len(stage.steps) < 10:
        stage.loop_turn += 1
        await asyncio.sleep(0)
    tasks.append(ask("other", steps=3))
    while not all(task.done() for task in tasks):
        stage.loop_turn += 1
        await asyncio.sleep(0)
    assert max(Counter(stage.steps).values()) == 1, "of one asker in a turn"
    names = [name for name, _ in stage.steps]
    first, *_, last = (place for place, name in enumerate(names) if name == "other")
    assert first <= 11
    assert last - first <= 6, "others take turns with the flood"
    assert stage.turns.waiting == 0


async def test_a_small_request_of_the_same_asker_does_not_wait_for_a_large_one_to_end() -> None:
    stage = Stage()
    loop = asyncio.get_running_loop()
    large = loop.create_task(stage.turns.stepped(Account("ann"), stage.work("large", 100, STEP_MS)))
    while len(stage.steps) < 5:
        await asyncio.sleep(0)
    await stage.turns.stepped(Account("ann"), stage.work("small", 1, 0.1))
    assert not large.done()
    assert len(stage.steps) < 12
    await large
