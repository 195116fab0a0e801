"""A loop that polls before it sleeps: what that must bring, and what it must not cost."""

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest

from tiered.runtime import SystemClock
from tiered.server.idle_polling import PollingSelector, event_loop

POLL_US = 2000
STEP_MS = 0.1


class SteppingClock:
    """Every look takes a tenth of a millisecond; at one of them something may happen."""

    def __init__(self) -> None:
        self.looks = 0
        self.at: dict[int, Callable[[], object]] = {}

    @property
    def now_ms(self) -> float:
        return self.looks * STEP_MS

    def __call__(self) -> float:
        self.looks += 1
        self.at.pop(self.looks, lambda: None)()
        return self.now_ms


class Polled:
    """A selector with one socket, and that socket's other end."""

    def __init__(self) -> None:
        self.clock = SteppingClock()
        self.selector = PollingSelector(POLL_US, self.clock)
        self.far, self.near = socket.socketpair()
        self.selector.register(self.near, 1)

    def wake(self) -> None:
        """Something comes, is found, and read."""
        self.far.send(b"1")
        assert self.selector.select(1.0)
        self.near.recv(1)


@pytest.fixture
def polled() -> Iterator[Polled]:
    made = Polled()
    yield made
    for each in (made.selector, made.far, made.near):
        each.close()


def test_what_comes_soon_after_is_found_without_sleeping(polled: Polled) -> None:
    polled.wake()
    # Only a look at the clock brings it: a selector that sleeps would wait for nothing.
    polled.clock.at[polled.clock.looks + 10] = lambda: polled.far.send(b"2")
    assert polled.selector.select(0.05)


def test_each_arrival_begins_the_time_anew(polled: Polled) -> None:
    polled.wake()
    for _ in range(3):
        polled.clock.at[polled.clock.looks + 15] = lambda: polled.far.send(b"2")
        assert polled.selector.select(0.05)
        polled.near.recv(1)
    assert polled.clock.now_ms > 2 * POLL_US / 1000


def test_a_broker_that_nobody_asks_sleeps(polled: Polled) -> None:
    assert polled.selector.select(0.01) == []
    assert polled.clock.looks <= 2


def test_it_sleeps_once_its_time_is_over(polled: Polled) -> None:
    polled.wake()
    before = polled.clock.looks
    assert polled.selector.select(0.01) == []
    assert polled.clock.looks - before == pytest.approx(POLL_US / 1000 / STEP_MS, abs=3)


def test_a_timer_is_not_held_up(polled: Polled) -> None:
    polled.wake()
    before_ms = polled.clock.now_ms
    assert polled.selector.select(0.001) == []
    assert polled.clock.now_ms - before_ms == pytest.approx(1.0, abs=3 * STEP_MS)


@pytest.mark.parametrize("poll_us", [0, POLL_US])
def test_a_loop_carries_work_out_from_other_threads_whether_it_polls_or_not(poll_us: int) -> None:
    with asyncio.Runner(loop_factory=event_loop(poll_us, SystemClock())) as runner:
        assert runner.run(asyncio.wait_for(asyncio.to_thread(lambda: 7), 5)) == 7
