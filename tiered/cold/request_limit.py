"""How many requests may be with the object store at once: fewer after it said "slow down", more while it is well.

Owns that one number and the threads that wait for their turn. Must never sleep or retry: the store's client does.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SUCCESSES_PER_STEP = 20


class RequestLimit:
    """Between 1 and `max_requests` slots. Each "slow down" halves them; every 20 successes give one back."""

    def __init__(self, max_requests: int) -> None:
        assert max_requests >= 1
        self._max_requests = max_requests
        self._allowed = max_requests
        self._running = 0
        self._successes = 0
        self._changed = threading.Condition()

    @property
    def allowed(self) -> int:
        """Requests that may run at once now."""
        return self._allowed

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Waits for a turn and holds it. Turns are short: every request has a timeout, so the wait has an end."""
        with self._changed:
            self._changed.wait_for(lambda: self._running < self._allowed)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify()

    def slowed_down(self) -> None:
        with self._changed:
            self._allowed = max(1, self._allowed // 2)
            self._successes = 0

    def succeeded(self) -> None:
        with self._changed:
            self._successes += 1
            if self._successes >= _SUCCESSES_PER_STEP and self._allowed < self._max_requests:
                self._successes = 0
                self._allowed += 1
                self._changed.notify()
