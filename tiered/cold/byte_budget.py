"""How many bytes all cold reads together may be fetching: the bound that keeps a backfill from starving the tail.

Owns that number and the order of those who wait. Lives on one event loop; must never block it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tiered.errors import Throttled

MAX_WAITING = 10_000


class ByteBudget:
    """`max_bytes` to hand out, first come first served; one that wants more than all of it gets all of it."""

    def __init__(self, max_bytes: int, *, max_waiting: int = MAX_WAITING) -> None:
        assert max_bytes > 0
        self._max_bytes = max_bytes
        self._free_bytes = max_bytes
        self._max_waiting = max_waiting
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def taken_bytes(self) -> int:
        return self._max_bytes - self._free_bytes

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def spare_bytes(self) -> int:
        """What could be had without waiting."""
        return 0 if self._waiting else self._free_bytes

    def has_free(self, size_bytes: int) -> bool:
        """True when `size_bytes` could be had without waiting."""
        return not self._waiting and min(size_bytes, self._max_bytes) <= self._free_bytes

    @asynccontextmanager
    async def taken(self, size_bytes: int) -> AsyncIterator[None]:
        """Waits for its turn, then holds `size_bytes`. Raises `Throttled` when too many wait already."""
        wanted = min(size_bytes, self._max_bytes)
        if self.has_free(wanted):
            self._free_bytes -= wanted
        else:
            await self._wait(wanted)
        try:
            yield
        finally:
            self._give_back(wanted)

    async def _wait(self, wanted: int) -> None:
        if len(self._waiting) >= self._max_waiting:
            raise Throttled("too many cold reads wait for their turn; try again later")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (wanted, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(wanted)  # The turn came in the moment it was given up.
            else:
                self._waiting.remove(entry)
                self._wake()
            raise

    def _give_back(self, size_bytes: int) -> None:
        self._free_bytes += size_bytes
        assert self._free_bytes <= self._max_bytes
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free_bytes:
            wanted, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._free_bytes -= wanted
                turn.set_result(None)
