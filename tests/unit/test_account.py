"""Lists of one owner wait for each other, what it brings has a bound, and what SQL does for it is charged to it."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.unit.broker.context import SetClock
from tiered.account import (
    DAY_MS,
    MAX_OWNERS,
    MAX_WAITING,
    Account,
    OwnersDays,
    OwnersShares,
    OwnersTurns,
    current_owner,
    on_behalf_of,
)
from tiered.errors import Throttled
from tiered.meta.engine import Database
from tiered.server.kafka.transport.turns import Stepped, let_others

T = TypeVar("T")


async def of(account: Account, work: Coroutine[Any, Any, T]) -> T:
    return await Stepped(work, step=partial(on_behalf_of, account), pause=let_others)


class Stage:
    """Work that goes on until it is let go."""

    def __init__(self) -> None:
        self.turns = OwnersTurns()
        self.running: list[str] = []
        self.may_end = asyncio.Event()

    async def work(self, name: str) -> None:
        async with self.turns.taken():
            self.running.append(name)
            await self.may_end.wait()
            self.running.remove(name)

    async def begun(self, group: asyncio.TaskGroup, *names: str) -> None:
        for name in names:
            group.create_task(of(Account(name[0]), self.work(name)))
        for _ in range(10):
            await asyncio.sleep(0)


async def test_one_piece_of_work_of_each_owner_runs_at_a_time() -> None:
    stage = Stage()
    async with asyncio.TaskGroup() as group:
        await stage.begun(group, "a1", "a2", "b1", "b2")
        assert stage.running == ["a1", "b1"]
        stage.may_end.set()
    assert stage.running == []
    assert not stage.turns._places, "nothing is kept of who has gone"


async def test_what_a_broker_does_by_itself_waits_for_nobody() -> None:
    stage = Stage()
    async with asyncio.TaskGroup() as group:
        group.create_task(stage.work("x"))
        group.create_task(stage.work("y"))
        await stage.begun(group, "a1")
        assert stage.running == ["x", "y", "a1"]
        stage.may_end.set()


async def test_an_owner_of_whom_too_much_waits_is_refused_and_others_are_not() -> None:
    stage = Stage()
    async with asyncio.TaskGroup() as group:
        await stage.begun(group, *(f"a{number}" for number in range(MAX_WAITING + 1)))
        with pytest.raises(Throttled, match="ask for one after the other"):
            await of(Account("a"), stage.work("a-more"))
        await stage.begun(group, "b1")
        assert stage.running == ["a0", "b1"]
        stage.may_end.set()
    await of(Account("a"), stage.work("a-again"))


async def test_work_that_its_owner_has_left_keeps_the_turn_to_its_end_and_others_have_their_own() -> None:
    turns, may_end, begun = OwnersTurns(2), asyncio.Event(), list[str]()

    async def work(name: str) -> str:
        begun.append(name)
        await may_end.wait()
        return name

    def asked(name: str) -> "asyncio.Task[str]":
        return asyncio.create_task(turns.to_its_end(name[0], partial(work, name)))

    left = [asked(f"a{number}") for number in range(4)]
    await asyncio.sleep(0.01)
    for task in left:
        task.cancel()
    await asyncio.wait(left)
    last, other = asked("a4"), asked("b0")
    await asyncio.sleep(0.01)
    assert begun == ["a0", "a1", "b0"], "two that nobody waits for any more still take the owner's turns"
    may_end.set()
    assert [await last, await other] == ["a4", "b0"]
    assert not turns._places, "nothing is kept of who has gone"


async def test_work_that_cannot_be_begun_leaves_the_turn_to_the_next() -> None:
    turns = OwnersTurns()

    def refused() -> "asyncio.Future[str]":
        raise Throttled("too many")

    async def work() -> str:
        return "done"

    with pytest.raises(Throttled):
        await turns.to_its_end("a", refused)
    async with asyncio.timeout(1):
        assert await turns.to_its_end("a", work) == "done"
    assert not turns._places


async def test_a_list_that_is_given_up_in_the_middle_ends_its_turn() -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    turns = OwnersTurns()

    async def first() -> int:
        async for number in turns.one(numbers()):
            return number
        return -1

    assert await of(Account("a"), first()) == 0
    async with asyncio.timeout(5):
        assert await of(Account("a"), first()) == 0


async def test_the_time_of_sql_is_charged_to_whom_it_was_for(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/meta.db")
    charged: list[float] = []
    ann = Account("ann", charged.append)
    try:
        for call in (database.run, database.read, database.read_part):
            charged.clear()
            async with asyncio.TaskGroup() as group:
                group.create_task(call(lambda _: time.sleep(0.2)))  # A broker's own, which the next one waits for.
                group.create_task(of(ann, call(lambda _: time.sleep(0.05))))
            assert 50 <= sum(charged) < 200, f"of {call.__name__}: the wait for a turn does not count"
    finally:
        await database.close()


class Clock(SetClock):
    """It stands until somebody waits."""

    def monotonic_ms(self) -> float:
        return self.waited_ms


def brought(days: OwnersDays, owner: str, count: int) -> int:
    """How many of so many the owner may bring."""
    for number in range(count):
        try:
            on_behalf_of(Account(owner), days.take)
        except Throttled:
            return number
    return count


def test_each_owner_may_bring_so_many_in_a_day_and_those_of_others_do_not_count() -> None:
    clock, limit = Clock(), 10
    days = OwnersDays("groups", "tiered.max.new.groups.per.day", lambda: limit, clock)
    assert brought(days, "alice", 50) == 10
    assert brought(days, "bob", 5) == 5
    days.take()  # A broker's own.
    with pytest.raises(Throttled, match=r"alice .* 10 new groups .* \(tiered.max.new.groups.per.day\); .* in 1 s"):
        on_behalf_of(Account("alice"), days.take)
    clock.waited_ms += DAY_MS // 10
    assert brought(days, "alice", 50) == 1
    limit = 20
    clock.waited_ms += DAY_MS
    assert brought(days, "alice", 50) == 20, "a setting counts from when it is set"


def test_owners_that_are_made_up_take_bounded_memory() -> None:
    days = OwnersDays("groups", "a setting", lambda: 1, Clock())
    for number in range(MAX_OWNERS + 10):
        assert brought(days, f"user-{number}", 1) == 1
    assert len(days._buckets) == MAX_OWNERS


async def test_no_owner_has_more_than_are_free() -> None:
    shares = OwnersShares()

    async def take(most: int) -> bool:
        return taken.enter_context(shares.taken(most))

    with ExitStack() as taken:
        assert [await of(Account("a"), take(8)) for _ in range(6)] == [True] * 4 + [False] * 2
        assert [await of(Account("b"), take(8)) for _ in range(3)] == [True] * 2 + [False]
        assert [await of(Account("c"), take(8)) for _ in range(2)] == [True, False]
        assert await take(8), "what has no owner may have the last one"
        assert not await of(Account("d"), take(8))
    assert shares.total == 0
    assert not shares._taken, "nothing is kept of who has gone"


def test_a_step_in_one_thread_is_nobodys_in_another() -> None:
    """Several brokers in one process, as `tiered.testing` has them, each have a thread and a loop."""
    seen: list[object] = []

    def look() -> None:
        seen.append(current_owner())
        on_behalf_of(Account("bob"), lambda: seen.append(current_owner()))

    def step() -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        seen.append(current_owner())

    on_behalf_of(Account("alice"), step)
    assert [*seen, current_owner()] == [None, "bob", "alice", None]
