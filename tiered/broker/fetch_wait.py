"""Waiting for a partition to grow: long polls and acknowledgements that wait for the disk.

Owns the lists of waiters. Must never read or write a log. A waiter is called at most once, and leaves no
trace when it gives up.
"""

import asyncio
from collections.abc import Iterable


class Waiters:
    """Those who wait for one partition's high watermark (or leadership) to change."""

    __slots__ = ("_futures", "changes")

    def __init__(self) -> None:
        self.changes = 0
        """How many there have been."""
        # In the order in which they came: a set would wake them by their addresses, and no run would be like another.
        self._futures: dict[asyncio.Future[bool], None] = {}

    def add(self, future: "asyncio.Future[bool]") -> None:
        self._futures[future] = None

    def discard(self, future: "asyncio.Future[bool]") -> None:
        self._futures.pop(future, None)

    def wake(self) -> None:
        """Lets every waiter look again. Cheap when there is none."""
        self.changes += 1
        if not self._futures:
            return
        futures, self._futures = self._futures, {}
        for future in futures:
            if not future.done():
                future.set_result(True)

    def __len__(self) -> int:
        return len(self._futures)


class Watch:
    """Waits for a change to any of several partitions since the moment when the watch was made.

    Made in the same breath as the look at those partitions: what changes before the waiting begins is not missed.
    """

    __slots__ = ("_changes", "_lists")

    def __init__(self, lists: Iterable[Waiters]) -> None:
        self._lists = list(lists)
        self._changes = self._count()

    def _count(self) -> int:
        return sum(each.changes for each in self._lists)

    async def change(self, timeout_ms: float) -> bool:
        """True as soon as there is a change, False after `timeout_ms`. Cancellation leaves nothing behind."""
        if self._count() != self._changes:
            return True
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(max(0.0, timeout_ms) / 1000.0, _give_up, future)
        for each in self._lists:
            each.add(future)
        try:
            return await future
        finally:
            timer.cancel()
            for each in self._lists:
                each.discard(future)


def _give_up(future: "asyncio.Future[bool]") -> None:
    if not future.done():
        future.set_result(False)
