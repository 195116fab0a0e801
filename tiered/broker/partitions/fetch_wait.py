"""Waiting for a partition to grow: long polls of consumers and followers.

Owns the lists of waiters. Must never read or write a log. A waiter is called at most once, and leaves no
trace when it gives up.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial


class Waiters:
    """Fetches that wait for one partition's high watermark (or leadership) to change."""

    __slots__ = ("_watches", "changes")

    def __init__(self) -> None:
        self.changes = 0
        """How many there have been."""
        # In the order in which they came: a set would wake them by their addresses, and no run would be like another.
        self._watches: dict[Watch, None] = {}

    def add(self, watch: "Watch") -> None:
        self._watches[watch] = None

    def discard(self, watch: "Watch") -> None:
        self._watches.pop(watch, None)

    def wake(self) -> None:
        """Lets every waiter look again. Cheap when there is none."""
        self.changes += 1
        if not self._watches:
            return
        watches, self._watches = self._watches, {}
        for watch in watches:
            watch.changed()

    def __len__(self) -> int:
        return len(self._watches)


class Watch:
    """Waits for a change to any of several partitions since the moment when the watch was made.

    Made in the same breath as the look at those partitions: what changes before the waiting begins is not missed.
    """

    __slots__ = ("_changes", "_lists", "_wake")

    def __init__(self, lists: Iterable[Waiters], *, changes: int | None = None) -> None:
        """`changes` is how many all of them had had when they were looked at, where that was earlier."""
        self._lists = list(lists)
        self._changes = self._count() if changes is None else changes
        self._wake: Callable[[], None] | None = None

    def _count(self) -> int:
        count = 0
        for each in self._lists:
            count += each.changes
        return count

    def begin(self, wake: Callable[[], None]) -> None:
        """Calls `wake` once, at the first change; at once if there has been one already. `wake` must not look at
        anything itself: a change is under way when it is called."""
        self._wake = wake
        if self._count() != self._changes:
            self.changed()
            return
        for each in self._lists:
            each.add(self)

    def end(self) -> None:
        """Waits no more."""
        self._wake = None
        for each in self._lists:
            each.discard(self)

    def changed(self) -> None:
        """There is a change: for the lists to say."""
        wake, self._wake = self._wake, None
        if wake is not None:
            wake()

    async def change(self, timeout_ms: float) -> bool:
        """True as soon as there is a change, False after `timeout_ms`. Cancellation leaves nothing behind."""
        if self._count() != self._changes:
            return True
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(max(0.0, timeout_ms) / 1000.0, _settle, future, False)
        self.begin(partial(_settle, future, True))
        try:
            return await future
        finally:
            timer.cancel()
            self.end()


def _settle(future: "asyncio.Future[bool]", is_changed: bool) -> None:
    if not future.done():
        future.set_result(is_changed)
