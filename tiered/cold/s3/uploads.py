"""Uploads in parts: one new object from many reads of a file, in memory for a few parts.

Owns the threads that read and send parts, and that uploads take turns on them. Must never leave a finished part behind
an abort, nor complete an upload over an object that exists.
"""

import base64
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
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

    def upload(
        self,
        key: str,
        name: str,
        total_bytes: int,
        part_bytes: int,
        read: Callable[[int], bytes],
        *,
        checksum: bool,
        create_only: bool,
        deadline: UploadDeadline,
    ) -> ObjectInfo:
        """The new object `name` (`key` in messages). `read(start)` gives the part that begins there.

        Raises ObjectExists, StoreUnavailable, or what `read` raises; then the upload was aborted if that was possible.
        """
        upload_id = self._begin(key, name, deadline, checksum=checksum)
        try:
            starts = range(0, total_bytes, part_bytes)
            parts = self._send(key, name, upload_id, starts, read, deadline, checksum=checksum)
            return self._complete(key, name, upload_id, parts, total_bytes, deadline, create_only=create_only)
        except BaseException:
            # Past its end the upload waits no longer for a store that is away: what is left of it is swept.
            self.abort(name, upload_id, max_attempts=1 if deadline.is_over else None)
            raise

    def _begin(self, key: str, name: str, deadline: UploadDeadline, *, checksum: bool) -> str:
        algorithm: dict[str, Any] = {"ChecksumAlgorithm": "CRC32C"} if checksum else {}
        try:
            answer = self._requests.call(
                "begin upload",
                key,
                lambda: self._requests.client.create_multipart_upload(Bucket=self._bucket, Key=name, **algorithm),
                deadline=deadline,
            )
        except RequestFailedError as failed:
            raise self._requests.give_up("begin upload", key, failed) from failed
        return str(answer["UploadId"])

    def _send(
        self,
        key: str,
        name: str,
        upload_id: str,
        starts: range,
        read: Callable[[int], bytes],
        deadline: UploadDeadline,
        *,
        checksum: bool,
    ) -> Parts:
        """The finished parts in order. A part is read only when its thread begins, so memory is bounded by threads;
        an upload has no more of them waiting than threads, so that a long one does not hold up the others."""
        futures: list[Future[dict[str, Any]]] = []
        try:
            for number, start in enumerate(starts, 1):
                self._wait_until(futures, deadline, running=self._parts_in_flight - 1)
                send = partial(self._send_part, key, name, upload_id, number, read, start, deadline, checksum)
                futures.append(self._submit(send))
            self._wait_until(futures, deadline, running=0)
        finally:
            # The caller will close the file, and an abort below a running part would leave that part behind.
            # What could be cancelled will not begin.
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

    def _send_part(
        self,
        key: str,
        name: str,
        upload_id: str,
        number: int,
        read: Callable[[int], bytes],
        start: int,
        deadline: UploadDeadline,
        checksum: bool,
    ) -> dict[str, Any]:
        deadline.check()
        data = read(start)
        header = checksum_header(data) if checksum else {}
        try:
            answer = self._requests.call(
                "upload part",
                key,
                lambda: self._requests.client.upload_part(
                    Bucket=self._bucket,
                    Key=name,
                    UploadId=upload_id,
                    PartNumber=number,
                    Body=data,
                    **header,
                ),
                deadline=deadline,
            )
        except RequestFailedError as failed:
            raise self._requests.give_up("upload part", key, failed) from failed
        return {"PartNumber": number, "ETag": answer["ETag"], **header}

    def _complete(
        self,
        key: str,
        name: str,
        upload_id: str,
        parts: Parts,
        total_bytes: int,
        deadline: UploadDeadline,
        *,
        create_only: bool,
    ) -> ObjectInfo:
        condition: dict[str, Any] = {"IfNoneMatch": "*"} if create_only else {}
        try:
            answer = self._requests.call(
                "complete upload",
                key,
                lambda: self._requests.client.complete_multipart_upload(
                    Bucket=self._bucket,
                    Key=name,
                    UploadId=upload_id,
                    MultipartUpload={"Parts": parts},
                    **condition,
                ),
                deadline=deadline,
            )
        except RequestFailedError as failed:
            settled = failed.meaning in (Meaning.PRECONDITION, Meaning.NO_UPLOAD, Meaning.MISSING)
            if settled and failed.attempts > 1:
                # An attempt whose answer was lost may have completed the upload: then the object is ours.
                found = self._head(key)
                if found is not None and found.size_bytes == total_bytes:
                    return found
            if failed.meaning is Meaning.PRECONDITION:
                raise ObjectExists(f"object {key} exists already; it is left as it is") from failed
            raise self._requests.give_up("complete upload", key, failed) from failed
        return ObjectInfo(size_bytes=total_bytes, etag=answer["ETag"])

    def abort(self, name: str, upload_id: str, *, max_attempts: int | None = None) -> bool:
        """True when its parts are freed. Otherwise they wait for `abort_abandoned_uploads`, or the bucket's rule."""
        try:
            self._requests.call(
                "abort upload",
                name,
                lambda: self._requests.client.abort_multipart_upload(Bucket=self._bucket, Key=name, UploadId=upload_id),
                max_attempts=max_attempts,
            )
        except (RequestFailedError, StoreUnavailable):
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
