"""When an answer must have arrived as a whole: a store that sends a byte now and then keeps every single wait short.

Owns the answers under way and one thread that looks at them. Must never touch an answer that arrives in time.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tiered.runtime import Clock

SLOWEST_BYTES_A_MS = 64
"""An answer that is slower than 64 KB/s on the whole is asked for again."""

_AT_ONCE_S = 0.001


@dataclass(slots=True, eq=False)
class _UnderWay:
    body: Any
    deadline_ms: float


class BodyDeadlines:
    """Ends answers that take longer than `wait_ms` and what their length allows. Threads share it."""

    def __init__(self, clock: Clock, *, wait_ms: float) -> None:
        self._clock = clock
        self._wait_ms = wait_ms
        self._under_way: set[_UnderWay] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watched(self, body: Any, length: int) -> Iterator[None]:
        """While `length` bytes are read from botocore's `body`: past the deadline the reader's next wait times out."""
        allowed_ms = self._wait_ms + length / SLOWEST_BYTES_A_MS
        entry = _UnderWay(body, self._clock.monotonic_ms() + allowed_ms)
        with self._lock:
            self._under_way.add(entry)
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._look, name="answers' deadlines", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._under_way.discard(entry)

    def close(self) -> None:
        """Nothing is ended any more."""
        self._closing.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _look(self) -> None:
        while not self._closing.wait(self._wait_ms / 4000.0):
            now_ms = self._clock.monotonic_ms()
            with self._lock:
                overdue = [entry for entry in self._under_way if entry.deadline_ms < now_ms]
                for entry in overdue:
                    # Under the lock: later the connection could be another answer's. The wait that has begun lasts as
                    # long as any, the next one ends at once.
                    with suppress(AttributeError):  # It has arrived just now.
                        entry.body.set_socket_timeout(_AT_ONCE_S)
