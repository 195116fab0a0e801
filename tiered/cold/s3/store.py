"""Objects in a bucket behind the S3 API, through boto3.

Owns the requests: their bounds, retries, conditions and checks (ADR 0003). boto3's own retries and transfer
manager stay off, so that every attempt is counted here and memory is bounded by parts in flight.
Must never print a credential, take a 200 for a range, or overwrite an object that was to be new.
"""

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeVar

from tiered.cold.object_store import Checksum, ObjectInfo, S3Address, StoreCapabilities, check_key, read_joined
from tiered.cold.request_counts import PART_BYTES
from tiered.cold.s3.body_deadlines import BodyDeadlines
from tiered.cold.s3.failure import Meaning
from tiered.cold.s3.requests import (
    RequestFailedError,
    S3Requests,
    S3State,
    WrongAnswerError,
    check_listed,
    check_range,
    check_uploads,
)
from tiered.cold.s3.uploads import S3Uploads, Upload, checksum_header
from tiered.cold.upload_deadline import UploadDeadline
from tiered.errors import (
    CorruptObject,
    InvalidConfig,
    LostRace,
    ObjectExists,
    ObjectMissing,
    StoreRefused,
    StoreTrouble,
    StoreUnavailable,
)
from tiered.runtime import SystemClock, new_uuid

T = TypeVar("T")

_DIGEST_REFUSED = frozenset({"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch"})
_NO_SUCH_ETAG = '"00000000000000000000000000000000"'
_UPLOADS_PER_PAGE = 1000
_MOST_UPLOAD_PAGES = 100
"""A store that always has one more page is not followed for ever: what is left is looked at the next time."""
_MOST_ABORTS = 10_000
_MOST_REFUSED_IN_A_ROW = 10
"""One upload that may not be ended holds up no other; after so many it is not about single ones."""
_PIECE_BYTES = 256 << 10
_RUN_BYTES = 8 << 20
"""Each request costs a round trip and money."""


