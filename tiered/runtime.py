"""Time, identifiers, threads and periodic work: the only door to clocks and randomness.

Owns the process's clock, its bounded thread pools and its crash points. Rooms below it never read a
clock; rooms above it never call `time`, `random` or `uuid4` themselves. Must never decide anything.
"""

import asyncio
import logging
import os
import random
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol, TypeVar
from uuid import UUID, uuid4

from tiered.errors import Throttled

log = logging.getLogger(__name__)
T = TypeVar("T")

TURN_MS = 0.25
"""A loop over many things works for so long before the event loop serves others."""

REST_S = 0.002
"""A thread with much to compute rests for so long after each half millisecond."""

BEAT_S = 0.1
"""Pauses of periodic work end on multiples of it. To wake costs an idle process more than what most ticks do."""


class Clock(Protocol):
    """Where time comes from. The simulation has another one."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC. May jump in both directions; never decides safety (R11)."""

    def monotonic_ms(self) -> float:
        """Milliseconds since some moment; never goes back."""

    def elapsed_ms(self) -> float:
        """The same, but goes on while the machine is suspended, where the system can tell."""

    def worked_ms(self) -> float:
        """Milliseconds of a processor that this thread has had so far: what others' work takes does not count."""


_WITH_SUSPENSION = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0

    def elapsed_ms(self) -> float:
        return time.clock_gettime(_WITH_SUSPENSION) * 1000.0

    def worked_ms(self) -> float:
        return time.thread_time() * 1000.0


def new_uuid() -> UUID:
    """A random version 4 UUID: topic ids, object names, boot ids."""
    return uuid4()


def secret_bytes(size: int) -> bytes:
    """Random bytes that nobody can guess: salts, nonces and keys of this process."""
    return os.urandom(size)


def jittered_backoff_ms(attempt: int, *, first_ms: float, max_ms: float) -> float:
    """Full-jitter exponential back-off before try `attempt` (0 is the first retry): 0 to the capped power of two."""
    return random.uniform(0.0, min(max_ms, first_ms * 2.0 ** min(attempt, 30)))


def crash_point(name: str) -> None:
    """Returns at once, unless the environment says that the process must die exactly here.

    `TIERED_CRASH_AT=NAME` kills this process with SIGKILL when it passes the point NAME, so that tests
    see every state that kill -9 can leave behind. `NAME:3` lets two passes go by first.
    """
    wanted = os.environ.get("TIERED_CRASH_AT")
    if wanted is None:
        return
    point, _, nth = wanted.partition(":")
    if point != name:
        return
    with _crash_lock:
        _crash_passes[name] = _crash_passes.get(name, 0) + 1
        if _crash_passes[name] >= int(nth or "1"):
            os.kill(os.getpid(), signal.SIGKILL)


_crash_lock = threading.Lock()
_crash_passes: dict[str, int] = {}


class BlockingPool:
    """Runs blocking calls (disk, S3, SQL) on a few threads, with a bounded queue in front of them.

    `run` answers with the call's result or raises its exception. When `max_waiting` calls already wait
    it raises `Throttled` instead of queueing more. A waiter that is cancelled in `run` never cancels the call itself:
    one that may take minutes looks at `is_closing`, and ends soon.
    """

    def __init__(self, name: str, *, threads: int, max_waiting: int = 10_000) -> None:
        self._name = name
        self._threads = threads
        self._executor = self._new_executor()
        self._left: list[ThreadPoolExecutor] = []
        self._max_pending = threads + max_waiting
        self._pending = 0
        self._is_closing = threading.Event()

    def is_closing(self) -> bool:
        """Whether `close` waits for the calls that run. From any thread."""
        return self._is_closing.is_set()

    def resize(self, threads: int) -> None:
        """Calls that begin from now on share so many threads; those that wait already end on the threads they had."""
        if threads != self._threads:
            self._threads = threads
            self._executor.shutdown(wait=False)
            if not self._pending:
                self._left.clear()
            self._left.append(self._executor)
            self._executor = self._new_executor()

    def _new_executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=self._threads, thread_name_prefix=self._name)

    @property
    def pending(self) -> int:
        """Calls that run or wait now."""
        return self._pending

    async def run(self, call: Callable[..., T], *args: object) -> T:
        # The future gets no local name: its exception's traceback holds this frame, so the two would hold each other.
        return await asyncio.shield(self.begun(call, *args))

    async def run_to_end(self, call: Callable[..., T], *args: object, stop: Callable[[], None] | None = None) -> T:
        """As `run`, but a cancelled waiter has the call `stop`, and waits until it has ended: a client that hangs up
        and asks again has one call running, however often it does so. A call that has not begun never does."""
        is_wanted, has_begun = True, False

        def call_if_wanted() -> T:
            nonlocal has_begun
            has_begun = True
            if not is_wanted:
                raise Throttled("nobody waits for it any more")
            return call(*args)

        future = self.begun(call_if_wanted)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            is_wanted = False  # Before the look whether it has begun: a thread does these in the other order.
            if not has_begun:
                future.cancel()
            elif stop is not None:
                stop()
            while not future.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({future})
            raise
        finally:
            del future  # As above.

    def begun(self, call: Callable[..., T], *args: object) -> "asyncio.Future[T]":
        """The future of a call that runs as by `run`. Whoever awaits it shields it: to cancel the future would cancel a
        call that has not begun."""
        if self._pending >= self._max_pending:
            raise Throttled(f"too many calls wait for the {self._name} threads; try again later")
        self._pending += 1
        future = asyncio.get_running_loop().run_in_executor(self._executor, call, *args)
        future.add_done_callback(self._finished)
        return future

    def _finished(self, future: "asyncio.Future[T]") -> None:
        self._pending -= 1
        if not future.cancelled():
            future.exception()  # A waiter that went away leaves nobody else to fetch it.

    def close(self, *, wait: bool = True) -> None:
        """Drops the calls that have not begun, and waits for running ones unless told not to."""
        self._is_closing.set()
        for executor in (*self._left, self._executor):
            executor.shutdown(wait=wait, cancel_futures=True)


