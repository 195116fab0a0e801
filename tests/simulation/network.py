"""Who can talk to whom: requests between processes that take time, get lost, and are cut off in one direction.

Owns the cuts and the delays. A question that was answered may be answered into the void; one whose asker gave up
may arrive nevertheless. Must never know what is asked.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

from tests.simulation.loop import NOBODY, Process, SimLoop

T = TypeVar("T")

Late = Callable[[Callable[[], None]], None]
"""Takes what makes a question arrive, for when it is to."""

SQL = "sql"
STORE = "s3"


class Unanswered(Exception):
    """No answer: nothing is known of what became of the question."""


class Network:
    """Names are those of machines: `b1`, `c1`, `sql`, `s3`. A machine is reached whichever process runs there."""

    def __init__(self, loop: SimLoop, rng: Random) -> None:
        self._loop = loop
        self._rng = rng
        self.cuts: set[tuple[str, str]] = set()
        self.slow: dict[tuple[str, str], float] = {}
        """Seconds that messages from one machine to another take at most, besides the usual."""
        self.between_brokers_s = 0.0
        """Seconds that messages between brokers take at most, besides: what followers do not have yet is longer."""
        self.messages = 0

    def reaches(self, source: str, target: str) -> bool:
        return (source, target) not in self.cuts

    def cut(self, source: str, target: str) -> None:
        """One way."""
        self.cuts.add((source, target))

    def heal(self) -> None:
        self.cuts.clear()
        self.slow.clear()

    def delay(self, source: str, target: str) -> float:
        rng = self._rng
        seconds = 0.0002 + rng.random() * 0.002
        if rng.random() < 0.02:
            seconds += rng.random() * 0.05
        if self.between_brokers_s and source[0] == "b" == target[0]:
            seconds += rng.random() * self.between_brokers_s
        return seconds + rng.random() * self.slow.get((source, target), 0.0)

    async def call(
        self,
        source: str,
        target: str,
        process: Process,
        work: Callable[[], Awaitable[T]],
        *,
        timeout_s: float,
        late: Late | None = None,
        into: "asyncio.Future[Any] | None" = None,
    ) -> T:
        """What `work()` returned or raised, run as a task of `process` on the machine `target`. Raises Unanswered.

        With `late` the connection breaks, and the question arrives when that says so. Whoever gives the future that
        the answer goes `into` can end the wait with it.
        """
        asking = _Question(self, source, target, process, work, into or self._loop.create_future())
        self.messages += 1
        if late is not None:
            late(asking.arrive)
            timeout_s = 0.0
        elif self.reaches(source, target):
            self._loop.call_later(self.delay(source, target), asking.arrive, context=NOBODY)
        deadline = self._loop.call_later(timeout_s, asking.give_up, timeout_s)
        try:
            return await asking.answer  # type: ignore[no-any-return]
        finally:
            deadline.cancel()


class _Question:
    def __init__(
        self,
        network: Network,
        source: str,
        target: str,
        process: Process,
        work: Callable[[], Awaitable[Any]],
        answer: "asyncio.Future[Any]",
    ) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._process = process
        self._work = work
        self.answer = answer

    def arrive(self) -> None:
        if self._process.is_dead:
            self._send(Unanswered(f"{self._target}: connection refused"), failed=True)
            return
        # The task waits while the process is stopped, as bytes in a socket do.
        self._process.spawn(self._run())

    async def _run(self) -> None:
        try:
            value = await self._work()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._send(error, failed=True)
        else:
            self._send(value, failed=False)

    def _send(self, value: Any, *, failed: bool) -> None:
        network = self._network
        if network.reaches(self._target, self._source):
            delay = network.delay(self._target, self._source)
            network._loop.call_later(delay, self._deliver, value, failed, context=NOBODY)

    def give_up(self, timeout_s: float) -> None:
        message = f"{self._target} did not answer {self._source} within {timeout_s} s"
        self._deliver(Unanswered(message), failed=True)

    def _deliver(self, value: Any, failed: bool) -> None:
        if self.answer.done():
            return
        if failed:
            self.answer.set_exception(value)
        else:
            self.answer.set_result(value)
