"""Chooses the request that computes next, of all that are not for records: one short step at a time.

Owns the queue of those that wait for the event loop's time: askers (a principal at an address) take turns, so that a
client that asks for a thousand expensive answers does not slow down others. Records never wait here: between two steps
the loop serves whoever produces or fetches. Must never decide what a request may do, nor hold one up while nobody else
computes.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Generator, Hashable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

STEP_MS = 2.0
"""So much of one turn of the event loop; the step that goes beyond is the last one."""


class _Asker:
    """The waiting requests of one asker. New ones and begun ones alternate: a small question does not wait for large
    answers, which are made one after the other, so that few are in memory half made."""

    __slots__ = ("begun", "is_next_new", "new")

    def __init__(self) -> None:
        self.new: deque[asyncio.Future[None]] = deque()
        self.begun: deque[asyncio.Future[None]] = deque()
        self.is_next_new = True

    def pop(self) -> asyncio.Future[None] | None:
        for queue in (self.new, self.begun) if self.is_next_new else (self.begun, self.new):
            while queue:
                waiter = queue.popleft()
                if not waiter.done():  # Else its client has gone.
                    self.is_next_new = queue is self.begun
                    return waiter
        return None


class Turns:
    """Of one event loop."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        """Milliseconds, of a clock that never goes back."""
        self._askers: OrderedDict[Hashable, _Asker] = OrderedDict()
        """In the order of their turns. Only who waits is in here."""
        self._used_ms = 0.0
        self._is_scheduled = False
        self._woken: asyncio.Future[None] | None = None
        """Who computes as soon as the loop comes to it: one at a time, or they would all do so at once."""

    @property
    def waiting(self) -> int:
        return sum(len(each.new) + len(each.begun) for each in self._askers.values())

    def taking(self, asker: Hashable, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """The same work, whose steps wait for their turns: the first, and each after `asyncio.sleep(0)`."""
        return Stepped(work, step=self.step, pause=partial(self.turn, asker))

    def step(self, call: Callable[[], T]) -> T:
        """The result of the request; its time counts."""
        started_ms = self._now_ms()
        try:
            return call()
        finally:
            self._used_ms += self._now_ms() - started_ms
            self._schedule()

    def turn(self, asker: Hashable, pauses: int) -> Generator[Any, Any, None]:
        """Returns when who has paused so many times, for new ones never, may compute."""
        is_new = pauses == 0
        if is_new and self._woken is None and not self._askers and self._used_ms < STEP_MS:
            return
        waiter = asyncio.get_running_loop().create_future()
        found = self._askers.setdefault(asker, _Asker())
        if pauses > 1:
            found.begun.appendleft(waiter)
        else:
            (found.new if is_new else found.begun).append(waiter)
        self._schedule()
        try:
            yield from waiter
        finally:
            if self._woken is waiter:
                self._woken = None

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_round)

    def _begin_round(self) -> None:
        """In each turn of the loop while somebody waits: the time is there anew, and the next one is woken."""
        self._is_scheduled = False
        self._used_ms = 0.0
        while self._askers and self._woken is None:
            asker, found = self._askers.popitem(last=False)
            self._woken = found.pop()
            if self._woken is not None:
                self._askers[asker] = found  # Behind the others. It goes when nothing of it is left.
                self._woken.set_result(None)
        if self._askers:
            self._schedule()


class Stepped(Coroutine[Any, Any, T]):
    """`work`, whose owner has a say in each of its steps.

    `step` carries one out and gives what it gives. `pause` comes before the first step, with 0, and then in the place
    of each `asyncio.sleep(0)` of the work, with their number.
    """

    __slots__ = ("_pause", "_step", "_steps", "_work")

    def __init__(
        self,
        work: Coroutine[Any, Any, T],
        *,
        step: Callable[[Callable[[], Any]], Any],
        pause: Callable[[int], Generator[Any, Any, None]],
    ) -> None:
        self._work = work
        self._step = step
        self._pause = pause
        self._steps = self._run()

    def _run(self) -> Generator[Any, Any, T]:
        pauses = 0
        step: Callable[[], Any] | None = None
        waited_for: Any = None
        try:
            while True:
                try:
                    if waited_for is None:
                        pauses += 1
                        yield from self._pause(pauses - 1)
                        step = partial(self._work.send, None)
                    else:
                        step = partial(self._work.send, (yield waited_for))
                except BaseException as error:  # noqa: BLE001 - cancellation and the like: the work's to see, not swallowed
                    step = partial(self._work.throw, error)
                try:
                    waited_for = self._step(step)
                except StopIteration as end:
                    result: T = end.value
                    return result
        finally:
            del step, waited_for  # The exception holds this frame, so the frame must not hold the exception.

    def __await__(self) -> Generator[Any, Any, T]:
        return self._steps

    def send(self, value: Any) -> Any:
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        return self._steps.throw(*error)

    def close(self) -> None:
        self._steps.close()
        self._work.close()