def last_beat_s(until_s: float) -> float:
    """The last beat up to a time of the event loop's clock, or a microsecond after it."""
    return (until_s + 1e-6) // BEAT_S * BEAT_S


async def every(
    interval: float | Callable[[], float], tick: Callable[[], Awaitable[None]], *, name: str, jitter: float = 0.0
) -> None:
    """Awaits `tick` again and again, `interval` milliseconds apart (or as many as it says each time), until cancelled.
    With `jitter`, a share of the interval, each pause is longer or shorter by up to that, and one comes before the
    first tick: what many brokers do in the same way they should not do at the same moment, and not while they start.
    A pause of two beats or more ends on the last one within it, with those of all other work that is due by then.

    A tick that raises is logged with its traceback and the next one comes as usual: this is a tick
    boundary, the one place besides a connection where any exception is caught.
    """

    def interval_ms() -> float:
        return interval() if callable(interval) else interval

    async def pause() -> None:
        pause_s = interval_ms() / 1000.0 * (random.uniform(1.0 - jitter, 1.0 + jitter) if jitter else 1.0)
        now_s = asyncio.get_running_loop().time()
        await asyncio.sleep(pause_s if pause_s < 2 * BEAT_S else last_beat_s(now_s + pause_s) - now_s)

    if jitter:
        await pause()
    while True:
        try:
            await tick()
        except Exception:
            log.exception("periodic work %s failed; it runs again in %g ms", name, interval_ms())
        await pause()


CANCEL_AGAIN_S = 15.0
"""Longer than what a task may still have to do, as a call of SQL."""


class Worker:
    """The tasks of one part, from `start` to `stop`."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, group: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> None:
        """Carries out `work` as a task of `group`, beside what was started before."""
        self._tasks.append(group.create_task(work))

    def cancel(self) -> None:
        """Ends the tasks soon; nobody waits for it."""
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """Returns when the tasks have ended, however they did. One whose last deed failed may have lost sight of its
        cancellation: it is cancelled again."""
        tasks, self._tasks = set(self._tasks), []
        while tasks:
            for task in tasks:
                task.cancel()
            _, tasks = await asyncio.wait(tasks, timeout=CANCEL_AGAIN_S)


class QuietFailures:
    """Failing calls, by name. An outage of SQL or the store is no bug: one line when it begins, one when it ends.

    Both messages are formats of `logging`: `failed` may have `%(name)s` and `%(error)s`, `works_again` `%(name)s`.
    """

    def __init__(self, log: logging.Logger, failed: str, works_again: str = "%(name)s: works again") -> None:
        self._log = log
        self._messages = failed, works_again
        self._failing: set[str] = set()

    def failed(self, error: Exception | str, name: str = "", *, of: str = "") -> None:
        """`name` failed; the line calls it `of` where that is given."""
        if name not in self._failing:
            self._failing.add(name)
            self._log.warning(self._messages[0], {"name": of or name, "error": error})

    def worked(self, name: str = "") -> None:
        if name in self._failing:
            self._failing.discard(name)
            self._log.warning(self._messages[1], {"name": name})


def release_transport(transport: asyncio.BaseTransport | None) -> None:
    """For a protocol's `connection_lost`. asyncio's transport of a socket holds a method of its own, so that only the
    garbage collector would free it, and all that it holds."""
    if transport is not None and hasattr(transport, "_read_ready_cb"):
        transport._read_ready_cb = None  # noqa: SLF001 - nothing is read from it any more


def without_repeats(items: Iterable[T]) -> Iterator[T]:
    """The items, hashable ones, each where it comes first. Unlike a set or a dict of them it can be gone through in
    turns."""
    seen = set[T]()
    for item in items:
        if item not in seen:
            seen.add(item)
            yield item


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with pauses in which the loop serves others. State may change in them."""
    if isinstance(items, list | tuple) and len(items) < 2:  # Most requests name one: not even the time is asked for.
        for item in items:
            yield item
        return
    now = asyncio.get_running_loop().time
    since = now()
    for item in items:
        yield item
        if now() - since > TURN_MS / 1000.0:
            await asyncio.sleep(0)
            since = now()


def with_rests(pieces: Generator[None, None, T]) -> T:
    """What the pieces give at their end, for a thread: between two it rests. Whoever computes has the interpreter's
    lock, which the event loop and SQL take some thirty times for a commit: that took 40 ms beside a thread that made
    the cluster's checkpoint of 10,000 topics in a tenth of a second."""
    try:
        while True:
            next(pieces)
            time.sleep(REST_S)
    except StopIteration as end:
        result: T = end.value
        return result