class S3Store:
    """An `ObjectStore` in a bucket. Threads share it: at most `max_requests` requests run at once, fewer after "slow
    down" or silence. Each request is tried `max_attempts` times, then `StoreUnavailable`. All segments on their way
    together hold at most `parts_in_flight` parts of `part_bytes` in memory. With `probe_first` the first put probes the
    store, unless somebody did before; readers never do."""

    def __init__(
        self,
        address: S3Address,
        *,
        parts_in_flight: int = 2,
        part_bytes: int = PART_BYTES,
        probe_first: bool = True,
        max_requests: int = 16,
        max_attempts: int = 6,
        connect_timeout_ms: float = 5_000,
        read_timeout_ms: float = 30_000,
        first_backoff_ms: float = 50,
        max_backoff_ms: float = 5_000,
    ) -> None:
        self._address = address
        self._part_bytes = part_bytes
        self._deadlines = BodyDeadlines(SystemClock(), wait_ms=read_timeout_ms)
        self._requests = S3Requests(
            address,
            self._deadlines,
            max_requests=max_requests,
            max_attempts=max_attempts,
            connect_timeout_ms=connect_timeout_ms,
            read_timeout_ms=read_timeout_ms,
            first_backoff_ms=first_backoff_ms,
            max_backoff_ms=max_backoff_ms,
        )
        self._uploads = S3Uploads(self._requests, address.bucket, parts_in_flight=parts_in_flight, head=self.head)
        self._probing = threading.Lock()
        self._is_probed = not probe_first
        # Until the probe has looked, we trust the store to be like AWS's.
        self._capabilities = StoreCapabilities(
            create_only=True,
            if_match=True,
            checksum_accepted=address.checksum is not Checksum.NONE,
            checksum_verified=False,
        )

    @property
    def url(self) -> str:
        return self._address.url

    @property
    def run_bytes(self) -> int:
        return _RUN_BYTES

    @property
    def allowed_requests(self) -> int:
        """Requests that may run at once now: lower than configured after the store asked for fewer."""
        return self._requests.allowed_requests

    @property
    def state(self) -> S3State:
        """How often requests were repeated."""
        return self._requests.state

    # Writing

    def put(self, key: str, data: bytes, *, create_only: bool = False, if_match: str | None = None) -> ObjectInfo:
        """See `ObjectStore.put`. After `StoreUnavailable` the object may be there nevertheless."""
        return self._put(key, data, create_only=create_only, if_match=if_match, deadline=None)

    def _put(
        self, key: str, data: bytes, *, create_only: bool, if_match: str | None, deadline: UploadDeadline | None
    ) -> ObjectInfo:
        assert not (create_only and if_match is not None), "a new object has no etag to match"
        self._precheck(key, create_only=create_only, if_match=if_match)
        extra: dict[str, Any] = dict(self._checksum(data))
        if create_only and self._capabilities.create_only:
            extra["IfNoneMatch"] = "*"
        if if_match is not None and self._capabilities.if_match:
            extra["IfMatch"] = if_match
        try:
            answer = self._requests.call(
                "put",
                key,
                lambda: self._requests.client.put_object(Bucket=self._bucket, Key=self._name(key), Body=data, **extra),
                deadline=deadline,
            )
        except RequestFailedError as failed:
            return self._settle_put(key, data, if_match, failed)
        return ObjectInfo(size_bytes=len(data), etag=answer["ETag"])

    def put_segment(
        self, key: str, fd: int, log_bytes: int, tail: bytes, *, timeout_ms: float | None = None
    ) -> ObjectInfo:
        """See `ObjectStore.put_segment`. After `StoreUnavailable` the object may be there nevertheless: its key
        is its own, so the planned row that names it decides."""
        total_bytes = log_bytes + len(tail)
        part_bytes = self._part_bytes
        deadline = UploadDeadline(key, timeout_ms, SystemClock())

        def read(start: int) -> bytes:
            length = min(part_bytes, total_bytes - start)
            return read_joined(lambda n, position: os.pread(fd, n, position), log_bytes, tail, start, length)

        if total_bytes <= part_bytes:
            return self._uploads.alone(
                lambda: self._put(key, read(0), create_only=True, if_match=None, deadline=deadline), deadline
            )
        self._precheck(key, create_only=True, if_match=None)
        upload = Upload(
            key=key,
            name=self._name(key),
            total_bytes=total_bytes,
            part_bytes=part_bytes,
            read=read,
            checksum=self._capabilities.checksum_accepted,
            create_only=self._capabilities.create_only,
            deadline=deadline,
        )
        return self._uploads.upload(upload)

    def delete(self, key: str) -> None:
        name = self._name(check_key(key))
        try:
            self._requests.call(
                "delete", key, lambda: self._requests.client.delete_object(Bucket=self._bucket, Key=name)
            )
        except RequestFailedError as failed:
            if failed.meaning is not Meaning.MISSING:
                raise self._requests.give_up("delete", key, failed) from failed

    # Reading

    def get(self, key: str, *, max_bytes: int) -> tuple[bytes, str]:
        name = self._name(check_key(key))

        def read() -> tuple[bytes, str]:
            answer = self._requests.client.get_object(Bucket=self._bucket, Key=name)
            length: int = answer["ContentLength"]
            with closing(answer["Body"]) as body:
                if length > max_bytes:
                    raise CorruptObject(f"object {key} has {length} bytes, more than the {max_bytes} it may have")
                return self._read_body(body, length), answer["ETag"]

        return self._requests.ask("get", key, read)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._ranged(key, start, length, lambda body: self._read_body(body, length))

    def read_into(self, key: str, start: int, buffer: memoryview) -> None:
        """The object is no file here."""
        self._ranged(key, start, len(buffer), lambda body: self._read_body_into(body, buffer))

    def _ranged(self, key: str, start: int, length: int, read_body: Callable[[Any], T]) -> T:
        assert start >= 0
        assert length > 0
        name = self._name(check_key(key))

        def read() -> T:
            wanted = f"bytes={start}-{start + length - 1}"
            answer = self._requests.client.get_object(Bucket=self._bucket, Key=name, Range=wanted)
            with closing(answer["Body"]) as body:
                check_range(answer, key, start, length)
                return read_body(body)

        return self._requests.ask("get", key, read)

    def head(self, key: str) -> ObjectInfo | None:
        name = self._name(check_key(key))

        def look() -> ObjectInfo:
            answer = self._requests.client.head_object(Bucket=self._bucket, Key=name)
            if (size_bytes := answer["ContentLength"]) < 0:
                raise WrongAnswerError(f"a length of {size_bytes}")
            return ObjectInfo(size_bytes=size_bytes, etag=answer["ETag"], age_ms=_age_ms(answer))

        try:
            return self._requests.call("head", key, look)
        except RequestFailedError as failed:
            if failed.meaning is Meaning.MISSING:
                self._require_bucket(key)
                return None
            raise self._requests.give_up("head", key, failed) from failed

    def list(self, prefix: str, *, start_after: str | None = None, limit: int = 1000) -> list[tuple[str, int]]:
        cut = len(self._name(""))
        found: list[tuple[str, int]] = []
        after = self._name(start_after) if start_after is not None else ""
        while len(found) < limit:
            most = min(1000, limit - len(found))
            wanted: dict[str, Any] = {"Prefix": self._name(prefix), "MaxKeys": most}
            if after:
                wanted["StartAfter"] = after
            check = partial(check_listed, prefix=wanted["Prefix"], after=after, most=most)
            answer = self._page("list_objects_v2", prefix, wanted, check)
            page = answer.get("Contents", [])
            found.extend((entry["Key"][cut:], entry["Size"]) for entry in page)
            if not answer.get("IsTruncated") or not page:
                break
            after = page[-1]["Key"]
        return found

    # The store itself

    def probe(self) -> StoreCapabilities:
        key = f"probes/{new_uuid()}"
        data = b"tiered probe"
        try:
            accepted = self._probe_checksum(key, data)
            create_only = self._probe_put(key, data, IfNoneMatch="*") is Meaning.PRECONDITION
            if_match = self._probe_put(key, data, IfMatch=_NO_SUCH_ETAG) is Meaning.PRECONDITION
            whole, etag = self.get(key, max_bytes=len(data))
            if whole != data or self.get_range(key, 1, 4) != data[1:5]:
                raise InvalidConfig(f"the store {self.url} does not give back what was written; use another one")
            # Refusing the wrong etag is half of it: some stores refuse the right one too.
            if_match = if_match and self._probe_put(key, data, IfMatch=etag) is None
            verified = accepted and self._probe_put(key, data, ChecksumCRC32C="AAAAAA==") is not None
            self._capabilities = StoreCapabilities(
                create_only=create_only, if_match=if_match, checksum_accepted=accepted, checksum_verified=verified
            )
            self._is_probed = True
        finally:
            # A writer need not be allowed to delete: then a few bytes stay, which the bucket's rules may expire.
            with suppress(StoreUnavailable):
                self.delete(key)
        return self._capabilities

    def abort_abandoned_uploads(self, prefix: str, *, started_before_ms: int) -> tuple[str, ...]:
        cut = len(self._name(""))
        aborted: list[str] = []
        refused_in_a_row = 0
        marker: dict[str, Any] = {}
        for _ in range(_MOST_UPLOAD_PAGES):
            wanted = {"Prefix": self._name(prefix), "MaxUploads": _UPLOADS_PER_PAGE, **marker}
            check = partial(check_uploads, prefix=wanted["Prefix"])
            answer = self._page("list_multipart_uploads", prefix, wanted, check)
            for upload in answer.get("Uploads", []):
                if upload["Initiated"].timestamp() * 1000 >= started_before_ms:
                    continue
                if len(aborted) == _MOST_ABORTS or refused_in_a_row == _MOST_REFUSED_IN_A_ROW:
                    return tuple(aborted)
                if self._uploads.abort(upload["Key"], upload["UploadId"], max_attempts=2):
                    aborted.append(upload["Key"][cut:])
                    refused_in_a_row = 0
                else:
                    refused_in_a_row += 1
            if not answer.get("IsTruncated") or not answer.get("NextKeyMarker"):
                break
            marker = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer.get("NextUploadIdMarker", "")}
        return tuple(aborted)

    def close(self) -> None:
        self._requests.close()
        self._deadlines.close()
        self._uploads.close()

    def _read_body(self, body: Any, length: int) -> bytes:
        """The body, which has so many bytes: no more than one after them is read, whatever the store sends."""
        if length < 0:
            raise WrongAnswerError(f"a length of {length}")
        with self._deadlines.watched(length):
            data: bytes = body.read(length + 1)
        if len(data) != length:
            raise WrongAnswerError(f"{'more' if len(data) > length else len(data)} bytes where {length} belong")
        return data

    def _read_body_into(self, body: Any, buffer: memoryview) -> None:
        """The same, into `buffer`, which is as long as the body. In pieces, because each is copied on its way, from
        memory that the one before it has used."""
        done = 0
        with self._deadlines.watched(len(buffer)):
            while done < len(buffer) and (count := body.readinto(buffer[done : done + _PIECE_BYTES])):
                done += count
            more = body.read(1)
        if done != len(buffer) or more:
            raise WrongAnswerError(f"{'more' if more else done} bytes where {len(buffer)} belong")

    # Conditions

    def _page(self, method: str, prefix: str, wanted: dict[str, Any], check: Callable[[Any], None]) -> Any:
        def ask() -> Any:
            answer = getattr(self._requests.client, method)(Bucket=self._bucket, **wanted)
            check(answer)
            return answer

        return self._requests.ask("list", prefix, ask)

    def _precheck(self, key: str, *, create_only: bool, if_match: str | None) -> None:
        """The conditions of a put, looked up before it, on a store that was found not to check them itself.

        Somebody may come in between. Keys of segments are their own (a fresh uuid), and only the partition's leader
        writes its checkpoints, so on such stores this is the best that can be had.
        """
        check_key(key)
        with self._probing:
            if not self._is_probed:
                self.probe()
        if create_only and not self._capabilities.create_only and self.head(key) is not None:
            raise ObjectExists(f"object {key} exists already; it is left as it is")
        if if_match is not None and not self._capabilities.if_match:
            found = self.head(key)
            if found is None or found.etag != if_match:
                raise LostRace(f"object {key} was changed by somebody else; read it again before writing")

    def _settle_put(self, key: str, data: bytes, if_match: str | None, failed: RequestFailedError) -> ObjectInfo:
        """The outcome of a put that ended in an error: an earlier attempt may have stored the object unheard."""
        refused = failed.meaning is Meaning.PRECONDITION
        if refused and failed.attempts > 1:
            try:
                found, etag = self.get(key, max_bytes=len(data))
            except (ObjectMissing, CorruptObject):
                found, etag = b"", ""
            if etag and found == data:
                return ObjectInfo(size_bytes=len(data), etag=etag)
        if if_match is not None and (refused or failed.meaning is Meaning.MISSING):
            raise LostRace(f"object {key} was changed by somebody else; read it again before writing") from failed
        if refused:
            raise ObjectExists(f"object {key} exists already; it is left as it is") from failed
        raise self._requests.give_up("put", key, failed) from failed

    def _require_bucket(self, key: str) -> None:
        """A HEAD's 404 does not say what is missing; a bucket that is gone must not look like a lost object."""
        try:
            self._requests.call("head bucket", key, lambda: self._requests.client.head_bucket(Bucket=self._bucket))
        except RequestFailedError as failed:
            if failed.meaning is Meaning.MISSING:
                raise StoreRefused(
                    f"there is no bucket {self._bucket!r} behind {self.url}; create it", StoreTrouble.NO_BUCKET
                ) from failed
            # Not allowed to look at the bucket itself: then the object's own answer has to do.

    def _probe_checksum(self, key: str, data: bytes) -> bool:
        """Stores the probe object; True when the store takes a CRC-32C header (and the settings want one)."""
        wanted = self._address.checksum is not Checksum.NONE
        if wanted and self._probe_put(key, data, **checksum_header(data)) is None:
            return True
        if self._address.checksum is Checksum.CRC32C:
            raise InvalidConfig(f"the store {self.url} refuses CRC-32C headers; set checksum=none or checksum=auto")
        if self._probe_put(key, data) is not None:
            raise InvalidConfig(f"the store {self.url} refuses a plain put; is it an S3 API?")
        return False

    def _probe_put(self, key: str, data: bytes, **extra: str) -> Meaning | None:
        """None when the store took the put, otherwise why it refused the condition or header."""
        name = self._name(key)
        arguments: dict[str, Any] = dict(extra)
        try:
            self._requests.call(
                "probe",
                key,
                lambda: self._requests.client.put_object(Bucket=self._bucket, Key=name, Body=data, **arguments),
                final_codes=_DIGEST_REFUSED,
            )
        except RequestFailedError as failed:
            if failed.meaning is Meaning.REFUSED:
                raise self._requests.give_up("put", key, failed) from failed
            return failed.meaning
        return None

    def _checksum(self, data: bytes) -> Mapping[str, str]:
        return checksum_header(data) if self._capabilities.checksum_accepted else {}

    @property
    def _bucket(self) -> str:
        return self._address.bucket

    def _name(self, key: str) -> str:
        return f"{self._address.prefix}/{key}" if self._address.prefix else key


def _age_ms(answer: Any) -> float | None:
    """The age of the object that `answer` is about. Both times are the store's, so no clock of ours counts."""
    try:
        answered_at = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        age: timedelta = answered_at - answer["LastModified"]
    except (KeyError, TypeError, ValueError):
        return None
    return age.total_seconds() * 1000.0
