"""One operation for each of many items, so that an item that fails blocks none behind it.

Owns which items failed when they were last tried, their lines in the log, their number, and when a round ends early.
Every loop of a broker that awaits something for each of many objects, partitions, topics or groups goes through here,
or says in `tests/house/test_loops.py` why it need not. Must never end a round because of one item, nor try a thousand
while SQL or the store is away.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from tiered.errors import CoordinatorNotAvailable, MetadataUnavailable, StoreUnavailable, TieredError
from tiered.metrics import CountersState
from tiered.runtime import in_turns

log = logging.getLogger(__name__)
T = TypeVar("T")

IN_A_ROW = 3
"""So many items fail one after the other because SQL or the store gave no answer: then it is about none of them."""
MAX_NAMED = 5
"""Items that a round names in the log; it counts the others."""
AWAY = (CoordinatorNotAvailable, MetadataUnavailable, StoreUnavailable)


class OneByOne:
    """One kind of work, which `name` names in the log and in the metric."""

    def __init__(self, name: str, *, counters: CountersState) -> None:
        self._name = name
        self._counters = counters
        self._failing: set[str] = set()
        self._named_now = self._in_a_row = 0
        self._count()

    @property
    def failing_count(self) -> int:
        """Items that failed when they were last tried."""
        return len(self._failing)

    async def run(self, items: Iterable[T], work: Callable[[T], Awaitable[object]], *, name: Callable[[T], str]) -> int:
        """How many of `items`, which are all that there are, failed. Those that failed last time come last, so that
        the others have their turn also where the round ends early. Raises what the last item met where SQL or the
        store answered for none of `IN_A_ROW`."""
        items = list(items)
        self.begin()
        if self._failing:
            items.sort(key=lambda item: name(item) in self._failing)
        self.keep(map(name, items))
        failed = 0
        async for item in in_turns(items):
            try:
                await work(item)
            except Exception as error:
                failed += 1
                self.failed(name(item), error)
                if self.is_away:
                    raise
            else:
                self._in_a_row = 0
                if self._failing:
                    self.worked(name(item))
        return failed

    # For loops that keep a place of their own

    def begin(self) -> None:
        """A round begins: so many items may be named again."""
        self._named_now = self._in_a_row = 0

    def keep(self, names: Iterable[str]) -> None:
        """Other items are there no more."""
        if self._failing:
            self._failing.intersection_update(names)
            self._count()

    @property
    def is_away(self) -> bool:
        """Whether `IN_A_ROW` items got no answer, one after the other: it is about none of them."""
        return self._in_a_row >= IN_A_ROW

    def failed(self, name: str, error: Exception) -> None:
        """The item cannot be dealt with now; the log says so once."""
        self._in_a_row = self._in_a_row + 1 if isinstance(error, AWAY) else 0
        if name not in self._failing:
            self._failing.add(name)
            self._count()
            self._named_now += 1
            is_bug = not isinstance(error, TieredError | OSError)
            if self._named_now <= MAX_NAMED:
                log.warning(
                    "%s failed for %s, which is tried again; others go on: %s", self._name, name,
                    str(error) or repr(error), exc_info=error if is_bug else None,
                )  # fmt: skip
            elif self._named_now == MAX_NAMED + 1:
                log.warning("%s failed for more than that: tiered_failing_items has how many", self._name)

    def worked(self, name: str) -> None:
        """The item is done."""
        self._in_a_row = 0
        if name in self._failing:
            self._failing.discard(name)
            self._count()
            log.warning("%s works again for %s", self._name, name)

    def _count(self) -> None:
        self._counters.failing_items[self._name] = len(self._failing)
