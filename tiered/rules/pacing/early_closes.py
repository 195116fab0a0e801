"""When a segment may be closed before Kafka would close it, so that its records get into the object store.

Owns the order and the distance of these moments. Every such segment costs the same few requests, however little is in
it (docs/costs.md), so one broker closes only so many an hour. Whoever is due first is first: a key takes one place in
time and keeps it until it gives it back, so nobody is passed over and nobody asks again and again. Must never read a
clock: time is an argument, in milliseconds that only grow.
"""

from collections.abc import Hashable

HOUR_MS = 3_600_000.0
AT_ONCE = 100
"""So many after a quiet time need not wait for each other."""


class EarlyClosesState:
    """The places that were taken and not given back."""

    __slots__ = ("_last_ms", "_places_ms")

    def __init__(self) -> None:
        self._places_ms: dict[Hashable, float] = {}
        self._last_ms = float("-inf")

    def place_ms(self, key: Hashable, now_ms: float, *, per_hour: int) -> float:
        """The moment from which on `key` may close its segment: the one it has, or one behind all others."""
        place_ms = self._places_ms.get(key)
        if place_ms is None:
            distance_ms = HOUR_MS / per_hour
            self._last_ms = max(self._last_ms + distance_ms, now_ms - (AT_ONCE - 1) * distance_ms)
            place_ms = self._places_ms[key] = max(now_ms, self._last_ms)
        return place_ms

    def give_back(self, key: Hashable) -> None:
        """`key` has closed its segment, or no longer needs to. Harmless to repeat."""
        self._places_ms.pop(key, None)

    def __len__(self) -> int:
        return len(self._places_ms)
