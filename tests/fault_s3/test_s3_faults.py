"""What the S3 client does when the store, or the way to it, misbehaves."""

import socket
import threading
import time

import pytest

from tests.fault_s3.impatient import DATA, opened
from tests.fault_s3.moto_server import aws_environment, store_url
from tiered.cold.object_store import S3Address, parse_store_url
from tiered.cold.s3.store import S3Store
from tiered.errors import LostRace, ObjectExists, ObjectMissing, StoreUnavailable
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind

PASSING_FAULTS = [S3FaultKind.SERVER_ERROR, S3FaultKind.SLOW_DOWN, S3FaultKind.RESET]


@pytest.mark.parametrize("kind", [*PASSING_FAULTS, S3FaultKind.BAD_DIGEST, S3FaultKind.RESET_AFTER])
def test_put_gets_through_faults_that_pass(store: S3Store, truth: S3Store, faults: FaultyS3, kind: S3FaultKind) -> None:
    faults.inject(kind, method="PUT", times=2)
    info = store.put("k", DATA, create_only=True)
    assert truth.get("k", max_bytes=len(DATA)) == (DATA, info.etag)
    assert store.state.retries == 2


@pytest.mark.parametrize(
    "kind",
    [
        *PASSING_FAULTS,
        S3FaultKind.TRUNCATE,
        S3FaultKind.WHOLE,
        S3FaultKind.WRONG_RANGE,
        S3FaultKind.NO_CONTENT_RANGE,
        S3FaultKind.RESET_AFTER,
    ],
)
def test_range_is_exact_whatever_is_answered_first(
    store: S3Store, truth: S3Store, faults: FaultyS3, kind: S3FaultKind
) -> None:
    truth.put("k", DATA)
    faults.inject(kind, method="GET", times=3)
    assert store.get_range("k", 1_000, 50_000) == DATA[1_000:51_000]
    assert faults.count("GET") == 4


@pytest.mark.parametrize(
    "kind", [S3FaultKind.WHOLE, S3FaultKind.WRONG_RANGE, S3FaultKind.TRUNCATE, S3FaultKind.SLOW_DOWN]
)
def test_fault_that_stays_ends_as_store_unavailable(
    store: S3Store, truth: S3Store, faults: FaultyS3, kind: S3FaultKind
) -> None:
    truth.put("k", DATA)
    faults.inject(kind, method="GET", times=100)
    with pytest.raises(StoreUnavailable, match="5 times"):
        store.get_range("k", 10, 50_000)
    assert faults.count("GET") == 5


def test_answer_that_trickles_is_cut_though_no_single_wait_is_long(
    truth: S3Store, faults: FaultyS3, prefix: str
) -> None:
    truth.put("k", DATA)
    impatient = opened(faults.url, prefix, read_timeout_ms=1_000)
    try:
        # At this pace the first answer alone would take four minutes.
        faults.inject(S3FaultKind.TRICKLE, method="GET", seconds=0.05)
        assert impatient.get_range("k", 100, 5_000) == DATA[100:5_100]
        faults.inject(S3FaultKind.TRICKLE, method="GET", seconds=0.05)
        assert impatient.get("k", max_bytes=len(DATA))[0] == DATA
    finally:
        impatient.close()
    # Both were cut; on a busy machine a good answer may come too late as well.
    assert impatient.state.retries >= 2
    assert faults.count("GET") == impatient.state.retries + 2


def test_whole_object_that_arrives_in_half_is_fetched_again(store: S3Store, truth: S3Store, faults: FaultyS3) -> None:
    truth.put("k", DATA)
    faults.inject(S3FaultKind.TRUNCATE, method="GET", times=2)
    assert store.get("k", max_bytes=len(DATA))[0] == DATA


def test_silent_store_is_given_up_after_the_read_timeout(faults: FaultyS3, truth: S3Store, prefix: str) -> None:
    truth.put("k", DATA)
    store = opened(faults.url, prefix, read_timeout_ms=500)
    faults.inject(S3FaultKind.DELAY, method="GET", seconds=10.0)
    began = time.monotonic()
    assert store.get_range("k", 0, 10) == DATA[:10]
    assert time.monotonic() - began < 10
    assert store.state.retries >= 1
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
    faults.inject(S3FaultKind.RESET_AFTER, method="PUT")
    info = store.put("k", DATA, create_only=True)
    assert faults.count("PUT") == 2
    assert truth.get("k", max_bytes=len(DATA)) == (DATA, info.etag)


def test_lost_answer_does_not_claim_another_writers_object(store: S3Store, truth: S3Store, faults: FaultyS3) -> None:
    truth.put("k", b"theirs")
    faults.inject(S3FaultKind.RESET, method="PUT")
    with pytest.raises(ObjectExists):
        store.put("k", b"ours!!", create_only=True)


def test_lost_answer_of_a_put_on_an_etag_is_recognised_as_ours(
    store: S3Store, truth: S3Store, faults: FaultyS3
) -> None:
    etag = truth.put("k", b"one").etag
    faults.inject(S3FaultKind.RESET_AFTER, method="PUT")
    info = store.put("k", b"two", if_match=etag)
    assert truth.get("k", max_bytes=10) == (b"two", info.etag)


def test_slow_down_lowers_concurrency_and_success_raises_it_again(
    store: S3Store, truth: S3Store, faults: FaultyS3
) -> None:
    truth.put("k", DATA)
    before = store.allowed_requests
    faults.inject(S3FaultKind.SLOW_DOWN, method="GET", times=2)
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
    faults.inject(S3FaultKind.SERVER_ERROR, times=100)
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


@pytest.mark.parametrize("kind", [S3FaultKind.SERVER_ERROR, S3FaultKind.SLOW_DOWN, S3FaultKind.RESET_AFTER])
def test_random_faults_never_change_what_is_read(
    store: S3Store, truth: S3Store, faults: FaultyS3, kind: S3FaultKind
) -> None:
    truth.put("k", DATA)
    faults.misbehave(
        seed=7,
        probability=0.3,
        kinds=(kind, S3FaultKind.TRUNCATE, S3FaultKind.WHOLE, S3FaultKind.WRONG_RANGE, S3FaultKind.RESET),
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
