"""A deadline that is moved often and rarely reached.

Owns one entry in the event loop's schedule. Moving the deadline to a later time costs nothing: when the
entry is due, it looks whether the deadline has moved.
"""

import asyncio
from collections.abc import Callable

# When the loop itself was held up for so long, heartbeats may wait unread in the sockets.
LATE_S = 1.0


class Deadline:
    """Calls `passed` once, when the time that was last set is over. Not set, it never does."""

    __slots__ = ("_at_s", "_entry", "_loop", "_passed", "_patient")

    def __init__(self, passed: Callable[[], None], *, patient: bool = False) -> None:
        """With `patient`, a time-out that is noticed late (the process had been stopped, or was very busy) is prolonged
        by as much, once: a member whose request is waiting gets a chance to be heard."""
        self._loop = asyncio.get_running_loop()
        self._passed = passed
        self._patient = patient
        self._at_s: float | None = None
        self._entry: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._at_s is not None

    def set(self, delay_ms: float) -> None:
        """`delay_ms` from now, whatever was set before."""
        self._at_s = at_s = self._loop.time() + max(0.0, delay_ms) / 1000.0
        if self._entry is not None:
            if self._entry.when() <= at_s:
                return
            self._entry.cancel()
        self._entry = self._loop.call_at(at_s, self._due)

    def end(self) -> None:
        """Is not set again: who made this deadline holds it, and from now on it holds nobody."""
        self.clear()
        self._passed = _nothing

    def clear(self) -> None:
        self._at_s = None
        if self._entry is not None:
            self._entry.cancel()
            self._entry = None

    def _due(self) -> None:
        assert self._entry is not None
        late_s = self._loop.time() - self._entry.when()
        self._entry = None
        if self._at_s is None:
            return
        if self._patient and late_s > LATE_S:
            self._at_s = max(self._at_s, self._loop.time() + late_s)
        if self._loop.time() < self._at_s:
            self._entry = self._loop.call_at(self._at_s, self._due)
            return
        self._at_s = None
        self._passed()


def _nothing() -> None:
    """In the place of what an ended deadline would call."""
