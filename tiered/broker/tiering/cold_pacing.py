"""Cold reads give way to the tail: while loads from the store are under way, how late the event loop comes is watched,
and how many may run at once follows from that (`rules.pacing.cold_pace`).

Owns the watch. A broker's loop serves tail and backfill alike, and a backfill can use all the processors of its host:
what a producer feels first is a loop that comes late. Must never cost anything while nothing is loaded.
"""

import asyncio

from tiered.cold.chunks.cache import ChunkCache
from tiered.metrics import CountersState
from tiered.rules.pacing import cold_pace
from tiered.runtime import Clock, Worker

TICK_MS, WINDOW_MS = 10.0, 200.0
# A timer of the event loop comes a millisecond late by itself, and one more is nothing that a client notices.
TOLERATED_MS = 2.0
TAIL_IS_USED_MS = 1_000.0
"""Records were written or read at the tail within this time."""


class ColdPacing:
    """Holds back the loads of `cache`, of which `most` may run at once otherwise."""

    def __init__(self, cache: ChunkCache, counters: CountersState, clock: Clock, *, most: int) -> None:
        self._cache = cache
        self._counters = counters
        self._clock = clock
        self._pace = cold_pace.alone(most)
        self._tail_bytes = 0
        self._tail_used_ms = float("-inf")
        self._worker = Worker()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Watches as a task of `tasks` until `stop`."""
        self._worker.start(tasks, self._run())

    async def stop(self) -> None:
        """Watches no more. Loads go on as they were last allowed to."""
        await self._worker.stop()

    async def _run(self) -> None:
        while True:
            await self._cache.wait_for_load()
            self._tail_bytes = self._moved_at_tail()  # Perhaps long ago.
            while self._cache.loading_chunks:
                late_share = await self._watch()
                self._decide(late_share, self._clock.monotonic_ms())

    def _decide(self, late_share: float, now_ms: float) -> None:
        tail_bytes = self._moved_at_tail()
        if tail_bytes != self._tail_bytes:
            self._tail_bytes, self._tail_used_ms = tail_bytes, now_ms
        tail_is_used = now_ms - self._tail_used_ms < TAIL_IS_USED_MS
        self._pace = cold_pace.observed(self._pace, late_share=late_share, tail_is_used=tail_is_used, now_ms=now_ms)
        self._cache.turns.allow(self._pace.allowed)

    async def _watch(self) -> float:
        """The share of a window by which this task came later than it was due."""
        began_ms = now_ms = self._clock.monotonic_ms()
        late_ms = 0.0
        while now_ms - began_ms < WINDOW_MS:
            due_ms = now_ms + TICK_MS
            await asyncio.sleep(TICK_MS / 1000.0)
            now_ms = self._clock.monotonic_ms()
            late_ms += max(0.0, now_ms - due_ms - TOLERATED_MS)
        return late_ms / (now_ms - began_ms)

    def _moved_at_tail(self) -> int:
        """Bytes since the start that went into the local log, or out of it."""
        counters = self._counters
        replicated_bytes = counters.replication_bytes_in + counters.replication_bytes_out
        return counters.produced_bytes + counters.fetched_local_bytes + replicated_bytes
