"""Periodic work, each kind at its own interval.

Owns the tasks, and logs a failure once. The broker gives the work and its intervals. Must never let one tick's failure
end another's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import NamedTuple

from tiered.errors import TieredError
from tiered.metrics import CountersState
from tiered.runtime import QuietFailures, Worker, every

log = logging.getLogger(__name__)

STALL_PROBE_MS = 100


class Tick(NamedTuple):
    """One kind of periodic work."""

    interval_ms: float | Callable[[], float]
    work: Callable[[], Awaitable[None]]
    name: str


class Housekeeping:
    """Periodic work of one broker, as tasks of its TaskGroup."""

    def __init__(self, *, counters: CountersState) -> None:
        self._counters = counters
        self._worker = Worker()
        self._failures = QuietFailures(log, "%(name)s failed and is tried again and again: %(error)s")

    def start(self, group: asyncio.TaskGroup, ticks: Iterable[Tick]) -> None:
        """Carries out `ticks` until `stop`."""
        for interval_ms, work, name in ticks:
            self._worker.start(group, every(interval_ms, partial(self._quietly, work, name), name=name))
        self._worker.start(group, self._probe_stalls())

    async def stop(self) -> None:
        """Begins nothing new."""
        await self._worker.stop()

    async def _quietly(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        try:
            await work()
        except (TieredError, OSError) as error:
            self._counters.housekeeping_failures += 1
            self._failures.failed(error, name)
        else:
            self._failures.worked(name)

    async def _probe_stalls(self) -> None:
        """Measures how late the event loop wakes: the one number that tells whether something blocks it."""
        loop = asyncio.get_running_loop()
        counters = self._counters
        while True:
            before = loop.time()
            await asyncio.sleep(STALL_PROBE_MS / 1000.0)
            counters.event_loop_stall_ms = max(0.0, (loop.time() - before) * 1000.0 - STALL_PROBE_MS)
            counters.event_loop_stalls.observe(counters.event_loop_stall_ms)
            counters.event_loop_max_stall_ms = max(counters.event_loop_max_stall_ms, counters.event_loop_stall_ms)
