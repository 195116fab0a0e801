"""When an answer must have arrived as a whole: a store that sends a byte now and then keeps every single wait short.

Owns the answers under way and one thread that looks at them. Must never touch an answer that arrives in time.
"""

import socket
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
    sock: Any
    deadline_ms: float
    is_told: bool = False

    def end(self) -> None:
        """The wait that has begun lasts as long as any, the next one ends at once. A reader that never waits, because
        the store sends without an end, loses its connection the second time."""
        with suppress(OSError):  # It has arrived just now.
            if not self.is_told:
                self.is_told = True
                self.sock.settimeout(_AT_ONCE_S)
            elif isinstance(self.sock, socket.socket):
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)
            else:
                self.sock.close()  # TLS within TLS, to a proxy.


class BodyDeadlines:
    """Ends answers that take longer than `wait_ms` and what their length allows. Threads share it."""

    def __init__(self, clock: Clock, *, wait_ms: float) -> None:
        self._clock = clock
        self._wait_ms = wait_ms
        self._under_way: set[_UnderWay] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._here = threading.local()

    @contextmanager
    def answering(self, sock: Any) -> Iterator[None]:
        """While this thread waits for the head of an answer on `sock`, over which its body comes too."""
        self._here.sock = sock
        with self._until(2 * self._wait_ms):
            yield

    @contextmanager
    def watched(self, length: int, *, waits: int = 1) -> Iterator[None]:
        """While this thread reads a body of `length` bytes, of an answer whose store may be silent so many times."""
        with self._until(waits * self._wait_ms + length / SLOWEST_BYTES_A_MS):
            yield
        self._here.sock = None

    @contextmanager
    def _until(self, allowed_ms: float) -> Iterator[None]:
        entry = _UnderWay(getattr(self._here, "sock", None), self._clock.monotonic_ms() + allowed_ms)
        if entry.sock is None:
            yield  # The connection was closed with the head: all that comes is here.
            return
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
                # Under the lock: later the connection could be another answer's.
                for entry in self._under_way:
                    if entry.deadline_ms < now_ms:
                        entry.end()
