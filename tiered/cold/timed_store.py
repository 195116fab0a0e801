"""An object store that measures another one: how long each operation takes, and which fail.

Owns the numbers. Must never change what the store does or raises. An answer like "there is no such object" or "somebody
else was first" is an answer: a call fails only when the store gives none.
"""

import builtins
from collections.abc import Callable, Mapping
from typing import TypeVar

from tiered.cold.object_store import ObjectFile, ObjectInfo, ObjectStore, StoreCapabilities
from tiered.cold.request_counts import PriceClass, RequestCounts
from tiered.errors import StoreTrouble, StoreUnavailable
from tiered.metrics import CallTimes
from tiered.runtime import Clock

T = TypeVar("T")


class TimedStore:
    """`store`, measured. Its bounded retries are part of an operation's time."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.times = CallTimes()
        self.trouble: StoreTrouble | None = None
        """Why the newest operation failed; None where it got an answer."""
        self.answered_ms = float("-inf")
        """When the store last answered, by the monotonic clock; a request for fewer requests is an answer."""

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def run_bytes(self) -> int:
        return self._store.run_bytes

    @property
    def retries(self) -> int:
        """Requests that had to be repeated; 0 for a store that repeats none."""
        return int(getattr(getattr(self._store, "state", None), "retries", 0))

    @property
    def slow_downs(self) -> int:
        """Requests that the store asked to slow down for."""
        return int(getattr(getattr(self._store, "state", None), "slow_downs", 0))

    @property
    def timeouts(self) -> int:
        """Requests that the store did not answer in time."""
        return int(getattr(getattr(self._store, "state", None), "timeouts", 0))

    @property
    def allowed_requests(self) -> int:
        """Requests that may run at once now; 0 for a store without such a bound."""
        return int(getattr(self._store, "allowed_requests", 0))

    @property
    def requests(self) -> Mapping[PriceClass, int]:
        """Requests made, by what a provider charges for them; none where nobody charges anything."""
        counts = getattr(getattr(self._store, "state", None), "requests", None)
        return counts.by_class() if isinstance(counts, RequestCounts) else dict.fromkeys(PriceClass, 0)

    def put(self, key: str, data: bytes, *, create_only: bool = False, if_match: str | None = None) -> ObjectInfo:
        return self._timed("put", lambda: self._store.put(key, data, create_only=create_only, if_match=if_match))

    def put_segment(
        self, key: str, fd: int, log_bytes: int, tail: bytes, *, timeout_ms: float | None = None
    ) -> ObjectInfo:
        return self._timed(
            "put_segment", lambda: self._store.put_segment(key, fd, log_bytes, tail, timeout_ms=timeout_ms)
        )

    def get(self, key: str, *, max_bytes: int) -> tuple[bytes, str]:
        return self._timed("get", lambda: self._store.get(key, max_bytes=max_bytes))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._timed("get_range", lambda: self._store.get_range(key, start, length))

    def read_into(self, key: str, start: int, buffer: memoryview) -> ObjectFile | None:
        return self._timed("get_range", lambda: self._store.read_into(key, start, buffer))

    def head(self, key: str) -> ObjectInfo | None:
        return self._timed("head", lambda: self._store.head(key))

    def look(self, key: str) -> None:
        """Returns when the store answers whether there is an object. The answer says nothing of writes: why one failed
        stays known. Raises as `head`."""
        trouble = self.trouble
        self.head(key)
        self.trouble = trouble

    def delete(self, key: str) -> None:
        self._timed("delete", lambda: self._store.delete(key))

    def list(self, prefix: str, *, start_after: str | None = None, limit: int = 1000) -> builtins.list[tuple[str, int]]:
        return self._timed("list", lambda: self._store.list(prefix, start_after=start_after, limit=limit))

    def probe(self) -> StoreCapabilities:
        return self._timed("probe", self._store.probe)

    def abort_abandoned_uploads(self, prefix: str, *, started_before_ms: int) -> tuple[str, ...]:
        return self._timed(
            "abort_abandoned_uploads",
            lambda: self._store.abort_abandoned_uploads(prefix, started_before_ms=started_before_ms),
        )

    def close(self) -> None:
        self._store.close()

    def _timed(self, operation: str, call: Callable[[], T]) -> T:
        started_ms, trouble = self._clock.monotonic_ms(), None
        try:
            return call()
        except StoreUnavailable as error:
            # One object may be locked: that is an answer.
            trouble = None if operation == "delete" and error.may_be_of_one_object else error.trouble
            raise
        except OSError:
            trouble = StoreTrouble.AWAY
            raise
        finally:
            self.trouble = trouble
            if trouble in (None, StoreTrouble.SLOW):
                self.answered_ms = self._clock.monotonic_ms()
            self.times.observe(operation, self._clock.monotonic_ms() - started_ms, failed=trouble is not None)
