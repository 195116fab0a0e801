"""How many requests may be with the object store at once: fewer after "slow down" or silence, more while it is well.

Owns that one number, which `rules.pacing.adaptive_limit` decides, and the threads that wait for their turn. Must never
sleep or retry: the store's client does.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tiered.rules.pacing import adaptive_limit
from tiered.runtime import Clock

_SUCCESSES_PER_STEP = 20


class RequestLimit:
    """Between 1 and `max_requests` slots. Each sign of overload halves them; every 20 successes give one back."""

    def __init__(self, max_requests: int, clock: Clock) -> None:
        self._clock = clock
        self._limit = adaptive_limit.unlimited(max_requests, step=_SUCCESSES_PER_STEP)
        self._running = 0
        self._changed = threading.Condition()

    @property
    def allowed(self) -> int:
        """Requests that may run at once now."""
        return self._limit.allowed

    @contextmanager
    def slot(self) -> Iterator[float]:
        """Waits for a turn and holds it; gives when it began. Turns are short: every request has a timeout, so the
        wait has an end."""
        with self._changed:
            self._changed.wait_for(lambda: self._running < self._limit.allowed)
            self._running += 1
        try:
            yield self._clock.monotonic_ms()
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify()

    def overloaded(self, began_ms: float) -> None:
        """The request that began then was refused or not answered. Many that fail together count as one."""
        with self._changed:
            self._limit = adaptive_limit.overloaded(self._limit, began_ms=began_ms, now_ms=self._clock.monotonic_ms())

    def succeeded(self) -> None:
        with self._changed:
            before = self._limit.allowed
            self._limit = adaptive_limit.succeeded(self._limit)
            if self._limit.allowed > before:
                self._changed.notify()
