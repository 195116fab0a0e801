"""Python's garbage collector in a process that serves: what it looks at, how often, and how long it takes.

Owns its settings and its pauses, in which nobody is answered. It is the last resort: what ends is freed when it ends
(`tests/components/serving/test_cycles.py`). Must never be touched where others share the process.

A full collection must not come in the middle of a request of 100,000 names: it took 50 to 215 ms there, again and
again. Young objects are collected as Python does, in a millisecond. In a quiet moment all are collected that have come
since the last such moment. What is left then is not looked at again until very many more are there: 10,000 new topics
would take 130 ms each time. Freed memory, which the C library keeps, goes back to the system then, and soon after the
last request of very many names.
"""

import asyncio
import ctypes
import gc
from collections.abc import Callable
from typing import Any

from tiered.metrics import CountersState
from tiered.runtime import Clock

YOUNG_OBJECTS = 2_000
"""Cycles come with requests over HTTP, so most collections look at few objects, for all wait."""
COLLECTIONS_BEFORE_MIDDLE = 5
COLLECTIONS_BEFORE_FULL = 10
"""Python's own numbers."""
NEVER = 1 << 30
LOOK_MS = 1_000.0
"""A moment is quiet when for so long no object has outlived two young collections."""
LONGEST_WITHOUT_FULL_MS = 600_000.0
MOST_UNSEEN = 1_000_000
"""When so many more objects live than at the last look at everything, there is another one."""
GIVE_BACK_MS = 5_000.0
"""So often at the most memory goes back to the system while there are such objects all the time: in those 5 to 20 ms
nobody gets any."""
REST_FACTOR = 500
"""So many times as long as a full collection took, there is none."""


def begin_collecting(counters: CountersState, clock: Clock) -> None:
    """From now on garbage is collected. What is there lives as long as the process: it is never looked at again."""
    gc.collect()  # Or what the start has left behind would stay for good.
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, COLLECTIONS_BEFORE_MIDDLE, NEVER)
    gc.callbacks.append(_Pauses(counters, clock))
    gc.enable()


class FullCollections:
    """`look` is called every `LOOK_MS`."""

    def __init__(
        self,
        clock: Clock,
        is_busy: Callable[[], bool],
        let_go: Callable[[], None] = lambda: None,
        *,
        most_unseen: int = MOST_UNSEEN,
    ) -> None:
        """`is_busy` while there are very many objects that will soon be gone. `let_go` gives up what is kept for the
        next requests: it lies among what a flood of them left free, and the system would get none of that back."""
        self._clock = clock
        self._most_unseen = most_unseen
        self._seen = gc.get_freeze_count()
        """The objects that the last look at everything left, or the start."""
        self._unseen = 0
        """At most so many more have been left alone since."""
        self._is_busy = is_busy
        self._let_go = let_go
        self._was_busy = False
        self._given_back_ms = clock.monotonic_ms()
        self._last_ms = clock.monotonic_ms()
        self._rest_ms = 0.0
        self._promotions = 0

    async def look(self) -> None:
        """Collects garbage of every age in a quiet moment; where there is none for very long, in this one."""
        was_busy, self._was_busy = self._was_busy, self._is_busy()
        now_ms = self._clock.monotonic_ms()
        if was_busy and (not self._was_busy or now_ms - self._given_back_ms >= GIVE_BACK_MS):
            self._given_back_ms = now_ms
            self._let_go()
            await asyncio.to_thread(_give_back)
        before, self._promotions = self._promotions, gc.get_count()[2]
        if self._promotions < COLLECTIONS_BEFORE_FULL:
            return
        now_ms = self._clock.monotonic_ms()
        is_quiet = self._promotions == before and not self._was_busy and now_ms - self._last_ms >= self._rest_ms
        if is_quiet or now_ms - self._last_ms >= LONGEST_WITHOUT_FULL_MS:
            if self._unseen > self._most_unseen:  # Only then: to count them takes 50 ms for a million.
                self._unseen = gc.get_freeze_count() - self._seen
            looks_at_all = self._unseen > self._most_unseen
            if looks_at_all:
                gc.unfreeze()
            gc.collect()
            self._unseen += 0 if looks_at_all else len(gc.get_objects(generation=2))
            gc.freeze()
            if looks_at_all:
                self._seen, self._unseen = gc.get_freeze_count(), 0
            self._last_ms, self._promotions = self._clock.monotonic_ms(), 0
            self._rest_ms = REST_FACTOR * (self._last_ms - now_ms)
            await asyncio.to_thread(_give_back)


def _give_back() -> None:
    """Where the C library is glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class _Pauses:
    """Counts how long each collection takes. They never overlap, whichever thread they are in.

    CPU time: a machine that gives the process none does not make the collector slow.
    """

    def __init__(self, counters: CountersState, clock: Clock) -> None:
        self._counters, self._clock = counters, clock
        self._began_ms = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        del info
        if phase == "start":
            self._began_ms = self._clock.worked_ms()
            return
        counters, pause_ms = self._counters, self._clock.worked_ms() - self._began_ms
        counters.garbage_collections.observe(pause_ms)
        counters.garbage_max_pause_ms = max(counters.garbage_max_pause_ms, pause_ms)
