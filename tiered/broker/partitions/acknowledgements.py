"""Producers that wait until what they wrote is committed (acks=all).

Owns the waiting, in order of offsets, so that a high watermark that moves looks only at those whom it concerns.
Must never let anybody wait across a change of leader: the same offset may hold another record then.

A request may pause between its append and its wait, and meanwhile the high watermark may pass the batch, or the
leadership may end. So a wait begins with the leader epoch of the append, and `begin` looks at both itself: a wait that
nothing would end any more is over when it begins.
"""

import asyncio
import heapq
from collections.abc import Callable
from functools import partial
from itertools import count

from tiered.errors import NotLeader, TieredError

COMPACT_FROM = 1024


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

    __slots__ = ("_ended", "_gone", "_high_watermark", "_leader_epoch", "_order", "_waiting")

    def __init__(self) -> None:
        self._leader_epoch: int | None = None
        """That this broker leads in; None while it does not lead."""
        self._high_watermark = 0
        """Of that leadership."""
        self._ended: TieredError = NotLeader("this broker does not lead; refresh metadata and retry")
        """Why the last leadership has ended."""
        self._waiting: list[tuple[int, int, Commit]] = []
        self._order = count()
        self._gone = 0
        """How many of them have given up, at most."""

    def __len__(self) -> int:
        return len(self._waiting)

    def is_committed(self, end_offset: int, leader_epoch: int) -> bool:
        """True when what was appended in `leader_epoch`, in which this broker still leads, is committed up to there."""
        return leader_epoch == self._leader_epoch and end_offset <= self._high_watermark

    def begin(self, end_offset: int, leader_epoch: int, wake: Callable[[], None]) -> Commit:
        """A wait until everything below `end_offset`, appended in `leader_epoch`, is committed.

        `wake` is called once, when the wait is over, which may be before this returns; it must not look at anything
        itself: a change is under way then. To give up, call `leave`.
        """
        commit = Commit(wake)
        if leader_epoch != self._leader_epoch:
            commit.end(_copy(self._ended))
        elif end_offset <= self._high_watermark:
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

    async def reached(self, end_offset: int, leader_epoch: int, timeout_ms: float) -> bool:
        """True once everything below `end_offset`, appended in `leader_epoch`, is committed; False after `timeout_ms`.
        Raises what `fail` is given."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        commit = self.begin(end_offset, leader_epoch, partial(_settle, future))
        timer = loop.call_later(max(0.0, timeout_ms) / 1000.0, _settle, future)
        try:
            await future
            if commit.error is not None:
                raise commit.error
            return commit.is_over
        finally:
            timer.cancel()
            self.leave(commit)

    def lead(self, leader_epoch: int, high_watermark: int) -> None:
        """A leadership begins; nobody waits yet."""
        self._leader_epoch, self._high_watermark = leader_epoch, high_watermark

    def advance(self, high_watermark: int) -> None:
        """Answers everybody whose records are committed. Costs one comparison when there is nobody."""
        self._high_watermark = high_watermark
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            heapq.heappop(waiting)[2].end(None)

    def fail(self, error: TieredError) -> None:
        """Ends all waits with `error`, and those that come later: leadership went, so the outcome stays unknown."""
        self._leader_epoch, self._ended = None, error
        waiting, self._waiting, self._gone = self._waiting, [], 0
        for _, _, commit in waiting:
            commit.end(_copy(error))


def _copy(error: TieredError) -> TieredError:
    """One for each wait: a traceback grows with every raise."""
    return type(error)(*error.args)


def _nobody() -> None: ...


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
