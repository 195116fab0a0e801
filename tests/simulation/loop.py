"""An event loop in which nothing waits: time jumps to the next timer, and threads are calls at a later moment.

Owns virtual time, the order of everything that runs, and the processes that it runs for: every callback belongs
to the process in whose context it was made, so that one can be stopped (SIGSTOP) or die (SIGKILL) while the
others go on. Must never read a real clock, start a thread or wait.
"""

import asyncio
import contextvars
import heapq
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

MAX_STEPS_AT_ONE_MOMENT = 200_000
_MASK = (1 << 61) - 1


class Stuck(Exception):
    """Virtual time stands still, or nothing is left to happen while somebody waits."""


class Process:
    """A process of the simulation. Its callbacks run while it lives and is not stopped."""

    def __init__(self, loop: "SimLoop", name: str) -> None:
        self.name = name
        self.loop = loop
        self.number = loop.next_process_number()
        self.is_paused = False
        self.is_dead = False
        self._held: list[asyncio.Handle] = []
        self.context = contextvars.Context()
        self.context.run(PROCESS.set, self)
        self.partitions: list[Any] = []
        """The product's `Partition` objects that were made in this process."""

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> "asyncio.Task[T]":
        """A task of this process."""
        return self.loop.create_task(work, name=name, context=self.context)

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self.loop.call_later(seconds, callback, *args, context=self.context)

    def hold(self, handle: asyncio.Handle) -> None:
        self._held.append(handle)

    def pause(self) -> None:
        """SIGSTOP."""
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT: what was due meanwhile runs now, in its order."""
        self.is_paused = False
        held, self._held = self._held, []
        self.loop.add_ready(held)

    def kill(self) -> None:
        """SIGKILL: nothing of this process ever runs again."""
        self.is_dead = True

    def __repr__(self) -> str:
        return self.name


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)

NOBODY = contextvars.Context()
"""What is on its way, or happens in a server, belongs to no process."""


class SimLoop(asyncio.BaseEventLoop):
    """`run_until_complete` runs until then, however much virtual time that takes."""

    _timer_cancelled_count: int
    """Of asyncio's own loop, whose type does not tell of it."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self._rng = rng
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """A heap: when, and among those of one moment the order in which they were asked for."""
        self._timers_made = 0
        self._processes = 0
        self._steps_now = 0
        self.steps = 0
        self.digest = 0
        self.after_step: Callable[[Process], None] | None = None
        """Called after each callback of a process: where the checker looks."""
        self.failures: list[str] = []
        """What nobody handled: exceptions that reached the loop."""
        self.slow_threads: dict[int, float] = {}
        """Seconds that calls in a process's threads take at least, by the process's number."""
        self.steps_taken: list[str] | None = None
        """Each step in words, where somebody wants to compare two runs."""
        self.set_exception_handler(self._note_failure)

    # What asyncio's own code asks of a loop

    def time(self) -> float:
        return self._now

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        handle._scheduled = True  # type: ignore[attr-defined]
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, handle))
        return handle

    def next_process_number(self) -> int:
        self._processes += 1
        return self._processes

    def add_ready(self, handles: "list[asyncio.Handle]") -> None:
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._timers  # type: ignore[attr-defined]
        if not ready:
            while scheduled and scheduled[0][2]._cancelled:
                heapq.heappop(scheduled)
                self._timer_cancelled_count -= 1
            if scheduled:
                if scheduled[0][0] > self._now:
                    self._now = scheduled[0][0]
                    self._steps_now = 0
            elif not self._stopping:  # type: ignore[attr-defined]
                raise Stuck("nothing is left to happen, and somebody waits")
        if self._timer_cancelled_count > 100 and 2 * self._timer_cancelled_count > len(scheduled):
            # Most timers are deadlines that nothing ever meets.
            scheduled = self._timers = [each for each in scheduled if not each[2]._cancelled]
            heapq.heapify(scheduled)
            self._timer_cancelled_count = 0
        now = self._now
        while scheduled and scheduled[0][0] <= now:
            due = heapq.heappop(scheduled)[2]
            due._scheduled = False  # type: ignore[attr-defined]
            ready.append(due)
        after = self.after_step
        digest = self.digest
        count = len(ready)
        self._steps_now += count
        if self._steps_now > MAX_STEPS_AT_ONE_MOMENT:
            raise Stuck(f"{self._steps_now} steps without any time passing; the last is {ready[0]}")
        self.steps += count
        for _ in range(count):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            context = handle._context
            process = context.get(PROCESS)
            if process is not None:
                if process.is_dead or process.is_paused:
                    # A dead one's are kept too: what a destructor would do at this moment, kill -9 never does.
                    process.hold(handle)
                    continue
                digest = (digest * 1_000_003 + hash(now) + process.number) & _MASK
                if self.steps_taken is not None:
                    self.steps_taken.append(f"{now:.6f} {process.name} {handle!r}")
            try:
                context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._note_failure(self, {"message": f"Exception in callback {handle!r}", "exception": error})
            if after is not None and process is not None:
                after(process)
        self.digest = digest

    def _check_closed(self) -> None:
        """A run that is over may be asked for more by what the garbage collector finds of it; nothing runs any more."""

    # Threads

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        """The call runs whole, at a later moment; calls of one pool may overtake each other, as threads do."""
        future: asyncio.Future[T] = self.create_future()
        pool = getattr(executor, "_thread_name_prefix", "")
        rng = self._rng
        before, after = rng.random() * 0.002, 0.0
        if pool in ("upload", "download"):  # They speak to the object store
            before, after = rng.random() * 0.05, rng.random() * 0.05
        process = PROCESS.get()
        if process is not None and self.slow_threads:
            before += self.slow_threads.get(process.number, 0.0) * rng.random()
        self.call_later(before, self._execute, future, after, func, args)
        return future

    def _execute(self, future: "asyncio.Future[Any]", after: float, func: Callable[..., Any], args: Any) -> None:
        if future.cancelled():
            return
        try:
            value = func(*args)
        except Exception as error:
            self._answer(future, after, future.set_exception, error)
        else:
            self._answer(future, after, future.set_result, value)

    def _answer(self, future: "asyncio.Future[Any]", after: float, answer: Callable[[Any], None], value: Any) -> None:
        if after:
            self.call_later(after, self._answer, future, 0.0, answer, value)
        elif not future.done():
            answer(value)

    def _note_failure(self, _loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(f"{context.get('message')}: {error!r}")


class OrderedTasks(dict[Any, None]):
    """What asyncio.TaskGroup needs of a set, in the order in which things were added: a set of tasks is cancelled in
    the order of their addresses, which differs from run to run."""

    def add(self, task: Any) -> None:
        self[task] = None

    def discard(self, task: Any) -> None:
        self.pop(task, None)

    def __iter__(self) -> Any:
        return iter(list(super().__iter__()))


class SimTaskGroup(asyncio.TaskGroup):
    def __init__(self) -> None:
        super().__init__()
        self._tasks = OrderedTasks()  # type: ignore[assignment]
