"""The seam to object stores: what the cold tier needs of one, and what a URL says of one.

Owns the protocol, its values and the parsing of store URLs. Must never import boto3 (a broker on a local
folder does not pay for it) and never hold or print a credential.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from tiered.errors import CorruptFile, Invalid, InvalidConfig
from tiered.file_slice import OpenFile

BLOCK_BYTES = 1 << 20
LIST_KEYS = 1000
MAX_KEY_BYTES = 900  # S3 allows 1024; the rest is room for a store's prefix.

_KEY_PART = re.compile(r"[A-Za-z0-9._=-]+\Z")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")


class Checksum(StrEnum):
    """Whether uploads carry a CRC-32C that the store must check: decided by the probe, never, or always."""

    AUTO = "auto"
    NONE = "none"
    CRC32C = "crc32c"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """A store's description of one object. `etag` is opaque: it differs when the content does."""

    size_bytes: int
    etag: str
    age_ms: float | None = field(default=None, compare=False)
    """Since the object was written, by the store's own clock; None where the store does not tell. Of `head` alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCapabilities:
    """The guarantees that a probe saw a store keep."""

    create_only: bool
    if_match: bool
    checksum_accepted: bool
    checksum_verified: bool


class ObjectFile(OpenFile):
    """An object that is a file on this machine; its `name` is its path. Raises OSError."""

    def __init__(self, path: str, opener: Callable[[str, int], int]) -> None:
        super().__init__(path, opener=opener)
        found = os.fstat(self.fileno())
        self.stamp = (found.st_ino, found.st_size, found.st_ctime_ns)
        """As it was when it was opened: another one once somebody has written to it, or put another file in its place.
        Not the time of its last write, which a copy can be given."""


class ObjectStore(Protocol):
    """Whole objects by key, in one bucket below one prefix. Every call blocks: run it on a thread.

    Keys are `/`-separated and relative to the prefix. Every call may raise `StoreUnavailable` (after the
    store's own bounded retries) and `Invalid` for an illegal key. Objects appear whole or not at all.
    """

    @property
    def url(self) -> str:
        """The store's URL in its canonical form; holds no credential."""

    @property
    def run_bytes(self) -> int:
        """What one request should ask for, to the nearest chunk below, where an object is read from end to end."""

    def put(self, key: str, data: bytes, *, create_only: bool = False, if_match: str | None = None) -> ObjectInfo:
        """Stores a small object. `create_only` raises `ObjectExists` when the key is taken; `if_match` raises
        `LostRace` when the object's etag is another one or the object is gone. Durable on return."""

    def put_segment(
        self, key: str, fd: int, log_bytes: int, tail: bytes, *, timeout_ms: float | None = None
    ) -> ObjectInfo:
        """Stores the first `log_bytes` of the open file `fd`, then `tail`, as one new object, in bounded memory.

        Raises `ObjectExists`; raises `CorruptFile` when the file is shorter, and `UploadOverdue` after `timeout_ms`: no
        request begins then, one under way is waited for. It reads `fd` no more after it has returned or raised. On
        failure nothing is left under the key, though parts may be until `abort_abandoned_uploads` comes by.
        """

    def get(self, key: str, *, max_bytes: int) -> tuple[bytes, str]:
        """The whole object and its etag. Raises `ObjectMissing`; `CorruptObject` when it exceeds `max_bytes`."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Exactly `length` (> 0) bytes from position `start`. Raises `ObjectMissing`, and `CorruptObject` when the
        object ends before."""

    def read_into(self, key: str, start: int, buffer: memoryview) -> ObjectFile | None:
        """Fills `buffer` from position `start`, and raises as `get_range` does: then anything may be in it. For many
        large ranges, one after the other: memory that was used before costs less than fresh memory.

        Answers with the object's file, where it is one.
        """

    def head(self, key: str) -> ObjectInfo | None:
        """The description of the object under `key`, or None."""

    def delete(self, key: str) -> None:
        """Afterwards there is no such object; it need not have existed."""

    def list(self, prefix: str, *, start_after: str | None = None, limit: int = 1000) -> list[tuple[str, int]]:
        """Up to `limit` pairs of key and size in bytes, keys in byte order, after `start_after` if given."""

    def probe(self) -> StoreCapabilities:
        """Writes, reads and deletes a small object and remembers what the store honours. Raises `InvalidConfig`
        when the store cannot serve as one, saying what to change."""

    def abort_abandoned_uploads(self, prefix: str, *, started_before_ms: int) -> tuple[str, ...]:
        """Frees what uploads that never finished hold, if they began before that time; answers with their names."""

    def close(self) -> None:
        """Lets connections go; calls that wait for another attempt give up."""


def listed(store: ObjectStore, prefix: str) -> Iterator[tuple[str, int]]:
    """Key and size of every object whose key begins with the prefix, in byte order; a request for each thousand."""
    after: str | None = None
    while page := store.list(prefix, start_after=after, limit=LIST_KEYS):
        yield from page
        after = page[-1][0]


def check_key(key: str) -> str:
    """`key` itself. Raises `Invalid` unless it is `[A-Za-z0-9._=-]+` parts joined by `/`, none `.` or `..`."""
    parts = key.split("/")
    if len(key) > MAX_KEY_BYTES or any(_KEY_PART.match(part) is None or part in (".", "..") for part in parts):
        raise Invalid(f"illegal object key {key!r}: use letters, digits and . _ = - between single slashes")
    return key


def read_joined(pread: Callable[[int, int], bytes], log_bytes: int, tail: bytes, start: int, length: int) -> bytes:
    """Bytes [start, start+length) of the segment file's first `log_bytes` followed by `tail`.

    `pread(length, position)` reads the file. Raises `CorruptFile` when the file ends before `log_bytes`.
    """
    pieces: list[bytes] = []
    position, end = start, min(start + length, log_bytes)
    while position < end:
        piece = pread(end - position, position)
        if not piece:
            raise CorruptFile(f"segment file ends at byte {position}, {log_bytes} were to be stored; check the disk")
        pieces.append(piece)
        position += len(piece)
    if start + length > log_bytes:
        pieces.append(tail[max(0, start - log_bytes) : start + length - log_bytes])
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAddress:
    """A folder on this machine."""

    directory: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Address:
    """A bucket and prefix behind the S3 API. Credentials are never part of it."""

    bucket: str
    prefix: str
    region: str | None
    endpoint_url: str | None
    path_style: bool
    checksum: Checksum

    @property
    def url(self) -> str:
        query: list[tuple[str, str]] = []
        if self.region is not None:
            query.append(("region", self.region))
        if self.endpoint_url is not None:
            query.append(("endpoint_url", self.endpoint_url))
        if self.path_style != (self.endpoint_url is not None):
            query.append(("path_style", "true" if self.path_style else "false"))
        if self.checksum is not Checksum.AUTO:
            query.append(("checksum", self.checksum.value))
        path = f"/{self.prefix}" if self.prefix else ""
        return f"s3://{self.bucket}{path}" + (f"?{urlencode(query, safe=':/')}" if query else "")


def parse_store_url(url: str) -> LocalAddress | S3Address:
    """The address that `url` names. Raises `InvalidConfig` that says which part is wrong; never echoes credentials.

    `file:///absolute`, `file:relative`, or `s3://bucket/prefix` with the parameters `region`, `endpoint_url`,
    `path_style` (true or false; true when there is an endpoint_url) and `checksum` (auto, none, crc32c).
    """
    split = urlsplit(url)
    if "@" in split.netloc:
        raise InvalidConfig("the store URL holds a user or password; leave credentials to AWS's usual chain")
    if split.fragment:
        raise InvalidConfig("the store URL has a '#' part; write %23 for a literal '#'")
    match split.scheme:
        case "file":
            return _parse_file(url, split.netloc, split.path, split.query)
        case "s3":
            return _parse_s3(split.netloc, split.path, split.query)
        case "":
            folder = Path(url).absolute().as_uri()
            raise InvalidConfig(f"the store {url!r} is no URL; write {folder} for that folder, or s3://bucket/prefix")
        case _:
            raise InvalidConfig(f"unknown kind of store {split.scheme!r}; use file:///path or s3://bucket/prefix")


def _parse_file(url: str, netloc: str, path: str, query: str) -> LocalAddress:
    if query:
        names = ", ".join(name for name, _ in parse_qsl(query, keep_blank_values=True))
        raise InvalidConfig(f"a file store takes no parameters; remove {names}")
    if netloc not in ("", "localhost"):
        raise InvalidConfig(f"store {url!r} names a host; write file:///absolute/path or file:relative/path")
    if not path or path == "/":
        raise InvalidConfig(f"store {url!r} names no folder; write file:///absolute/path or file:relative/path")
    return LocalAddress(directory=Path(unquote(path)))


def _parse_s3(bucket: str, path: str, query: str) -> S3Address:
    if _BUCKET.match(bucket) is None:
        raise InvalidConfig(f"{bucket!r} is no bucket name; write s3://bucket/prefix")
    prefix = path.strip("/")
    if prefix:
        try:
            check_key(prefix)
        except Invalid as error:
            raise InvalidConfig(f"illegal prefix in the store URL: {error}") from error
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in given:
            raise InvalidConfig(f"the store URL gives {name!r} twice")
        given[name] = value
    unknown = sorted(given.keys() - {"region", "endpoint_url", "path_style", "checksum"})
    if unknown:
        raise InvalidConfig(
            f"unknown parameters in the store URL: {', '.join(unknown)}; known are region, endpoint_url, path_style, "
            "checksum"
        )
    endpoint_url = _endpoint_url(given["endpoint_url"]) if "endpoint_url" in given else None
    style = given.get("path_style", "true" if endpoint_url is not None else "false")
    if style not in ("true", "false"):
        raise InvalidConfig(f"path_style={style!r} in the store URL; use true or false")
    checksum = given.get("checksum", Checksum.AUTO.value)
    if checksum not in [known.value for known in Checksum]:
        raise InvalidConfig(f"checksum={checksum!r} in the store URL; use auto, none or crc32c")
    return S3Address(
        bucket=bucket,
        prefix=prefix,
        region=given.get("region") or None,
        endpoint_url=endpoint_url,
        path_style=style == "true",
        checksum=Checksum(checksum),
    )


def _endpoint_url(url: str) -> str:
    split = urlsplit(url)
    if "@" in split.netloc:
        raise InvalidConfig("endpoint_url holds a user or password; leave credentials to AWS's usual chain")
    if split.scheme not in ("http", "https") or not split.hostname or split.query or split.fragment:
        raise InvalidConfig("endpoint_url must be http://host:port or https://host:port, without a query")
    return url.rstrip("/")
