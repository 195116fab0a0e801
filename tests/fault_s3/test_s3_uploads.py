"""Uploads in parts: faults at every step, what is left of one that failed, checksums, and memory."""

import os
import threading

import pytest

from tests.fault_s3.impatient import LOG, PART_BYTES, TAIL, opened
from tests.fault_s3.moto_server import aws_environment
from tiered.cold.object_store import Checksum
from tiered.cold.s3.store import S3Store
from tiered.errors import StoreUnavailable
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind


@pytest.mark.parametrize("kind", [S3FaultKind.SLOW_DOWN, S3FaultKind.BAD_DIGEST, S3FaultKind.RESET_AFTER])
@pytest.mark.parametrize(
    ("method", "query"),
    [("POST", "uploads"), ("PUT", "partNumber=2"), ("POST", "uploadId")],
    ids=["begin", "part", "end"],
)
def test_upload_gets_through_faults_at_every_step(
    store: S3Store, truth: S3Store, faults: FaultyS3, log_fd: int, kind: S3FaultKind, method: str, query: str
) -> None:
    faults.inject(kind, method=method, query_contains=query, times=2)
    info = store.put_segment("a.seg", log_fd, len(LOG), TAIL)
    assert info.size_bytes == len(LOG) + len(TAIL)
    assert truth.get("a.seg", max_bytes=info.size_bytes)[0] == LOG + TAIL


def test_error_inside_a_200_does_not_pass_for_a_finished_upload(
    store: S3Store, truth: S3Store, faults: FaultyS3, log_fd: int
) -> None:
    faults.inject(S3FaultKind.ERROR_IN_200, method="POST", query_contains="uploadId", times=2)
    store.put_segment("a.seg", log_fd, len(LOG), TAIL)
    assert truth.get("a.seg", max_bytes=1 << 30)[0] == LOG + TAIL


@pytest.mark.parametrize(("method", "query"), [("PUT", "partNumber=3"), ("POST", "uploadId")], ids=["part", "end"])
def test_upload_that_fails_leaves_neither_object_nor_parts(
    store: S3Store, truth: S3Store, faults: FaultyS3, log_fd: int, method: str, query: str
) -> None:
    faults.inject(S3FaultKind.SERVER_ERROR, method=method, query_contains=query, times=100)
    with pytest.raises(StoreUnavailable):
        store.put_segment("a.seg", log_fd, len(LOG), TAIL)
    assert truth.list("") == []
    assert truth.abort_abandoned_uploads("", started_before_ms=1 << 62) == ()


def test_upload_cut_off_from_the_store_is_swept_later(
    store: S3Store, truth: S3Store, faults: FaultyS3, log_fd: int
) -> None:
    faults.inject(S3FaultKind.RESET, skip=2, times=1000)
    with pytest.raises(StoreUnavailable):
        store.put_segment("a.seg", log_fd, len(LOG), TAIL)
    assert truth.abort_abandoned_uploads("", started_before_ms=0) == ()
    assert truth.abort_abandoned_uploads("other/", started_before_ms=1 << 62) == ()
    assert truth.abort_abandoned_uploads("", started_before_ms=1 << 62) == ("a.seg",)
    assert truth.abort_abandoned_uploads("", started_before_ms=1 << 62) == ()
    assert truth.list("") == []


def test_every_part_carries_its_crc32c_and_the_end_is_create_only(
    store: S3Store, faults: FaultyS3, log_fd: int
) -> None:
    store.put_segment("a.seg", log_fd, len(LOG), TAIL)
    store.put("small", b"123456789", create_only=True)
    parts = [seen for seen in faults.seen if "partNumber" in seen.query]
    assert [seen.body_bytes for seen in sorted(parts, key=lambda seen: seen.query)] == [
        PART_BYTES,
        PART_BYTES,
        1234 + len(TAIL),
    ]
    assert all("x-amz-checksum-crc32c" in seen.headers for seen in parts)
    completion = next(seen for seen in faults.seen if seen.method == "POST" and "uploadId" in seen.query)
    assert completion.headers["if-none-match"] == "*"
    small = next(seen for seen in faults.seen if seen.path.endswith("/small"))
    assert small.headers["x-amz-checksum-crc32c"] == "4waSgw=="  # 0xE3069283, the check value of CRC-32C
    assert small.headers["if-none-match"] == "*"


def test_checksum_none_sends_no_checksum_header(faults: FaultyS3, prefix: str, log_fd: int) -> None:
    with aws_environment():
        store = opened(faults.url, prefix, checksum=Checksum.NONE.value)
        store.put("small", b"x")
        store.put_segment("a.seg", log_fd, len(LOG), TAIL)
        store.close()
    assert not [name for seen in faults.seen for name in seen.headers if name.startswith("x-amz-checksum")]
    assert not [seen for seen in faults.seen if "x-amz-sdk-checksum-algorithm" in seen.headers]


def test_memory_holds_no_more_parts_than_threads(
    faults: FaultyS3, prefix: str, log_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 0
    real_pread = os.pread

    def counted(fd: int, length: int, position: int) -> bytes:
        nonlocal most
        if fd == log_fd:
            most = max(most, sum(thread.name.startswith("upload-part") for thread in threading.enumerate()))
        return real_pread(fd, length, position)

    monkeypatch.setattr(os, "pread", counted)
    with aws_environment():
        store = opened(faults.url, prefix)
        store.put_segment("a.seg", log_fd, len(LOG), TAIL)
        store.close()
    assert 1 <= most <= 2
