"""An object store in memory that says 503, loses answers and is cut off.

Owns the objects. Objects appear whole or not at all, and strongly consistent, as in S3. Every broker process sees
it through a `ProcessStore`. Calls come inline (see `loop`): delays are made there.
"""

import builtins
import os
import zlib
from collections.abc import Callable
from random import Random
from typing import TypeVar

from tests.simulation.loop import Process
from tests.simulation.network import STORE, Network
from tiered.cold.object_store import ObjectInfo, StoreCapabilities, check_key
from tiered.errors import (
    CorruptFile,
    CorruptObject,
    LostRace,
    ObjectExists,
    ObjectMissing,
    StoreUnavailable,
    UploadOverdue,
)

T = TypeVar("T")


class Bucket:
    """All objects by key."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.refuses = 0.0
        """How often a request gets 503."""
        self.loses_answers = 0.0


class ProcessStore:
    """A `tiered.cold.object_store.ObjectStore`: the bucket as one process on one machine sees it."""

    def __init__(self, bucket: Bucket, network: Network, machine: str, process: Process, rng: Random) -> None:
        self._bucket = bucket
        self._network = network
        self._machine = machine
        self._process = process
        self._rng = rng

    @property
    def url(self) -> str:
        return "s3://simulated"

    @property
    def run_bytes(self) -> int:
        return 8 << 20

    def put(self, key: str, data: bytes, *, create_only: bool = False, if_match: str | None = None) -> ObjectInfo:
        def put() -> ObjectInfo:
            before = self._bucket.objects.get(check_key(key))
            if create_only and before is not None:
                raise ObjectExists(f"object {key} is there already")
            if if_match is not None and (before is None or _etag(before) != if_match):
                raise LostRace(f"object {key} was changed by somebody else; read it again before writing")
            self._bucket.objects[key] = bytes(data)
            return ObjectInfo(size_bytes=len(data), etag=_etag(data))

        return self._ask(put)

    def put_segment(
        self, key: str, fd: int, log_bytes: int, tail: bytes, *, timeout_ms: float | None = None
    ) -> ObjectInfo:
        def put() -> ObjectInfo:
            if timeout_ms is not None and timeout_ms <= 0:
                raise UploadOverdue(f"{key} was not stored by its deadline")
            if check_key(key) in self._bucket.objects:
                raise ObjectExists(f"object {key} is there already")
            data = os.pread(fd, log_bytes, 0)
            if len(data) != log_bytes:
                raise CorruptFile(f"segment file ends at byte {len(data)}, {log_bytes} were to be stored")
            self._bucket.objects[key] = data + tail
            return ObjectInfo(size_bytes=log_bytes + len(tail), etag=_etag(data + tail))

        return self._ask(put)

    def get(self, key: str, *, max_bytes: int) -> tuple[bytes, str]:
        def get() -> tuple[bytes, str]:
            data = self._find(key)
            if len(data) > max_bytes:
                raise CorruptObject(f"object {key} has {len(data)} bytes, more than the {max_bytes} it may have")
            return data, _etag(data)

        return self._ask(get)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        def get() -> bytes:
            data = self._find(key)[start : start + length]
            if len(data) != length:
                raise CorruptObject(f"object {key} ends before {start + length}: truncated")
            return data

        return self._ask(get)

    def read_into(self, key: str, start: int, buffer: memoryview) -> None:
        buffer[:] = self.get_range(key, start, len(buffer))

    def head(self, key: str) -> ObjectInfo | None:
        def head() -> ObjectInfo | None:
            data = self._bucket.objects.get(check_key(key))
            return None if data is None else ObjectInfo(size_bytes=len(data), etag=_etag(data))

        return self._ask(head)

    def delete(self, key: str) -> None:
        self._ask(lambda: self._bucket.objects.pop(check_key(key), None))

    def list(self, prefix: str, *, start_after: str | None = None, limit: int = 1000) -> builtins.list[tuple[str, int]]:
        def list_() -> builtins.list[tuple[str, int]]:
            keys = sorted(key for key in self._bucket.objects if key.startswith(prefix) and key > (start_after or ""))
            return [(key, len(self._bucket.objects[key])) for key in keys[:limit]]

        return self._ask(list_)

    def probe(self) -> StoreCapabilities:
        return StoreCapabilities(create_only=True, if_match=True, checksum_accepted=True, checksum_verified=True)

    def abort_abandoned_uploads(self, prefix: str, *, started_before_ms: int) -> tuple[str, ...]:
        return self._ask(tuple)

    def close(self) -> None:
        pass

    def _find(self, key: str) -> bytes:
        data = self._bucket.objects.get(check_key(key))
        if data is None:
            raise ObjectMissing(f"there is no object {key}")
        return data

    def _ask(self, request: Callable[[], T]) -> T:
        bucket, network, machine = self._bucket, self._network, self._machine
        if self._process.is_dead or not network.reaches(machine, STORE) or self._rng.random() < bucket.refuses:
            raise StoreUnavailable("503 Slow Down")
        answer = request()
        if not network.reaches(STORE, machine) or self._rng.random() < bucket.loses_answers:
            raise StoreUnavailable("the answer was lost")
        return answer


def _etag(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}{len(data):x}"
