"""Producers that wait until what they wrote is committed (acks=all).

Owns the waiting, in order of offsets, so that a high watermark that moves looks only at those whom it concerns.
Must never let anybody wait across a change of leader: the same offset may hold another record then.
"""

import asyncio
import heapq
from itertools import count

from tiered.errors import TieredError

COMPACT_FROM = 1024


class Acknowledgements:
    """Those who wait for one partition's high watermark to reach a certain offset."""

    __slots__ = ("_gone", "_order", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[bool]]] = []
        self._order = count()
        self._gone = 0
        """How many of them have given up, at most."""

    def __len__(self) -> int:
        return len(self._waiting)

    async def reached(self, end_offset: int, timeout_ms: float) -> bool:
        """True once everything below `end_offset` is committed, False after `timeout_ms`. Raises what `fail` is
        given."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        heapq.heappush(self._waiting, (end_offset, next(self._order), future))
        timer = loop.call_later(max(0.0, timeout_ms) / 1000.0, _give_up, future)
        is_reached = False
        try:
            is_reached = await future
            return is_reached
        finally:
            timer.cancel()
            if not is_reached:
                self._leave()

    def advance(self, high_watermark: int) -> None:
        """Answers everybody whose records are committed. Costs one comparison when there is nobody."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            future = heapq.heappop(waiting)[2]
            if not future.done():
                future.set_result(True)

    def fail(self, error: TieredError) -> None:
        """Ends all waits with `error`: leadership went, and nobody here will ever know."""
        waiting, self._waiting, self._gone = self._waiting, [], 0
        for _, _, future in waiting:
            if not future.done():
                # One for each: a traceback grows with every raise.
                future.set_exception(type(error)(*error.args))

    def _leave(self) -> None:
        self._gone += 1
        if len(self._waiting) >= COMPACT_FROM and 2 * self._gone > len(self._waiting):
            self._waiting = [each for each in self._waiting if not each[2].done()]
            heapq.heapify(self._waiting)
            self._gone = 0


def _give_up(future: "asyncio.Future[bool]") -> None:
    if not future.done():
        future.set_result(False)
