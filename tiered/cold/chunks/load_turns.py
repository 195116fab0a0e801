"""Whose turn it is to load from the store, while loads must give way to the tail.

Owns how many run at once, which somebody else decides (`rules.pacing.cold_pace`), and the order of those that wait.
Lives on one event loop; must never block it, and never take back a turn that was given.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

HELD_BACK_REQUEST_BYTES = 2 << 20
"""A load that runs beside the tail asks for no more: the shorter one is, the sooner the tail has its turn."""


class LoadTurns:
    """Up to `most` loads at once, first come first served."""

    def __init__(self, most: int) -> None:
        assert most >= 1
        self._most = most
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.allowed = most

    @property
    def is_held_back(self) -> bool:
        """Fewer may run than all."""
        return self.allowed < self._most

    @property
    def is_free(self) -> bool:
        """One more could begin now."""
        return not self._waiting and self._running < self.allowed

    def allow(self, count: int) -> None:
        """So many may run from now on; those that run already go on."""
        assert 1 <= count <= self._most
        self.allowed = count
        self._wake()

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Waits for a turn and holds it. What waits is bounded by the byte budget that each has taken before."""
        if self.is_free:
            self._running += 1
        else:
            await self._wait()
        try:
            yield
        finally:
            self._running -= 1
            self._wake()

    async def _wait(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._running -= 1  # The turn came in the moment it was given up.
            else:
                self._waiting.remove(turn)
            self._wake()
            raise

    def _wake(self) -> None:
        while self._waiting and self._running < self.allowed:
            turn = self._waiting.popleft()
            if not turn.cancelled():
                self._running += 1
                turn.set_result(None)
