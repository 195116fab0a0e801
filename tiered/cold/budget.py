"""Bounds what is under way at once: the bytes that all cold reads together fetch, so that a backfill does not starve
the tail, the loads that run beside it, and the produce requests that wait for their validation.

Owns that number and the order of waiters. Lives on one event loop; must never block it, and never take back what was
given.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tiered.errors import Throttled

MAX_WAITING = 10_000


class Budget:
    """`most` bytes or turns to hand out, first come first served; one that wants more than all of it gets all of it."""

    def __init__(self, most: int, *, max_waiting: int = MAX_WAITING) -> None:
        assert most > 0
        self._most = most
        self._free = most
        self._max_waiting = max_waiting
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.allowed = most

    @property
    def taken_now(self) -> int:
        return self.allowed - self._free

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def waiting_units(self) -> int:
        return sum([wanted for wanted, _ in self._waiting]) if self._waiting else 0

    @property
    def spare(self) -> int:
        """The units that are free without waiting."""
        return 0 if self._waiting else max(0, self._free)

    @property
    def is_held_back(self) -> bool:
        """Less may be taken than all."""
        return self.allowed < self._most

    def allow(self, count: int) -> None:
        """So much may be taken from now on; holders keep what they have."""
        assert 1 <= count <= self._most
        self._free += count - self.allowed
        self.allowed = count
        self._wake()

    def has_free(self, wanted: int) -> bool:
        """True when so much could be had without waiting."""
        return not self._waiting and min(wanted, self.allowed) <= self._free

    @asynccontextmanager
    async def taken(self, wanted: int) -> AsyncIterator[None]:
        """Waits for its turn, then holds what it wants. Raises `Throttled` when too many wait already."""
        wanted = min(wanted, self.allowed)
        if self.has_free(wanted):
            self._free -= wanted
        else:
            await self._wait(wanted)
        try:
            yield
        finally:
            self._give_back(wanted)

    async def _wait(self, wanted: int) -> None:
        if len(self._waiting) >= self._max_waiting:
            raise Throttled("too many requests wait for their turn; try again later")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (wanted, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(wanted)  # The turn came in the moment it was given up.
            else:
                with suppress(ValueError):  # `_wake` may have passed it over in the same turn of the loop.
                    self._waiting.remove(entry)
                self._wake()
            raise

    def _give_back(self, held: int) -> None:
        self._free += held
        assert self._free <= self.allowed
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            wanted, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._free -= wanted
                turn.set_result(None)
