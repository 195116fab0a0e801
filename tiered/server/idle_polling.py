"""An event loop that looks for the next request for a while before it sleeps (`tiered.idle.poll.us`).

Owns nothing but that wait. A thread that sleeps is woken late, most of all in a virtual machine, and finds none of its
code in the processor's caches. Must never hold up a timer, nor keep a broker awake that nobody asks anything.
"""

import asyncio
import selectors
from collections.abc import Callable
from functools import partial

from tiered.runtime import Clock

Ready = list[tuple[selectors.SelectorKey, int]]


class PollingSelector(selectors.DefaultSelector):
    """Sleeps only when nothing has come for `poll_us` since something came last."""

    def __init__(self, poll_us: int, monotonic_ms: Callable[[], float]) -> None:
        super().__init__()
        self._poll_ms = poll_us / 1000.0
        self._monotonic_ms = monotonic_ms
        self._awake_until_ms = 0.0

    def select(self, timeout: float | None = None) -> Ready:
        """What is ready, after `timeout` seconds at the latest."""
        ready = super().select(0)
        now_ms = self._monotonic_ms()
        ends_ms = None if timeout is None else now_ms + timeout * 1000.0
        while not ready and now_ms < self._awake_until_ms and (ends_ms is None or now_ms < ends_ms):
            ready = super().select(0)
            now_ms = self._monotonic_ms()
        if not ready and (ends_ms is None or now_ms < ends_ms):
            ready = super().select(None if ends_ms is None else (ends_ms - now_ms) / 1000.0)
            now_ms = self._monotonic_ms()
        if ready:
            self._awake_until_ms = now_ms + self._poll_ms
        return ready


def event_loop(poll_us: int, clock: Clock) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes a broker's loop; with 0 it is asyncio's own."""
    if poll_us == 0:
        return asyncio.SelectorEventLoop
    return partial(asyncio.SelectorEventLoop, PollingSelector(poll_us, clock.monotonic_ms))
