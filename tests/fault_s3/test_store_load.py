"""What the S3 client asks of the store and of memory: fewer requests when there are too many, and few in all."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fault_s3.moto_server import store_url
from tiered.cold.object_store import S3Address, parse_store_url
from tiered.cold.request_counts import PART_BYTES, PriceClass, upload_requests
from tiered.cold.s3.store import S3Store
from tiered.errors import StoreUnavailable
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind

SMALL_PART_BYTES = 5 << 20  # as small as S3 allows
TAIL = b"the tail"
MIB = 1 << 20
GIB = 1 << 30


def opened(faults: FaultyS3, *, parts_in_flight: int = 2, read_timeout_ms: float = 30_000) -> S3Store:
    address = parse_store_url(store_url(faults.url, f"p-{uuid4()}"))
    assert isinstance(address, S3Address)
    return S3Store(
        address,
        first_backoff_ms=1,
        max_backoff_ms=5,
        max_attempts=4,
        part_bytes=SMALL_PART_BYTES,
        parts_in_flight=parts_in_flight,
        read_timeout_ms=read_timeout_ms,
        probe_first=False,
    )


@pytest.fixture
def store(faults: FaultyS3) -> Iterator[S3Store]:
    store = opened(faults)
    yield store
    store.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[int]:
    """A sparse file, larger than any segment that is taken from it."""
    fd = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, GIB)
    yield fd
    os.close(fd)


def test_silence_lowers_concurrency_as_slow_down_does(faults: FaultyS3) -> None:
    store = opened(faults, read_timeout_ms=2_000)  # Longer than an answer takes on a busy machine.
    store.put("k", b"data")
    before = store.allowed_requests
    faults.inject(S3FaultKind.DELAY, method="GET", seconds=60.0)
    assert store.get_range("k", 0, 4) == b"data"
    assert store.allowed_requests == before // 2
    assert (store.state.timeouts, store.state.slow_downs) == (1, 0)
    faults.heal()
    store.close()


def test_an_error_that_is_no_sign_of_overload_leaves_concurrency_alone(store: S3Store, faults: FaultyS3) -> None:
    store.put("k", b"data")
    before = store.allowed_requests
    for kind in (S3FaultKind.SERVER_ERROR, S3FaultKind.RESET, S3FaultKind.TRUNCATE):
        faults.inject(kind, method="GET")
        assert store.get_range("k", 0, 4) == b"data"
    assert store.allowed_requests == before


@pytest.mark.parametrize("log_bytes", [1, SMALL_PART_BYTES - len(TAIL), SMALL_PART_BYTES, 3 * SMALL_PART_BYTES + 1])
def test_an_upload_takes_as_many_requests_as_it_is_said_to(
    store: S3Store, faults: FaultyS3, log: int, log_bytes: int
) -> None:
    store.put_segment("a.seg", log, log_bytes, TAIL)
    seen = [each for each in faults.seen if each.method in ("PUT", "POST")]
    assert len(seen) == upload_requests(log_bytes + len(TAIL), part_bytes=SMALL_PART_BYTES)
    assert store.state.requests.by_class() == {PriceClass.PUT: len(seen), PriceClass.GET: 0, PriceClass.FREE: 0}


def test_a_gib_takes_at_most_fifty_requests_in_segments_of_any_usual_size() -> None:
    tail_bytes = 200_000
    for segment_bytes in (24 * MIB, 30 * MIB, 192 * MIB, 256 * MIB, 512 * MIB, GIB, 2 * GIB - 1):
        assert upload_requests(segment_bytes + tail_bytes) * GIB <= 50 * segment_bytes, segment_bytes
    assert upload_requests(GIB + tail_bytes) == 36
    assert PART_BYTES < 32 * MIB, "what malloc keeps for the next part"


def test_requests_are_counted_by_what_they_cost_and_failed_ones_too(store: S3Store, faults: FaultyS3) -> None:
    store.put("k", b"data")
    store.list("")
    faults.inject(S3FaultKind.SLOW_DOWN, method="GET", times=2)
    store.get_range("k", 0, 4)
    store.head("k")
    store.delete("k")
    assert store.state.requests.by_class() == {PriceClass.PUT: 2, PriceClass.GET: 4, PriceClass.FREE: 1}


def test_uploads_of_many_segments_read_on_two_threads_alone(
    store: S3Store, log: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: set[str] = set()
    real_pread = os.pread

    def noted(fd: int, length: int, position: int) -> bytes:
        if fd == log:
            assert length <= SMALL_PART_BYTES
            readers.add(threading.current_thread().name)
        return real_pread(fd, length, position)

    monkeypatch.setattr(os, "pread", noted)
    with ThreadPoolExecutor(4) as threads:
        sizes = [2 * SMALL_PART_BYTES, MIB, 2 * SMALL_PART_BYTES, MIB]
        list(threads.map(lambda n: store.put_segment(f"{n}.seg", log, sizes[n], TAIL), range(4)))
    assert readers <= {"upload-part_0", "upload-part_1"}


def test_a_long_segment_lets_short_ones_in_between_its_parts(faults: FaultyS3, log: int) -> None:
    store = opened(faults, parts_in_flight=1)
    faults.inject(S3FaultKind.DELAY, method="PUT", path_contains="long.seg", seconds=60)
    with ThreadPoolExecutor(4) as threads:
        long = threads.submit(store.put_segment, "long.seg", log, 3 * SMALL_PART_BYTES, TAIL)
        _wait(lambda: faults.count("PUT") == 1)
        for number in range(3):
            threads.submit(store.put_segment, f"{number}.seg", log, 1, TAIL)
        _wait(lambda: store._uploads._made_threads._work_queue.qsize() == 3)  # type: ignore[union-attr]
        faults.heal()
        long.result()
    puts = [seen.path.rpartition("/")[2] for seen in faults.seen if seen.method == "PUT"]
    assert puts[:1] + puts[4:] == ["long.seg"] * 4
    assert sorted(puts[1:4]) == ["0.seg", "1.seg", "2.seg"]  # Three threads: each may come first.
    store.close()


def _wait(claim: Callable[[], bool]) -> None:
    while not claim():
        threading.Event().wait(0.01)


def test_an_upload_that_is_cut_off_by_closing_ends(faults: FaultyS3, log: int) -> None:
    store = opened(faults)
    faults.inject(S3FaultKind.DELAY, method="PUT", times=None, seconds=0.3)
    with ThreadPoolExecutor(3) as threads:
        uploads = [threads.submit(store.put_segment, f"{n}.seg", log, 3 * SMALL_PART_BYTES, TAIL) for n in range(3)]
        _wait(lambda: faults.count("PUT") > 0)
        store.close()
        for each in uploads:
            with pytest.raises(StoreUnavailable):
                each.result()
    with pytest.raises(StoreUnavailable):
        store.put_segment("late.seg", log, 1, TAIL)
