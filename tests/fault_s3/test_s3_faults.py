"""What the S3 client does when the store, or the way to it, misbehaves."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fault_s3.moto_server import aws_environment, store_url
from tiered.cold.object_store import Checksum, S3Address, parse_store_url
from tiered.cold.s3 import S3Store
from tiered.errors import InvalidConfig, LostRace, ObjectExists, ObjectMissing, StoreUnavailable
from tiered.testing.faulty_s3 import FaultKind, FaultyS3

DATA = bytes(range(256)) * 400
PART_BYTES = 5 << 20  # as small as S3 allows
LOG = os.urandom(PART_BYTES * 2 + 1234)
TAIL = b"the tail"


@pytest.fixture
def prefix() -> str:
    return f"p-{uuid4()}"


def opened(endpoint_url: str, prefix: str, *, checksum: str = "auto", read_timeout_ms: float = 5_000) -> S3Store:
    address = parse_store_url(store_url(endpoint_url, prefix, checksum=checksum))
    assert isinstance(address, S3Address)
    return S3Store(
        address,
        first_backoff_ms=1,
        max_backoff_ms=5,
        read_timeout_ms=read_timeout_ms,
        max_attempts=5,
        part_bytes=PART_BYTES,
        probe_first=False,
    )


@pytest.fixture
def store(faults: FaultyS3, prefix: str) -> Iterator[S3Store]:
    """The client under test: it reaches the good server only through the faults."""
    with aws_environment():
        store = opened(faults.url, prefix)
        yield store
        store.close()


@pytest.fixture
def truth(endpoint_url: str, prefix: str) -> Iterator[S3Store]:
    """The same bucket, seen directly."""
    with aws_environment():
        store = opened(endpoint_url, prefix)
        yield store
        store.close()


@pytest.fixture
def log_fd(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "segment.log").write_bytes(LOG)
    fd = os.open(tmp_path / "segment.log", os.O_RDONLY)
    yield fd
    os.close(fd)


PASSING_FAULTS = [FaultKind.SERVER_ERROR, FaultKind.SLOW_DOWN, FaultKind.RESET]


@pytest.mark.parametrize("kind", [*PASSING_FAULTS, FaultKind.BAD_DIGEST, FaultKind.RESET_AFTER])
def test_put_gets_through_faults_that_pass(store: S3Store, truth: S3Store, faults: FaultyS3, kind: FaultKind) -> None:
    faults.inject(kind, method="PUT", times=2)
    info = store.put("k", DATA, create_only=True)
    assert truth.get("k", max_bytes=len(DATA)) == (DATA, info.etag)
    assert store.state.retries == 2


@pytest.mark.parametrize(
    "kind",
    [
        *PASSING_FAULTS,
        FaultKind.TRUNCATE,
        FaultKind.WHOLE,
        FaultKind.WRONG_RANGE,
        FaultKind.NO_CONTENT_RANGE,
        FaultKind.RESET_AFTER,
    ],
)
def test_range_is_exact_whatever_is_answered_first(
    store: S3Store, truth: S3Store, faults: FaultyS3, kind: FaultKind
) -> None:
    truth.put("k", DATA)
    faults.inject(kind, method="GET", times=3)
    assert store.get_range("k", 1_000, 50_000) == DATA[1_000:51_000]
    assert faults.count("GET") == 4


@pytest.mark.parametrize("kind", [FaultKind.WHOLE, FaultKind.WRONG_RANGE, FaultKind.TRUNCATE, FaultKind.SLOW_DOWN])
def test_fault_that_stays_ends_as_store_unavailable(
    store: S3Store, truth: S3Store, faults: FaultyS3, kind: FaultKind
) -> None:
    truth.put("k", DATA)
    faults.inject(kind, method="GET", times=100)
    with pytest.raises(StoreUnavailable, match="5 times"):
        store.get_range("k", 10, 50_000)
    assert faults.count("GET") == 5


def test_whole_object_that_arrives_in_half_is_fetched_again(store: S3Store, truth: S3Store, faults: FaultyS3) -> None:
    truth.put("k", DATA)
    faults.inject(FaultKind.TRUNCATE, method="GET", times=2)
    assert store.get("k", max_bytes=len(DATA))[0] == DATA


def test_silent_store_is_given_up_after_the_read_timeout(faults: FaultyS3, truth: S3Store, prefix: str) -> None:
    truth.put("k", DATA)
    store = opened(faults.url, prefix, read_timeout_ms=200)
    faults.inject(FaultKind.DELAY, method="GET", seconds=1.0)
    assert store.get_range("k", 0, 10) == DATA[:10]
    assert store.state.retries == 1
    store.close()


def test_store_that_is_not_there_is_unavailable(prefix: str) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    with aws_environment():
        store = opened(f"http://127.0.0.1:{port}", prefix)
        with pytest.raises(StoreUnavailable):
            store.put("k", b"x")
        store.close()


def test_refused_condition_is_not_tried_again(store: S3Store, truth: S3Store, faults: FaultyS3) -> None:
    etag = truth.put("k", b"theirs").etag
    with pytest.raises(ObjectExists):
        store.put("k", b"ours", create_only=True)
    with pytest.raises(LostRace):
        store.put("k", b"ours", if_match='"0123456789abcdef0123456789abcdef"')
    assert faults.count("PUT") == 2
    assert truth.get("k", max_bytes=10) == (b"theirs", etag)


def test_lost_answer_of_a_create_only_put_is_recognised_as_ours(
    store: S3Store, truth: S3Store, faults: FaultyS3
) -> None:
    faults.inject(FaultKind.RESET_AFTER, method="PUT")
    info = store.put("k", DATA, create_only=True)
    assert faults.count("PUT") == 2
    assert truth.get("k", max_bytes=len(DATA)) == (DATA, info.etag)


def test_lost_answer_does_not_claim_another_writers_object(store: S3Store, truth: S3Store, faults: FaultyS3) -> None:
    truth.put("k", b"theirs")
    faults.inject(FaultKind.RESET, method="PUT")
    with pytest.raises(ObjectExists):
        store.put("k", b"ours!!", create_only=True)


def test_lost_answer_of_a_put_on_an_etag_is_recognised_as_ours(
    store: S3Store, truth: S3Store, faults: FaultyS3
) -> None:
    etag = truth.put("k", b"one").etag
    faults.inject(FaultKind.RESET_AFTER, method="PUT")
    info = store.put("k", b"two", if_match=etag)
    assert truth.get("k", max_bytes=10) == (b"two", info.etag)


@pytest.mark.parametrize("kind", [FaultKind.SLOW_DOWN, FaultKind.BAD_DIGEST, FaultKind.RESET_AFTER])
@pytest.mark.parametrize(
    ("method", "query"),
    [("POST", "uploads"), ("PUT", "partNumber=2"), ("POST", "uploadId")],
    ids=["begin", "part", "end"],
)
def test_upload_gets_through_faults_at_every_step(
    store: S3Store, truth: S3Store, faults: FaultyS3, log_fd: int, kind: FaultKind, method: str, query: str
) -> None:
    faults.inject(kind, method=method, query_contains=query, times=2)
    info = store.put_segment("a.seg", log_fd, len(LOG), TAIL)
    assert info.size_bytes == len(LOG) + len(TAIL)
    assert truth.get("a.seg", max_bytes=info.size_bytes)[0] == LOG + TAIL


def test_error_inside_a_200_does_not_pass_for_a_finished_upload(
    store: S3Store, truth: S3Store, faults: FaultyS3, log_fd: int
) -> None:
    faults.inject(FaultKind.ERROR_IN_200, method="POST", query_contains="uploadId", times=2)
    store.put_segment("a.seg", log_fd, len(LOG), TAIL)
    assert truth.get("a.seg", max_bytes=1 << 30)[0] == LOG + TAIL


@pytest.mark.parametrize(("method", "query"), [("PUT", "partNumber=3"), ("POST", "uploadId")], ids=["part", "end"])
def test_upload_that_fails_leaves_neither_object_nor_parts(
    store: S3Store, truth: S3Store, faults: FaultyS3, log_fd: int, method: str, query: str
) -> None:
    faults.inject(FaultKind.SERVER_ERROR, method=method, query_contains=query, times=100)
    with pytest.raises(StoreUnavailable):
        store.put_segment("a.seg", log_fd, len(LOG), TAIL)
    assert truth.list("") == []
    assert truth.abort_abandoned_uploads("", started_before_ms=1 << 62) == ()


def test_upload_cut_off_from_the_store_is_swept_later(
    store: S3Store, truth: S3Store, faults: FaultyS3, log_fd: int
) -> None:
    faults.inject(FaultKind.RESET, skip=2, times=1000)
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


def test_slow_down_lowers_concurrency_and_success_raises_it_again(
    store: S3Store, truth: S3Store, faults: FaultyS3
) -> None:
    truth.put("k", DATA)
    before = store.allowed_requests
    faults.inject(FaultKind.SLOW_DOWN, method="GET", times=2)
    store.get_range("k", 0, 10)
    lowered = store.allowed_requests
    assert lowered == before // 4
    for _ in range(40):
        store.get_range("k", 0, 10)
    assert store.allowed_requests > lowered
    assert store.state.slow_downs == 2


def test_bucket_that_is_gone_is_no_missing_object(endpoint_url: str) -> None:
    with aws_environment():
        address = parse_store_url(f"s3://no-such-bucket-here/p?endpoint_url={endpoint_url}")
        assert isinstance(address, S3Address)
        store = S3Store(address, first_backoff_ms=1, max_backoff_ms=2, probe_first=False)
        for attempt in (
            lambda: store.get("k", max_bytes=1),
            lambda: store.get_range("k", 0, 1),
            lambda: store.head("k"),
            lambda: store.put("k", b""),
            lambda: store.list(""),
            store.probe,
        ):
            with pytest.raises(StoreUnavailable, match="no-such-bucket-here"):
                attempt()
        store.close()


def test_probe_survives_a_store_that_is_slow_at_first(store: S3Store, faults: FaultyS3) -> None:
    faults.inject(FaultKind.SLOW_DOWN, times=3)
    assert store.probe().create_only
    assert store.list("") == []


def test_first_put_probes_once_and_reads_never_do(faults: FaultyS3, prefix: str) -> None:
    address = parse_store_url(store_url(faults.url, prefix))
    assert isinstance(address, S3Address)
    faults.refuse_header("If-None-Match")
    with aws_environment():
        store = S3Store(address, first_backoff_ms=1, max_backoff_ms=2, max_attempts=2)
        with pytest.raises(ObjectMissing):
            store.get("k", max_bytes=1)
        assert faults.count("PUT") == 0
        faults.inject(FaultKind.SERVER_ERROR, method="PUT", times=2)
        with pytest.raises(StoreUnavailable):
            store.put("k", b"x", create_only=True)
        store.put("k", b"x", create_only=True)
        with pytest.raises(ObjectExists):
            store.put("k", b"y", create_only=True)
        store.close()
    assert len({seen.path for seen in faults.seen if "/probes/" in seen.path}) == 2


def test_writer_that_may_not_delete_is_probed_all_the_same(store: S3Store, faults: FaultyS3) -> None:
    faults.inject(FaultKind.ACCESS_DENIED, method="DELETE", times=100)
    assert store.probe().create_only


def test_probe_sees_that_moto_does_not_verify_checksums(store: S3Store) -> None:
    capabilities = store.probe()
    assert capabilities.checksum_accepted
    assert not capabilities.checksum_verified


def test_store_that_refuses_checksum_headers_is_used_without(
    store: S3Store, faults: FaultyS3, log_fd: int, prefix: str
) -> None:
    faults.refuse_header("x-amz-checksum-crc32c")
    faults.refuse_header("x-amz-checksum-algorithm")
    capabilities = store.probe()
    assert not capabilities.checksum_accepted
    assert not capabilities.checksum_verified
    assert capabilities.create_only
    store.put("k", b"x")
    store.put_segment("a.seg", log_fd, len(LOG), TAIL)
    strict = opened(faults.url, prefix, checksum=Checksum.CRC32C.value)
    with pytest.raises(InvalidConfig, match="checksum=none"):
        strict.probe()
    strict.close()


@pytest.mark.parametrize("how", ["ignored", "refused"])
def test_store_without_conditions_is_looked_at_before_each_put(
    store: S3Store, faults: FaultyS3, log_fd: int, how: str
) -> None:
    for header in ("If-None-Match", "If-Match"):
        faults.ignore_header(header) if how == "ignored" else faults.refuse_header(header)
    capabilities = store.probe()
    assert not capabilities.create_only
    assert not capabilities.if_match
    etag = store.put("k", b"one", create_only=True).etag
    with pytest.raises(ObjectExists):
        store.put("k", b"two", create_only=True)
    with pytest.raises(ObjectExists):
        store.put_segment("k", log_fd, len(LOG), TAIL)
    store.put("k", b"two", if_match=etag)
    with pytest.raises(LostRace):
        store.put("k", b"three", if_match=etag)
    with pytest.raises(LostRace):
        store.put("missing", b"three", if_match=etag)
    assert store.get("k", max_bytes=10)[0] == b"two"


def test_missing_credentials_are_explained_and_never_printed(
    endpoint_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with aws_environment():
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        store = opened(endpoint_url, prefix)
        with pytest.raises(StoreUnavailable, match="credentials"):
            store.put("k", b"x")
        store.close()


def test_closing_ends_the_pause_between_attempts(faults: FaultyS3, prefix: str) -> None:
    address = parse_store_url(store_url(faults.url, prefix))
    assert isinstance(address, S3Address)
    faults.inject(FaultKind.SERVER_ERROR, times=100)
    failed: list[Exception] = []
    with aws_environment():
        store = S3Store(address, first_backoff_ms=10_000_000, max_backoff_ms=10_000_000, probe_first=False)

        def put() -> None:
            try:
                store.put("k", b"x")
            except StoreUnavailable as error:
                failed.append(error)

        thread = threading.Thread(target=put)
        thread.start()
        while store.state.retries == 0:
            time.sleep(0.01)
        store.close()
        thread.join(timeout=30)
    assert len(failed) == 1


def test_missing_object_takes_one_request(store: S3Store, faults: FaultyS3) -> None:
    with pytest.raises(ObjectMissing):
        store.get_range("k", 0, 1)
    assert len(faults.seen) == 1


@pytest.mark.parametrize("kind", [FaultKind.SERVER_ERROR, FaultKind.SLOW_DOWN, FaultKind.RESET_AFTER])
def test_random_faults_never_change_what_is_read(
    store: S3Store, truth: S3Store, faults: FaultyS3, kind: FaultKind
) -> None:
    truth.put("k", DATA)
    faults.misbehave(
        seed=7,
        probability=0.3,
        kinds=(kind, FaultKind.TRUNCATE, FaultKind.WHOLE, FaultKind.WRONG_RANGE, FaultKind.RESET),
    )
    wrong: list[tuple[int, int]] = []
    unavailable = 0
    for start in range(0, 60_000, 1_500):
        try:
            if store.get_range("k", start, 40_000) != DATA[start : start + 40_000]:
                wrong.append((start, 40_000))
        except StoreUnavailable:
            unavailable += 1
    assert wrong == []
    assert unavailable <= 5
    faults.heal()
    assert store.get("k", max_bytes=len(DATA))[0] == DATA
