"""The requests of one connection that are in progress, and the order in which their answers go out.

Owns the shapes that an answer may have, the tasks that make answers, and one timer for those that wait without a task.
At most one request holds up those behind it; others only wait, beside it and beside each other. Must never send an
answer before those of earlier requests.
"""

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from tiered.errors import TieredError
from tiered.file_slice import FileSlice
from tiered.server.kafka.transport.outbox import Parts

log = logging.getLogger(__name__)

# Answers of one connection that wait for others; with so many, or so large ones, no further request is begun.
MAX_OVERLAPPING = 128
MAX_WAITING_BYTES = 1 << 20


class DelayedAnswer(ABC):
    """An answer that others bring about: no task waits for it, for a task costs more than most answers do."""

    __slots__ = ()

    wakes_from_the_loop = False
    """`wake` is called by the event loop itself, in the middle of nothing: then the answer is asked for in it."""

    @property
    @abstractmethod
    def patience_ms(self) -> float:
        """How long it may wait."""

    @abstractmethod
    def begin(self, wake: Callable[[], None]) -> None:
        """From now on `wake` is called, any number of times, when there may be an answer, also before this returns; it
        only sees to it that `answer` is asked for soon."""

    @abstractmethod
    def answer(self, *, is_last: bool) -> "Answer":
        """The answer, or what still has to be done for it; None when there is none yet. `is_last` when its patience
        is over: then there is one. Raises TieredError when the connection must end."""

    @abstractmethod
    def cancel(self) -> None:
        """The connection does not want the answer any more; `wake` is not called again. It may not have begun."""


class Overlapping(NamedTuple):
    """An answer that only waits for others: the connection's next requests may be handled meanwhile.

    Answers go out in the order of the requests all the same. For work whose effect on everybody else is over:
    Produce, once its batches are in the log, and OffsetCommit, once its offsets have their place among what is written.
    """

    work: Coroutine[Any, Any, Parts | None] | DelayedAnswer


Answer = Parts | Coroutine[Any, Any, Parts | Overlapping | None] | DelayedAnswer | Overlapping | None
"""An answer, a coroutine or a wait that gives it and holds up the connection's next requests, or None for no answer.

What the coroutine gives may be Overlapping: then it held them up for its first part alone.
"""


class CarriedOut(NamedTuple):
    """An answer whose work goes on when its connection ends: to give it up in the middle takes longer than its steps.

    Work that has not begun then does nothing.
    """

    answer: Coroutine[Any, Any, Parts | Overlapping | None] | DelayedAnswer | Overlapping


class RequestConnection(Protocol):
    """A connection, as far as its requests know it."""

    closed: bool

    def send(self, parts: Parts) -> None:
        """Sends `parts` after everything sent before."""

    def resume(self) -> None:
        """Handles what has waited behind requests in progress."""

    def explain(self, error: Exception) -> None:
        """Says in the log why the connection ends."""

    def close(self) -> None: ...


class EndedConnection:
    """In the place of a connection that has ended, for its requests that are still under way."""

    __slots__ = ("_complain", "_host")

    closed = True

    def __init__(self, complain: Callable[..., None], host: str) -> None:
        """`complain` as the connection's handler has it."""
        self._complain = complain
        self._host = host

    def send(self, parts: Parts) -> None:
        """Nobody is there to take them."""

    def resume(self) -> None:
        """There is nothing more to handle."""

    def close(self) -> None:
        """It is closed."""

    def explain(self, error: Exception) -> None:
        """Says in the log what a request of the connection came to."""
        if isinstance(error, TieredError):
            self._complain("connection from %s closed: %s", self._host, str(error))
        else:
            unforeseen = "connection from %s closed: a request failed in an unforeseen way"
            log.error(unforeseen, self._host, exc_info=error)


class RunTask(Protocol):
    """Makes a task with an owner."""

    def __call__(self, work: Coroutine[Any, Any, None], *, outlives_client: bool = False) -> asyncio.Task[None]: ...


class _Turn:
    """The place of one answer among those that wait."""

    __slots__ = (
        "_is_called",
        "_requests",
        "deadline_s",
        "held_bytes",
        "holds_up",
        "is_carried_out",
        "is_known",
        "parts",
        "task",
        "wait",
    )

    def __init__(self, requests: "Requests", *, holds_up: bool, is_carried_out: bool) -> None:
        self._requests = requests
        self._is_called = False
        self.is_carried_out = is_carried_out
        self.holds_up = holds_up
        """The next request may not be begun before this one is answered."""
        self.is_known = False
        self.parts: Parts | None = None
        self.held_bytes = 0
        """Of the answer, in memory."""
        self.task: asyncio.Task[None] | None = None
        self.wait: DelayedAnswer | None = None
        self.deadline_s = math.inf
        """When `wait` must give an answer, by the loop's clock."""

    def call(self) -> None:
        """There may be an answer: looks for it in the loop's next turn, once for all calls until then."""
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self.look)

    def look(self) -> None:
        self._is_called = False
        self._requests.look(self, is_last=False)


