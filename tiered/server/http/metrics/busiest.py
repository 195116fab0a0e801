"""Which topics, partitions and groups have series of their own where not all may: those with the most traffic now.

Owns a decaying sum of traffic for each name of one kind, and the choice made of it. The choice stays for a minute, and
a name gives way only to one with twice its traffic: a series that comes and goes draws no line. Must keep nothing while
there is room for all names.
"""

import heapq
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from tiered.runtime import in_turns

K = TypeVar("K", bound=Hashable)

HALF_LIFE_MS = 600_000.0
"""After so long traffic counts half."""
CHOSEN_FOR_MS = 60_000.0
STAYING_FACTOR = 2.0


class Busiest(Generic[K]):
    """The names of one kind that have series. `counts_from_zero` is true for totals that began with this process."""

    def __init__(self, *, counts_from_zero: bool = True) -> None:
        self._counts_from_zero = counts_from_zero
        self._traffic: dict[K, tuple[int, float]] = {}
        """The newest total of each name, and its decaying sum."""
        self._chosen: frozenset[K] = frozenset()
        self._limit = 0
        self._chosen_ms = 0.0

    async def of(self, names: Sequence[K], total_of: Callable[[K], int], *, limit: int, now_ms: float) -> list[K]:
        """At most `limit` of the names, in their order. Totals grow with traffic; names that tie go by their order."""
        if len(names) <= limit or not limit:
            self._traffic, self._chosen = {}, frozenset()
            return list(names[:limit])
        chosen = await self._chosen_of(names)
        if len(chosen) != limit or limit != self._limit or now_ms - self._chosen_ms >= CHOSEN_FOR_MS:
            await self._choose(names, total_of, limit, now_ms)
            chosen = await self._chosen_of(names)
        return chosen

    async def _chosen_of(self, names: Sequence[K]) -> list[K]:
        return [name async for name in in_turns(names) if name in self._chosen]

    async def _choose(self, names: Sequence[K], total_of: Callable[[K], int], limit: int, now_ms: float) -> None:
        before, decay = self._traffic, 0.5 ** (max(0.0, now_ms - self._chosen_ms) / HALF_LIFE_MS)
        traffic: dict[K, tuple[int, float]] = {}
        best: list[tuple[float, bool, int, K]] = []
        # The order breaks ties, so names are never compared.
        async for number, name in in_turns(enumerate(names)):
            total = total_of(name)
            old_total, old_sum = before.get(name, (0 if self._counts_from_zero else total, 0.0))
            # A total that fell began anew.
            score = old_sum * decay + (total - old_total if total >= old_total else total)
            traffic[name] = (total, score)
            entry = (score * STAYING_FACTOR if name in self._chosen else score, name in self._chosen, -number, name)
            (heapq.heappush if len(best) < limit else heapq.heappushpop)(best, entry)
        self._traffic = traffic
        self._chosen = frozenset(name for *_, name in best)
        self._limit, self._chosen_ms = limit, now_ms
