"""The collector of a process that serves: what it begins with, and that its pauses are counted."""

import gc
import weakref

from tiered.metrics import CountersState
from tiered.runtime import SystemClock
from tiered.server.garbage import begin_collecting


class Circle:
    def __init__(self) -> None:
        self.me = self


def test_what_the_start_leaves_behind_is_collected_and_pauses_are_counted() -> None:
    counters, thresholds = CountersState(), gc.get_threshold()
    gc.disable()
    left = weakref.ref(Circle())
    try:
        begin_collecting(counters, SystemClock())
        assert left() is None
        assert gc.isenabled()
        gc.collect()
        assert sum(counters.garbage_collections.counts) > 0
        assert counters.garbage_max_pause_ms > 0.0
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*thresholds)
