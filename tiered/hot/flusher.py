"""Group commit: one fdatasync for all waiters, and the ticks of `flush.ms`.

Owns who flushes a log and when. The flush itself runs in a thread; must never run two for one log at a
time, and never answer before the disk has.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from tiered.errors import LogDirFailed, NotLeader
from tiered.hot.log import Log
from tiered.runtime import BlockingPool, Clock

MAX_FLUSHES_AT_ONCE = 4
"""How many logs one tick flushes at the same time: enough for the disk's queue, few enough for the threads."""


class Flusher:
    """Flushes logs in the threads of `pool`. Used from one event loop."""

    def __init__(self, pool: BlockingPool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._running: dict[Log, asyncio.Future[None]] = {}

    async def flushed(self, log: Log, offset: int) -> None:
        """Returns when everything below `offset` survives a power loss.

        A caller that comes while a flush runs waits for the next one, which serves all that came meanwhile. A waiter
        that is cancelled cancels no flush. Raises LogDirFailed when the disk failed, NotLeader when the records were
        truncated away while waiting.
        """
        while log.flushed_offset < offset:
            if offset > log.log_end_offset:
                raise NotLeader(f"offset {offset - 1} was truncated away before it was flushed; refresh metadata")
            running = self._running.get(log)
            if running is not None:
                await asyncio.shield(running)
                continue
            done = asyncio.get_running_loop().create_future()
            self._running[log] = done
            try:
                await self._pool.run(log.flush)
            finally:
                # After a cancellation the flush still runs: the next one waits for it at the log's own lock.
                del self._running[log]
                done.set_result(None)

    async def flush_due(self, logs: Iterable[Log]) -> None:
        """One tick: flushes the logs whose oldest unflushed record has waited `flush_ms`, or that rolled a segment.

        A log whose disk fails is skipped; the log itself remembers why. Raises nothing of theirs.
        """
        now_ms = self._clock.now_ms()
        due = [log for log in logs if log.due_ms(may_roll=False) <= now_ms]
        for first in range(0, len(due), MAX_FLUSHES_AT_ONCE):
            batch = due[first : first + MAX_FLUSHES_AT_ONCE]
            await asyncio.gather(*(self._flush_one(log) for log in batch))

    async def _flush_one(self, log: Log) -> None:
        with suppress(LogDirFailed, NotLeader):
            await self.flushed(log, log.log_end_offset)
            # Nothing new, but a closed segment is not on disk yet.
            if log.due_ms(may_roll=False) <= self._clock.now_ms():
                await self._pool.run(log.flush)
