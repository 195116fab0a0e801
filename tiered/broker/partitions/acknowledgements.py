"""Producers that wait until what they wrote is committed (acks=all).

Owns the waits, in order of offsets, so that a high watermark that moves looks only at those whom it concerns. A wait
begins with a look at the partition, in one step with its registration: between its append and its wait a producer may
have paused, and what ends the wait may have happened in the pause. Must never let a producer wait on another leadership
than that of its append: the same offset may hold another record then.
"""

import asyncio
import heapq
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Protocol

from tiered.errors import NotLeader, TieredError

COMPACT_FROM = 1024


class Replica(Protocol):
    """What a wait looks at when it begins."""

    name: str
    high_watermark: int
    leader_epoch: int

    @property
    def leadership(self) -> object | None: ...


class Commit:
    """One wait: over once the records are committed, or can no longer be in this leadership."""

    __slots__ = ("_wake", "error", "is_over")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.is_over = False
        self.error: TieredError | None = None
        """Why they may never be; None once `is_over` says that they are committed."""

    def end(self, error: TieredError | None) -> None:
        """For Acknowledgements to say, once."""
        if not self.is_over:
            self.is_over, self.error = True, error
            wake, self._wake = self._wake, _nobody
            wake()

    def forget(self) -> None:
        """For Acknowledgements to say: no waiter is called any more."""
        # Requests hold their waits: without this cut each would wait for the garbage collector, which stops all.
        self.is_over, self._wake = True, _nobody


class Acknowledgements:
    """Produce requests that wait for one partition's high watermark to reach a certain offset."""

    __slots__ = ("_gone", "_order", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Commit]] = []
        self._order = count()
        self._gone = 0
        """How many of them have given up, at most."""

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, replica: Replica, end_offset: int, leader_epoch: int, wake: Callable[[], None]) -> Commit:
        """A wait until everything below `end_offset`, appended in `leader_epoch`, is committed on `replica`, whose
        acknowledgements these are. `wake` is called once, when it is over: before this returns where it is over
        already. It must not look at anything itself: a change is under way then. To give up, call `leave`."""
        commit = Commit(wake)
        if replica.leadership is None or replica.leader_epoch != leader_epoch:
            commit.end(NotLeader(f"{replica.name}: another leader was elected before the batch was committed; retry"))
        elif end_offset <= replica.high_watermark:
            commit.end(None)
        else:
            heapq.heappush(self._waiting, (end_offset, next(self._order), commit))
        return commit

    def leave(self, commit: Commit) -> None:
        """The caller does not wait any more, unless the wait is over anyway."""
        if commit.is_over:
            return
        commit.forget()
        self._gone += 1
        if len(self._waiting) >= COMPACT_FROM and 2 * self._gone > len(self._waiting):
            self._waiting = [each for each in self._waiting if not each[2].is_over]
            heapq.heapify(self._waiting)
            self._gone = 0

    async def reached(self, replica: Replica, end_offset: int, leader_epoch: int, timeout_ms: float) -> bool:
        """As `begin`: True once the wait is over, False after `timeout_ms`. Raises NotLeader, or what `fail` is
        given."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        commit = self.begin(replica, end_offset, leader_epoch, partial(_settle, future))
        timer = loop.call_later(max(0.0, timeout_ms) / 1000.0, _settle, future)
        try:
            await future
            if commit.error is not None:
                raise commit.error
            return commit.is_over
        finally:
            timer.cancel()
            self.leave(commit)

    def advance(self, high_watermark: int) -> None:
        """Answers everybody whose records are committed. Costs one comparison when there is nobody."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            heapq.heappop(waiting)[2].end(None)

    def fail(self, error: TieredError) -> None:
        """Ends all waits with `error`: leadership went, so the outcome stays unknown here."""
        waiting, self._waiting, self._gone = self._waiting, [], 0
        for _, _, commit in waiting:
            commit.end(type(error)(*error.args))  # One for each: a traceback grows with every raise.


def _nobody() -> None: ...


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