class Requests:
    """In progress on one connection."""

    __slots__ = ("_client", "_run_task", "_timer", "_waiting_bytes", "hold_up", "waiting")

    def __init__(self, client: RequestConnection, run: RunTask) -> None:
        self._client = client
        self._run_task = run
        self.hold_up = False
        """No further request may be begun."""
        self.waiting: deque[_Turn] = deque()
        """Answers in the order of their requests, from the first one that is not known yet."""
        self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        """For the earliest end of patience among them. Too early does no harm, so answers do not move it."""

    @property
    def any(self) -> bool:
        return self.hold_up or bool(self.waiting)

    def cancel(self, ended: RequestConnection) -> None:
        """The connection has ended: its answers are not wanted any more, and work ends unless it is carried out.
        `ended` takes its place, so that neither holds the other until the garbage collector comes."""
        self._client = ended
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for turn in self.waiting:
            has_begun = turn.task is not None or not turn.holds_up
            goes_on = turn.is_carried_out and has_begun
            if turn.wait is not None and not goes_on:
                turn.wait.cancel()
                turn.wait = None
            if turn.task is not None and not goes_on:
                self._cancel(turn.task)
        self.waiting.clear()

    def _cancel(self, task: asyncio.Task[None]) -> None:
        """Not before the task's first step: the work may have begun without a task, and must hear of it."""
        asyncio.get_running_loop().call_soon(task.cancel)

    def take(self, answer: Answer | CarriedOut) -> None:
        """Sees to it that the answer is sent in its turn; None takes none."""
        if answer is None:
            return
        is_carried_out = isinstance(answer, CarriedOut)
        if isinstance(answer, CarriedOut):
            answer = answer.answer
        turn = _Turn(self, holds_up=not isinstance(answer, list | Overlapping), is_carried_out=is_carried_out)
        self.waiting.append(turn)
        if isinstance(answer, list):
            self._learn(turn, answer)
        else:
            self._begin(turn, answer.work if isinstance(answer, Overlapping) else answer)
        self.hold_up = self._is_full()

    def _is_full(self) -> bool:
        """No further request may be begun. A request that holds up the next is the last."""
        waiting = self.waiting
        if not waiting:
            return False
        last = waiting[-1]
        return (
            (last.holds_up and not last.is_known)
            or len(waiting) >= MAX_OVERLAPPING
            or self._waiting_bytes >= MAX_WAITING_BYTES
        )

    def _begin(self, turn: _Turn, work: Coroutine[Any, Any, Parts | Overlapping | None] | DelayedAnswer) -> None:
        if isinstance(work, DelayedAnswer):
            turn.wait = work
            if work.patience_ms < math.inf:
                turn.deadline_s = asyncio.get_running_loop().time() + max(0.0, work.patience_ms) / 1000.0
                self._set_timer(turn.deadline_s)
            work.begin(turn.look if work.wakes_from_the_loop else turn.call)
            return
        turn.task = self._run_task(self._answer(turn, work), outlives_client=turn.is_carried_out)
        if self._client.closed and not turn.is_carried_out:
            self._cancel(turn.task)  # Its first step, before it had a task, has ended the connection.
        # The task may be cancelled before its first step: then nobody has awaited the work, which would complain.
        turn.task.add_done_callback(lambda _: work.close())

    def _overlap(self, turn: _Turn, answer: Overlapping) -> None:
        """From here on the next requests are held up no more."""
        turn.holds_up = False
        self._begin(turn, answer.work)
        self._go_on()

    # Answers that wait without a task

    def _set_timer(self, deadline_s: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= deadline_s:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(deadline_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        for turn in list(self.waiting):
            if turn.deadline_s <= now_s:
                self.look(turn, is_last=True)
        earliest_s = min((turn.deadline_s for turn in self.waiting if turn.wait is not None), default=math.inf)
        if earliest_s < math.inf:
            self._set_timer(earliest_s)

    def look(self, turn: _Turn, *, is_last: bool) -> None:
        """Asks the wait of a turn for its answer; one that has its answer, or was cancelled, is over."""
        wait = turn.wait
        if wait is None:
            return
        try:
            answer = wait.answer(is_last=is_last)
            assert answer is not None or not is_last, f"{type(wait).__name__} gives no answer at its end"
        except Exception as error:  # noqa: BLE001 - a connection's boundary: no other one ends
            self._client.explain(error)
            self._client.close()
            return
        if answer is None:
            return
        turn.wait = None
        if isinstance(answer, list):
            self._learn(turn, answer)
            self._send_known()
        elif isinstance(answer, Overlapping):
            self._overlap(turn, answer)
        else:
            self._begin(turn, answer)

    def _learn(self, turn: _Turn, parts: Parts | None) -> None:
        turn.is_known, turn.parts = True, parts
        turn.held_bytes = sum(len(part) for part in parts or () if not isinstance(part, FileSlice))
        self._waiting_bytes += turn.held_bytes

    async def _answer(self, turn: _Turn, work: Coroutine[Any, Any, Parts | Overlapping | None]) -> None:
        answer: Parts | Overlapping | None = None
        is_made = False
        try:
            answer = await work
            is_made = True
        except Exception as error:  # noqa: BLE001 - a connection's boundary: no other one ends
            self._client.explain(error)
        finally:
            turn.task = None  # From here on `cancel` has nobody to cancel here.
            if not is_made:
                self._client.close()
        if not isinstance(answer, Overlapping):
            self._learn(turn, answer)
            self._send_known()
        elif turn.is_carried_out or not self._client.closed:
            self._overlap(turn, answer)
        elif isinstance(answer.work, DelayedAnswer):
            answer.work.cancel()
        else:
            answer.work.close()

    def _send_known(self) -> None:
        """Sends what is known and next in order; then there may be room for another request."""
        while self.waiting and self.waiting[0].is_known:
            sent = self.waiting.popleft()
            self._waiting_bytes -= sent.held_bytes
            if sent.parts is not None:
                self._client.send(sent.parts)
        if self.hold_up and not self._client.closed:
            self._go_on()

    def _go_on(self) -> None:
        self.hold_up = self._is_full()
        if not self.hold_up:
            self._client.resume()
