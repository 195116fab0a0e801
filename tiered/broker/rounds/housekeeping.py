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
from tiered.runtime import BEAT_S, QuietFailures, Worker, every, last_beat_s

log = logging.getLogger(__name__)

STALL_PROBE_S = BEAT_S


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
        self._probe: asyncio.TimerHandle | None = None
        self._failures = QuietFailures(log, "%(name)s failed and is tried again and again: %(error)s")

    def start(self, group: asyncio.TaskGroup, ticks: Iterable[Tick]) -> None:
        """Carries out `ticks` until `stop`."""
        for interval_ms, work, name in ticks:
            self._worker.start(group, every(interval_ms, partial(self._quietly, work, name), name=name))
        self._probe_stalls(asyncio.get_running_loop().time())

    async def stop(self) -> None:
        """Begins nothing new."""
        if self._probe is not None:
            self._probe.cancel()
        await self._worker.stop()

    async def _quietly(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        try:
            await work()
        except (TieredError, OSError) as error:
            self._counters.housekeeping_failures += 1
            self._failures.failed(error, name)
        else:
            self._failures.worked(name)

    def _probe_stalls(self, due_s: float) -> None:
        """Measures on each beat how late the event loop wakes: the one number that tells whether something blocks it.

        It is the first that is due. The work of the same beat begins in the loop's next turn, and whoever comes after
        that has waited for it."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        loop.call_soon(loop.call_soon, self._note_stall, max(0.0, now_s - due_s), now_s)
        due_s = last_beat_s(now_s + STALL_PROBE_S)
        self._probe = loop.call_at(due_s, self._probe_stalls, due_s)

    def _note_stall(self, late_s: float, since_s: float) -> None:
        counters = self._counters
        counters.event_loop_stall_ms = 1000.0 * max(late_s, asyncio.get_running_loop().time() - since_s)
        counters.event_loop_stalls.observe(counters.event_loop_stall_ms)
        counters.event_loop_max_stall_ms = max(counters.event_loop_max_stall_ms, counters.event_loop_stall_ms)
