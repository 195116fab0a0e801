"""The collector of a process that serves: what it begins with, when it looks at everything, and that its pauses are
counted."""

import gc
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.broker.context import SetClock
from tiered.metrics import CountersState
from tiered.runtime import SystemClock
from tiered.server.garbage import COLLECTIONS_BEFORE_FULL, FullCollections, begin_collecting


class Circle:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def counters() -> Iterator[CountersState]:
    """The counters of a process that has begun to serve."""
    made, thresholds = CountersState(), gc.get_threshold()
    gc.disable()
    try:
        begin_collecting(made, SystemClock())
        yield made
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def old_circle() -> weakref.ref[Circle]:
    """Garbage that young collections have left, as they do what outlives two of them."""
    circle = Circle()
    for _ in range(COLLECTIONS_BEFORE_FULL):
        gc.collect(1)
    return weakref.ref(circle)


def test_what_the_start_leaves_behind_is_collected_and_pauses_are_counted(request: pytest.FixtureRequest) -> None:
    left = weakref.ref(Circle())
    counters = request.getfixturevalue("counters")
    assert left() is None
    assert gc.isenabled()
    gc.collect()
    assert sum(counters.garbage_collections.counts) > 0
    assert counters.garbage_max_pause_ms > 0.0


@pytest.mark.usefixtures("counters")
def test_python_never_looks_at_everything_by_itself() -> None:
    left = old_circle()
    kept = [[number] for number in range(1_000_000)]
    assert left() is not None
    del kept


@pytest.mark.usefixtures("counters")
async def test_everything_is_looked_at_in_a_quiet_moment() -> None:
    full = FullCollections(SystemClock(), is_busy=lambda: False)
    left = old_circle()
    await full.look()
    assert left() is not None, "until now much was made that stays"
    await full.look()
    assert left() is None


@pytest.mark.usefixtures("counters")
async def test_what_is_kept_for_the_next_requests_is_given_up_after_the_last_one_of_very_many_names() -> None:
    """Where there is always something to do no moment is quiet for a full collection."""
    busy, let_go = [False, True, True, False, False, True, False], list[int]()
    full = FullCollections(SystemClock(), lambda: busy.pop(0), lambda: let_go.append(len(busy)))
    while busy:
        await full.look()
    assert let_go == [3, 0], "after the fourth look and the last"


@pytest.mark.usefixtures("counters")
async def test_freed_memory_goes_back_also_while_requests_of_very_many_names_come_all_the_time() -> None:
    clock, let_go = SetClock(), list[float]()
    full = FullCollections(clock, lambda: True, lambda: let_go.append(clock.waited_ms))
    for _ in range(13):
        clock.waited_ms += 1_000
        await full.look()
    assert let_go == [5_000, 10_000]


@pytest.mark.usefixtures("counters")
async def test_where_no_moment_is_quiet_everything_is_looked_at_after_ten_minutes() -> None:
    """Nothing new lives on, but a request of very many names is being answered."""
    clock = SetClock()
    full = FullCollections(clock, is_busy=lambda: True)
    left = old_circle()
    for _ in range(9):
        clock.waited_ms += 60_000
        await full.look()
    assert left() is not None
    clock.waited_ms += 60_000
    await full.look()
    assert left() is None


@pytest.mark.usefixtures("counters")
async def test_what_a_look_has_left_alive_is_looked_at_again_when_much_more_has_come() -> None:
    full = FullCollections(SystemClock(), is_busy=lambda: False, most_unseen=10_000)

    async def look() -> None:
        """Once things are quiet."""
        full._rest_ms = 0.0
        old_circle()
        await full.look()
        await full.look()

    kept: list[object] = [Circle()]
    left = weakref.ref(kept[0])
    await look()
    kept.clear()
    await look()
    assert left() is not None, "it was alive when it was looked at"
    kept = [[number] for number in range(11_000)]
    await look()
    await look()
    assert left() is None
    del kept


@pytest.mark.usefixtures("counters")
async def test_what_has_come_and_gone_has_nobody_count_all_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """To count a million objects takes 50 ms. It came after each flood of large requests, of which nothing was left."""
    full = FullCollections(SystemClock(), is_busy=lambda: False, most_unseen=50_000)
    counts: list[int] = []

    def counted() -> int:
        counts.append(1)
        return 0

    monkeypatch.setattr(gc, "get_freeze_count", counted)
    for _ in range(12):  # Each has a hundred thousand objects outlive young collections, by the old reckoning.
        full._rest_ms = 0.0
        left = old_circle()
        await full.look()
        await full.look()
        assert left() is None
    assert not counts


@pytest.mark.usefixtures("counters")
async def test_freed_memory_goes_back_to_the_system_in_a_quiet_moment() -> None:
    full = FullCollections(SystemClock(), is_busy=lambda: False)
    blocks = [bytes(50_000) for _ in range(2_000)]
    kept = blocks[::100]
    blocks.clear()
    freed_from = rss_bytes()
    old_circle()
    await full.look()
    await full.look()
    assert freed_from - rss_bytes() > 50_000_000
    del kept


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
