"""In one turn of the event loop the requests of one owner take no more than their time, where others come, too."""

import asyncio
import time
from functools import partial

import pytest

from tests.unit.server.echo import Client, Echo, served
from tiered.rules.security.principal import Principal
from tiered.runtime import SystemClock
from tiered.server.kafka.transport import turns as of_loop
from tiered.server.kafka.transport.connection import Connection
from tiered.server.kafka.transport.requests import Answer
from tiered.server.kafka.transport.turns import ALONE_AFTER_MS, STEP_MS, Turns

AHEAD = 20
REQUEST_S = 0.002


class Clock:
    now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


async def test_what_an_owner_has_used_up_is_there_again_in_the_next_turn_and_others_keep_theirs() -> None:
    turns = Turns(Clock())
    turns.left_ms("few")
    assert turns.left_ms("many") == STEP_MS
    turns.took("many", STEP_MS, STEP_MS / 2)
    turns.took("many", STEP_MS / 2, STEP_MS)
    assert turns.left_ms("many") < 0.0
    assert turns.left_ms("few") == STEP_MS
    await asyncio.sleep(0)
    assert turns.left_ms("many") == STEP_MS


async def test_an_owner_has_all_time_from_a_second_after_others_came_until_they_come_again() -> None:
    turns = Turns(clock := Clock())
    assert turns.left_ms("few") == float("inf")
    assert turns.left_ms("many") == STEP_MS
    clock.now_ms += ALONE_AFTER_MS
    assert turns.left_ms("many") == float("inf")
    turns.left_ms("few")
    assert turns.left_ms("many") == STEP_MS


async def test_of_each_owner_who_waits_one_is_read_from_in_a_turn_whatever_its_steps_have_used() -> None:
    """Its other requests go on while a large one takes all of its time."""
    turns, read = Turns(Clock()), list[str]()

    def read_from(owner: str) -> None:
        turns.took(owner, STEP_MS, 2 * STEP_MS)
        read.append(owner)

    for owner in ("one", "one", "other"):
        turns.wait_to_read(owner, partial(read_from, owner))
    turns.took("one", STEP_MS, STEP_MS)
    await asyncio.sleep(0)
    assert read == ["one", "other"]
    await asyncio.sleep(0)
    assert read == ["one", "other", "one"]


class Slow(Echo):
    """Each request takes two milliseconds of the loop."""

    def __init__(self, group: asyncio.TaskGroup, order: list[str], turns: Turns) -> None:
        super().__init__(group)
        self.turns = turns
        self._order = order

    def handle(self, connection: Connection, buffer: memoryview, position: int, end: int) -> Answer:
        time.sleep(REQUEST_S)
        self._order.append(connection.host)
        return super().handle(connection, buffer, position, end)


async def _order_of_many_and_of_one_after_the_other(*, is_broker: bool = False) -> list[str]:
    """The owners whose requests were handled: one client sends many ahead, another one waits for an answer before it
    asks again."""
    order: list[str] = []
    turns = Turns(SystemClock().monotonic_ms)

    def slow(group: asyncio.TaskGroup) -> Slow:
        return Slow(group, order, turns)

    async def ask(few: Client) -> None:
        for _ in range(3):
            await few.send(b"few")
            await few.answers(1)

    async with served(slow, host="many") as many, served(slow, host="few") as few:
        many.connection.is_broker = is_broker
        await few.send(b"few")
        await few.answers(1)
        await many.send(*[b"many"] * AHEAD)
        await asyncio.gather(ask(few), many.answers(AHEAD))
    return order


async def test_who_sends_many_requests_ahead_does_not_have_them_served_before_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(of_loop, "STEP_MS", 2_000.0 * REQUEST_S)
    order = await _order_of_many_and_of_one_after_the_other()
    assert order.count("many") == AHEAD
    last = len(order) - order[::-1].index("few")
    assert last <= 4 + 4 * 4, order


async def test_a_follower_is_served_all_that_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_loop, "STEP_MS", 2_000.0 * REQUEST_S)
    order = await _order_of_many_and_of_one_after_the_other(is_broker=True)
    assert "".join(name[0] for name in order).count("m" * AHEAD) == 1, order


async def test_connections_of_one_owner_share_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty connections have as much of a turn as one: they are one user's."""
    monkeypatch.setattr(of_loop, "STEP_MS", 2_000.0 * REQUEST_S)
    order: list[str] = []
    turns = Turns(SystemClock().monotonic_ms)

    def slow(group: asyncio.TaskGroup) -> Slow:
        return Slow(group, order, turns)

    async with (
        served(slow, host="few") as few,
        served(slow, host="one") as one, served(slow, host="two") as two, served(slow, host="three") as three,
        served(slow, host="four") as four, served(slow, host="five") as five, served(slow, host="six") as six,
    ):  # fmt: skip
        many = (one, two, three, four, five, six)
        for client in many:
            client.connection.principal = Principal("User", "many")
        await few.send(b"few")
        await few.answers(1)
        for client in (*many, few):
            await client.send(b"once")
        await asyncio.gather(*(client.answers(1) for client in (*many, few)))
    assert order.index("few", 1) <= 4, order
