"""Uploads in parts: one new object from many reads of a file, in memory for a few parts.

Owns the threads that read and send parts, and that uploads take turns on them. Must never leave a finished part behind
an abort, nor complete an upload over an object that exists.
"""

import base64
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import fastcrc

from tiered.cold.object_store import ObjectInfo
from tiered.cold.s3.failure import Meaning
from tiered.cold.s3.requests import RequestFailedError, S3Requests
from tiered.cold.upload_deadline import UploadDeadline
from tiered.errors import ObjectExists, StoreUnavailable

T = TypeVar("T")
Parts: TypeAlias = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A new object `name` (`key` in messages). `read(start)` gives the part that begins there."""

    key: str
    name: str
    total_bytes: int
    part_bytes: int
    read: Callable[[int], bytes]
    checksum: bool
    create_only: bool
    deadline: UploadDeadline


class S3Uploads:
    """Uploads into one bucket; all of them together hold at most `parts_in_flight` parts in memory."""

    def __init__(
        self,
        requests: S3Requests,
        bucket: str,
        *,
        parts_in_flight: int,
        head: Callable[[str], ObjectInfo | None],
    ) -> None:
        self._requests = requests
        self._bucket = bucket
        self._parts_in_flight = parts_in_flight
        self._head = head
        self._making = threading.Lock()
        self._made_threads: ThreadPoolExecutor | None = None
        self._is_closed = False

    def alone(self, send: Callable[[], T], deadline: UploadDeadline) -> T:
        """What `send` gives, which reads and sends the only part of an object: it waits for its turn as others do, but
        not beyond the deadline."""
        future = self._submit(send)
        wait([future], timeout=deadline.remaining_s)
        if future.cancel():
            raise deadline.missed()
        return future.result()

    def upload(self, upload: Upload) -> ObjectInfo:
        """Raises ObjectExists, StoreUnavailable, or what `read` raises; then the upload was aborted if that was
        possible."""
        upload_id = self._begin(upload)
        try:
            return self._complete(upload, upload_id, self._send(upload, upload_id))
        except BaseException:
            # Past its end the upload waits no longer for a store that is away: what is left of it is swept.
            self.abort(upload.name, upload_id, max_attempts=1 if upload.deadline.is_over else None)
            raise

    def _begin(self, upload: Upload) -> str:
        algorithm: dict[str, Any] = {"ChecksumAlgorithm": "CRC32C"} if upload.checksum else {}
        answer = self._requests.ask(
            "begin upload",
            upload.key,
            lambda: self._requests.client.create_multipart_upload(Bucket=self._bucket, Key=upload.name, **algorithm),
            deadline=upload.deadline,
        )
        return str(answer["UploadId"])

    def _send(self, upload: Upload, upload_id: str) -> Parts:
        """The finished parts in order. A part is read only when its thread begins, so memory is bounded by threads;
        an upload has no more of them waiting than threads, so that a long one does not hold up the others."""
        futures: list[Future[dict[str, Any]]] = []
        try:
            for number, start in enumerate(range(0, upload.total_bytes, upload.part_bytes), 1):
                self._wait_until(futures, upload.deadline, running=self._parts_in_flight - 1)
                futures.append(self._submit(partial(self._send_part, upload, upload_id, number, start)))
            self._wait_until(futures, upload.deadline, running=0)
        finally:
            # The caller will close the file, and an abort below a running part would leave that part behind. Cancelled
            # parts will not begin.
            wait([future for future in futures if not future.cancel()])
        return [future.result() for future in futures]

    def _wait_until(self, futures: Sequence[Future[dict[str, Any]]], deadline: UploadDeadline, *, running: int) -> None:
        """Returns once at most so many of them run or wait; raises what one has failed with, or UploadOverdue."""
        while True:
            for future in futures:
                if future.done():
                    future.result()
            unfinished = [future for future in futures if not future.done()]
            if len(unfinished) <= running:
                return
            deadline.check()
            wait(unfinished, timeout=deadline.remaining_s, return_when=FIRST_COMPLETED)

    def _send_part(self, upload: Upload, upload_id: str, number: int, start: int) -> dict[str, Any]:
        upload.deadline.check()
        data = upload.read(start)
        header = checksum_header(data) if upload.checksum else {}
        which = {"Bucket": self._bucket, "Key": upload.name, "UploadId": upload_id, "PartNumber": number}
        answer = self._requests.ask(
            "upload part",
            upload.key,
            lambda: self._requests.client.upload_part(**which, Body=data, **header),
            deadline=upload.deadline,
        )
        return {"PartNumber": number, "ETag": answer["ETag"], **header}

    def _complete(self, upload: Upload, upload_id: str, parts: Parts) -> ObjectInfo:
        key = upload.key
        condition: dict[str, Any] = {"IfNoneMatch": "*"} if upload.create_only else {}
        which = {"Bucket": self._bucket, "Key": upload.name, "UploadId": upload_id}
        try:
            answer = self._requests.call(
                "complete upload",
                key,
                lambda: self._requests.client.complete_multipart_upload(
                    **which, MultipartUpload={"Parts": parts}, **condition
                ),
                deadline=upload.deadline,
            )
        except RequestFailedError as failed:
            settled = failed.meaning in (Meaning.PRECONDITION, Meaning.NO_UPLOAD, Meaning.MISSING)
            if settled and failed.attempts > 1:
                # An attempt whose answer was lost may have completed the upload: then the object is ours.
                found = self._head(key)
                if found is not None and found.size_bytes == upload.total_bytes:
                    return found
            if failed.meaning is Meaning.PRECONDITION:
                raise ObjectExists(f"object {key} exists already; it is left as it is") from failed
            raise self._requests.give_up("complete upload", key, failed) from failed
        return ObjectInfo(size_bytes=upload.total_bytes, etag=answer["ETag"])

    def abort(self, name: str, upload_id: str, *, max_attempts: int | None = None) -> bool:
        """True when its parts are freed. Otherwise they wait for `abort_abandoned_uploads`, or the bucket's rule."""
        try:
            self._requests.call(
                "abort upload",
                name,
                lambda: self._requests.client.abort_multipart_upload(Bucket=self._bucket, Key=name, UploadId=upload_id),
                max_attempts=max_attempts,
            )
        except RequestFailedError as failed:
            return failed.meaning is Meaning.NO_UPLOAD
        except StoreUnavailable:
            return False
        return True

    def close(self) -> None:
        """Waits for parts that are being sent. No request begins any more by then, so that those behind them fail."""
        with self._making:
            self._is_closed, threads = True, self._made_threads
        if threads is not None:
            # Not cancelled: nobody would tell those who wait for them.
            threads.shutdown(wait=True)

    def _submit(self, send: Callable[[], T]) -> Future[T]:
        with self._making:
            if self._is_closed:
                raise StoreUnavailable("the store is closed; try again after the restart")
            if self._made_threads is None:
                self._made_threads = ThreadPoolExecutor(self._parts_in_flight, thread_name_prefix="upload-part")
            return self._made_threads.submit(send)


def checksum_header(data: bytes) -> Mapping[str, str]:
    """The argument of a put that makes the store check the bytes it received."""
    return {"ChecksumCRC32C": base64.b64encode(fastcrc.crc32.iscsi(data).to_bytes(4, "big")).decode()}
