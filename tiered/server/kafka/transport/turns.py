"""Chooses which client is read from next, and which request computes next: one short step at a time.

Owns the queues of those that wait for the event loop's time: askers (users, or addresses) take turns, so that a
client that asks for a thousand expensive answers does not slow down others. Who produces or fetches waits to be read
from, and for nothing else here. Must never decide what a request may do, nor hold one up while nobody else comes.
"""

import asyncio
import math
from asyncio.tasks import _enter_task, _leave_task
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from tiered.account import Account, on_behalf_of
from tiered.errors import ShuttingDown
from tiered.server.kafka.transport.outbox import Parts
from tiered.server.kafka.transport.requests import DelayedAnswer, Overlapping

T = TypeVar("T")

STEP_MS = 0.2
"""The time that one asker has in a turn of the event loop, from the bytes of its requests to its answers, and that all
steps that wait have together. The step that goes beyond it is the last one. It is short because a commit passes through
eight turns of the loop, and fifty producers that are served in one make it 3 ms."""

ALONE_AFTER_MS = 1_000.0
"""An asker that has been the only one for so long has only its own requests wait for it."""

ROUND_MS = 1.0
"""The time in a turn of the loop that all askers together have who do not wait in the queue."""

SMALL_STEPS = 8
"""A request that pauses more often is a large one. A small one, too, pauses where the machine took its time away in the
middle of it: then it must not wait until all large ones are answered."""


Given = Parts | Overlapping
Work = Coroutine[Any, Any, Given]
Begun = Given | Work | DelayedAnswer


