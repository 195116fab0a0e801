"""An object store of which this process may only read: whoever tries to write meets a bug of ours.

Owns the refusal, and nothing else. Must never pass on a call that changes the store.
"""

import builtins
from typing import NoReturn

from tiered.cold.object_store import ObjectInfo, ObjectStore, StoreCapabilities


class ReadOnlyStore:
    """`store`, for reading."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def url(self) -> str:
        return self._store.url

    def get(self, key: str, *, max_bytes: int) -> tuple[bytes, str]:
        return self._store.get(key, max_bytes=max_bytes)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._store.get_range(key, start, length)

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
