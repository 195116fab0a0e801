"""An object store of which this process may only read: a write is a bug of ours. A patient one is for long work that
should outlive a short outage.

Owns the refusal, and the waits between asking again, with their bound. Until the store has answered once, the patient
one asks no second time: a wrong address or credential is told at once. Must never pass on a call that changes the
store, and never wait on after `stop`.
"""

import builtins
import threading
from collections.abc import Callable
from typing import NoReturn, TypeVar

from tiered.cold.object_store import ObjectFile, ObjectInfo, ObjectStore, StoreCapabilities
from tiered.errors import ShuttingDown, StoreUnavailable
from tiered.runtime import jittered_backoff_ms

T = TypeVar("T")

FIRST_BACKOFF_MS = 2_000.0
MAX_BACKOFF_MS = 30_000.0
ATTEMPTS = 5


class ReadOnlyStore:
    """`store`, for reading."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def run_bytes(self) -> int:
        return self._store.run_bytes

    def get(self, key: str, *, max_bytes: int) -> tuple[bytes, str]:
        return self._store.get(key, max_bytes=max_bytes)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._store.get_range(key, start, length)

    def read_into(self, key: str, start: int, buffer: memoryview) -> ObjectFile | None:
        return self._store.read_into(key, start, buffer)

    def head(self, key: str) -> ObjectInfo | None:
        return self._store.head(key)

    def list(self, prefix: str, *, start_after: str | None = None, limit: int = 1000) -> builtins.list[tuple[str, int]]:
        return self._store.list(prefix, start_after=start_after, limit=limit)

    def close(self) -> None:
        self._store.close()

    # Never

    def put(self, key: str, data: bytes, *, create_only: bool = False, if_match: str | None = None) -> ObjectInfo:
        self._refuse(key, data, create_only, if_match)

    def put_segment(
        self, key: str, fd: int, log_bytes: int, tail: bytes, *, timeout_ms: float | None = None
    ) -> ObjectInfo:
        self._refuse(key, fd, log_bytes, tail, timeout_ms)

    def delete(self, key: str) -> None:
        self._refuse(key)

    def probe(self) -> StoreCapabilities:
        self._refuse()

    def abort_abandoned_uploads(self, prefix: str, *, started_before_ms: int) -> tuple[str, ...]:
        self._refuse(prefix, started_before_ms)

    def _refuse(self, *_: object) -> NoReturn:
        raise AssertionError("this store is opened for reading")


class PatientStore(ReadOnlyStore):
    """`store`, for reading. Each call that ends in StoreUnavailable, after the store's own retries, is made up to
    `attempts` times with jittered pauses. After `stop` calls raise ShuttingDown instead of waiting or beginning."""

    def __init__(
        self, store: ObjectStore, *, attempts: int = ATTEMPTS, first_backoff_ms: float = FIRST_BACKOFF_MS
    ) -> None:
        super().__init__(store)
        self._attempts = attempts
        self._first_backoff_ms = first_backoff_ms
        self._stopping = threading.Event()
        self._has_answered = False

    def stop(self) -> None:
        self._stopping.set()

    def get(self, key: str, *, max_bytes: int) -> tuple[bytes, str]:
        return self._patiently(lambda: self._store.get(key, max_bytes=max_bytes))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._patiently(lambda: self._store.get_range(key, start, length))

    def read_into(self, key: str, start: int, buffer: memoryview) -> ObjectFile | None:
        return self._patiently(lambda: self._store.read_into(key, start, buffer))

    def head(self, key: str) -> ObjectInfo | None:
        return self._patiently(lambda: self._store.head(key))

    def list(self, prefix: str, *, start_after: str | None = None, limit: int = 1000) -> builtins.list[tuple[str, int]]:
        return self._patiently(lambda: self._store.list(prefix, start_after=start_after, limit=limit))

    def close(self) -> None:
        self.stop()
        super().close()

    def _patiently(self, call: Callable[[], T]) -> T:
        for attempt in range(self._attempts):
            if self._stopping.is_set():
                break
            try:
                answer = call()
            except StoreUnavailable:
                if attempt == self._attempts - 1 or not self._has_answered:
                    raise
            else:
                self._has_answered = True
                return answer
            delay_ms = jittered_backoff_ms(attempt, first_ms=self._first_backoff_ms, max_ms=MAX_BACKOFF_MS)
            self._stopping.wait(delay_ms / 1000.0)
        raise ShuttingDown("stopped before the store had answered; run it again to go on")