class _New(DelayedAnswer):
    """A request that has not begun, or the part of it that comes when something is done. When it is woken it is asked
    for its answer, and begins then."""

    __slots__ = ("_after", "_begin", "_work", "is_wanted", "wake")

    patience_ms = math.inf
    wakes_from_the_loop = True

    def __init__(self, work: Work, begin: Callable[[Work], Begun], after: "asyncio.Future[None] | None" = None) -> None:
        self._work = work
        self._begin = begin
        self._after = after
        self.is_wanted = True
        self.wake: Callable[[], None] = lambda: None

    def begin(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        if self._after is not None:
            self._after.add_done_callback(self._on_done)

    def _on_done(self, _: object) -> None:
        if self.is_wanted:
            self.wake()

    def answer(self, *, is_last: bool) -> Begun:  # noqa: ARG002 - there is no last time
        self.is_wanted = False
        return self._begin(self._work)

    def cancel(self) -> None:
        if self.is_wanted:
            self.is_wanted = False
            self._work.close()


class _Asker:
    """The waiting requests of one asker, in three queues that take turns: those that have not begun, those that have
    had few steps, and the others. A small question does not wait for large answers, which are made one after the other,
    so that few are in memory half made."""

    __slots__ = ("_next", "large", "new", "small")

    def __init__(self) -> None:
        self.new: deque[_New | asyncio.Future[None]] = deque()
        self.small: deque[asyncio.Future[None]] = deque()
        self.large: deque[asyncio.Future[None]] = deque()
        self._next = 0

    @property
    def waiting(self) -> int:
        return len(self.new) + len(self.small) + len(self.large)

    def pop(self) -> "_New | asyncio.Future[None] | None":
        """The next one whose client has not gone."""
        queues: tuple[deque[Any], ...] = (self.new, self.small, self.large)
        for _ in queues:
            queue, self._next = queues[self._next], (self._next + 1) % len(queues)
            while queue:
                first: _New | asyncio.Future[None] = queue.popleft()
                if first.is_wanted if isinstance(first, _New) else not first.done():
                    return first
        return None


class Turns:
    """Of one event loop."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._now_ms = now_ms
        """Milliseconds, of a clock that never goes back."""
        self._askers: OrderedDict[Account, _Asker] = OrderedDict()
        """In the order of their turns. Only who waits is in here."""
        self._used_ms = 0.0
        self._used_by: dict[Hashable, float] = {}
        """What every owner has used in this turn, in milliseconds."""
        self._unread: dict[Hashable, deque[Callable[[], None]]] = {}
        """What reads from the connections of an owner, where they wait for that."""
        self._last_read: Hashable = None
        self._alone_at_ms = -math.inf
        """From then on the owner that was read from last has been the only one for long enough."""
        self._is_scheduled = False
        self._woken: asyncio.Future[None] | None = None
        """Whose next step comes as soon as the loop comes to it: one at a time, or they would all do so at once."""
        self._was_woken = False
        """By the last round: what has been used since then was its."""
        self._later_task = _LaterTask()

    @property
    def waiting(self) -> int:
        return sum(asker.waiting for asker in self._askers.values())

    def begin(self, asker: Account, work: Work) -> Begun:
        """What the work gives, where it may compute at once and waits for nothing: no task is made for it. Else its
        rest, or all of it, which waits for its turn. So does each step after an `asyncio.sleep(0)`."""
        if self._is_free_for(asker) and asyncio.current_task(self._loop) is None:
            return self._first_step(asker, work)
        new = _New(work, partial(self._first_step, asker))
        self._askers.setdefault(asker, _Asker()).new.append(new)
        self._schedule()
        return new

    def stepped(self, asker: Account, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """The same work, for whoever has a task for it. Each step has its turn, the first one too where somebody
        waits."""
        return Stepped(work, step=partial(self.step, asker), pause=partial(self.pause, asker))

    def _is_free_for(self, asker: Account) -> bool:
        """A few requests of one asker do not wait for the many of another."""
        return asker not in self._askers and self._used_ms < ROUND_MS and self._used_by.get(asker.owner, 0.0) < STEP_MS

    def after(self, done: "asyncio.Future[None]", asker: Account, work: Work) -> DelayedAnswer:
        """The work, which begins when something else is done and its turn has come."""
        return _New(work, partial(self.begin, asker), done)

    def _first_step(self, asker: Account, work: Work) -> Given | Work:
        loop, later = self._loop, self._later_task
        task = cast("asyncio.Task[Any]", later)
        _enter_task(loop, task)
        try:
            waited_for = self.step(asker, partial(work.send, None))
        except StopIteration as end:
            given: Given = end.value
            return given
        except asyncio.CancelledError:  # Nobody cancels what has no task: something that it asked for was cancelled.
            raise ShuttingDown("what a request waited for was cancelled") from None
        finally:
            _leave_task(loop, task)
        self._later_task = _LaterTask()
        if waited_for is not None:
            waited_for._asyncio_future_blocking = False  # noqa: SLF001 - until its task waits others may
        return Stepped(
            work,
            step=partial(self.step, asker),
            pause=partial(self.pause, asker),
            begun=_HadFirstStep(waited_for, later),
        )

    def step(self, asker: Account, call: Callable[[], T]) -> T:
        """The result of the request; its time counts."""
        started_ms = self._now_ms()
        try:
            return on_behalf_of(asker, call)
        finally:
            del call  # It may hold an exception, which holds this frame from now on.
            used_ms = self._now_ms() - started_ms
            self._used_ms += used_ms
            self._used_by[asker.owner] = self._used_by.get(asker.owner, 0.0) + used_ms
            self._schedule()

    def pause(self, asker: Account, number: int) -> Generator[Any, Any, None]:
        """Returns when who has paused so many times may compute."""
        if not number and self._is_free_for(asker):
            return
        waiter = self._loop.create_future()
        waiting = self._askers.setdefault(asker, _Asker())
        if number > SMALL_STEPS:
            waiting.large.appendleft(waiter)
        elif number == SMALL_STEPS:
            waiting.large.append(waiter)
        elif number:
            waiting.small.append(waiter)
        else:
            waiting.new.append(waiter)
        self._schedule()
        try:
            yield from waiter
        finally:
            if self._woken is waiter:  # This turn of the loop begins with its step.
                self._woken = None
                self._used_ms = 0.0
                self._used_by.clear()

    # Whose requests are received

    def left_ms(self, owner: Hashable) -> float:
        """How long requests of this owner may still take in this turn; infinite while nobody else comes."""
        now_ms = self._now_ms()
        if owner != self._last_read:
            self._alone_at_ms = -math.inf if self._last_read is None else now_ms + ALONE_AFTER_MS
            self._last_read = owner
        if now_ms >= self._alone_at_ms:
            return math.inf
        self._schedule()  # Before anything is called in the next turn.
        return STEP_MS - self._used_by.get(owner, 0.0)

    def took(self, owner: Hashable, left_ms: float, used_ms: float) -> None:
        """Counts what requests took of the `left_ms` that they had; their steps are counted already."""
        self._used_by[owner] = STEP_MS - left_ms + used_ms

    def wait_to_read(self, owner: Hashable, read: Callable[[], None]) -> None:
        """Calls `read` once, in a later turn. A turn has at least one of every owner, and more while its time lasts."""
        self._unread.setdefault(owner, deque()).append(read)
        self._schedule()

    def _read_from_those_who_wait(self) -> None:
        for owner, waiting in tuple(self._unread.items()):
            for _ in range(len(waiting)):  # What comes meanwhile waits for the next turn.
                waiting.popleft()()
                if self._used_by.get(owner, 0.0) >= STEP_MS:
                    break
            if not waiting:
                del self._unread[owner]

    # The turns of the loop

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._begin_round)

    def _begin_round(self) -> None:
        """In each turn of the loop while somebody waits: the time is there anew, and goes to the next ones."""
        self._is_scheduled = False
        if not self._was_woken:
            self._used_ms = 0.0
            self._used_by.clear()
        self._was_woken = False
        while self._askers and self._woken is None and self._used_ms < STEP_MS:
            asker, found = self._askers.popitem(last=False)
            waiting = found.pop()
            if waiting is None:
                continue
            self._askers[asker] = found  # Behind the others. It goes when nothing of it is left.
            if isinstance(waiting, _New):
                waiting.wake()
            else:
                self._woken, self._was_woken = waiting, True
                waiting.set_result(None)
        if self._unread:
            self._read_from_those_who_wait()
        if self._askers or self._unread:
            self._schedule()


class _LaterTask:
    """The task of work that computes before it has one, for what asks in which task it is, as time limits do."""

    __slots__ = ("_cancelled", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = 0
        """How often, before there was a task."""

    def is_now(self, task: asyncio.Task[Any] | None) -> None:
        """The work goes on in this one."""
        self._task = task
        if task is not None:
            for _ in range(self._cancelled):
                task.cancel()

    def done(self) -> bool:
        return self._task is not None and self._task.done()

    def cancelling(self) -> int:
        return self._cancelled if self._task is None else self._task.cancelling()

    def cancel(self, *_: Any) -> bool:
        if self._task is not None:
            return self._task.cancel()
        self._cancelled += 1
        return True

    def uncancel(self) -> int:
        return self._cancelled if self._task is None else self._task.uncancel()


class _HadFirstStep(NamedTuple):
    """Of work that has had its first step: what it waits for, and what it took for its task."""

    waited_for: Any
    task: _LaterTask


class Stepped(Coroutine[Any, Any, T]):
    """`work`, whose owner has a say in each of its steps.

    `step` carries one out and gives what it gives. `pause` comes before the first step, with 0, unless that has `begun`
    it, and then in the place of each `asyncio.sleep(0)` of the work, with their number.
    """

    __slots__ = ("_pause", "_step", "_steps", "_work")

    def __init__(
        self,
        work: Coroutine[Any, Any, T],
        *,
        step: Callable[[Callable[[], Any]], Any],
        pause: Callable[[int], Iterable[Any]],
        begun: _HadFirstStep | None = None,
    ) -> None:
        self._work = work
        self._step = step
        self._pause = pause
        self._steps = self._run(begun)

    def _run(self, begun: _HadFirstStep | None) -> Generator[Any, Any, T]:
        pauses = 0
        step: Callable[[], Any] | None = None
        waited_for: Any = None
        if begun is not None:
            pauses, waited_for = 1, begun.waited_for
            begun.task.is_now(asyncio.current_task())
            begun = None  # As below.
            if waited_for is not None:
                waited_for._asyncio_future_blocking = True  # noqa: SLF001 - how `await` tells a task to wait
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


def let_others(number: int) -> Generator[None, None, None]:
    """A `pause` of one turn of the event loop."""
    if number:
        yield
