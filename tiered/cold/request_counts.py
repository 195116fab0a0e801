"""How many requests went to the object store, sorted by what a provider charges for them, and how many an upload takes.

Owns the counts and the size of a part. Every attempt counts, also one that failed: that is never less than the bill
says. LIST is in S3's price list beside PUT.
"""

import threading
from collections.abc import Mapping
from enum import StrEnum

PART_BYTES = 31 << 20
"""What an upload holds in memory for each part that is on its way: 36 requests for a GiB. Below 32 MiB, because glibc
gives larger blocks back to the system whenever they are freed: reading then costs five times the CPU in page faults."""


class PriceClass(StrEnum):
    """A line of S3's price list."""

    PUT = "put"
    """PUT, POST and LIST."""
    GET = "get"
    """GET, HEAD and all others."""
    FREE = "free"
    """DELETE, and an upload that is given up."""


_PUT = frozenset({"put", "probe", "begin upload", "upload part", "complete upload", "list"})
_FREE = frozenset({"delete", "abort upload"})


def price_class(operation: str) -> PriceClass:
    """The class of a request, by the name that the client gives to what it does."""
    if operation in _PUT:
        return PriceClass.PUT
    return PriceClass.FREE if operation in _FREE else PriceClass.GET


def upload_requests(object_bytes: int, *, part_bytes: int = PART_BYTES) -> int:
    """PUT-class requests that it takes to store an object: one, or one for each part and two around them."""
    parts = -(-object_bytes // part_bytes)
    return parts + 2 if parts > 1 else 1


class RequestCounts:
    """Requests since the store was opened. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(PriceClass, 0)

    def add(self, operation: str) -> None:
        kind = price_class(operation)
        with self._lock:
            self._counts[kind] += 1

    def by_class(self) -> Mapping[PriceClass, int]:
        with self._lock:
            return dict(self._counts)
