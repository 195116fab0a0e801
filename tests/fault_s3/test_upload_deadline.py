"""An upload's deadline ends it: whatever the store does, no request begins afterwards and nobody reads the file."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fault_s3.tiering_broker import committed, eventually, fill, make_topic, read_everything, tiering_broker
from tiered.cold.object_store import S3Address
from tiered.cold.s3.store import S3Store
from tiered.errors import UploadOverdue
from tiered.formats.object_key import SEGMENTS_PREFIX
from tiered.meta import segments
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind

PART_BYTES = 5 << 20
LOG_BYTES = 6 * PART_BYTES
NEVER_S = 3_600.0
NEVER = 1_000_000


@pytest.fixture
def log_fd(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "segment.log").write_bytes(bytes(LOG_BYTES))
    fd = os.open(tmp_path / "segment.log", os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.fixture
def store(address: S3Address) -> Iterator[S3Store]:
    """One that would try for ever."""
    store = S3Store(
        address,
        part_bytes=PART_BYTES,
        probe_first=False,
        max_attempts=NEVER,
        read_timeout_ms=500,
        first_backoff_ms=1,
        max_backoff_ms=20,
    )
    yield store
    store.close()


@pytest.mark.parametrize("kind", [S3FaultKind.DELAY, S3FaultKind.SERVER_ERROR], ids=["hangs", "fails"])
def test_a_store_that_stops_in_the_middle_ends_the_upload_and_its_parts_are_freed(
    store: S3Store, faults: FaultyS3, log_fd: int, kind: S3FaultKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    real_pread = os.pread

    def counted(fd: int, length: int, position: int) -> bytes:
        nonlocal reads
        reads += fd == log_fd
        return real_pread(fd, length, position)

    monkeypatch.setattr(os, "pread", counted)
    faults.inject(kind, method="PUT", query_contains="partNumber", skip=3, times=None, seconds=NEVER_S)
    with pytest.raises(UploadOverdue, match="not stored by its deadline"):
        store.put_segment("a.seg", log_fd, LOG_BYTES, b"tail", timeout_ms=2_000.0)
    read = reads
    assert faults.count("DELETE", query_contains="uploadId") == 1
    faults.heal()
    assert store.list("") == []
    assert store.abort_abandoned_uploads("", started_before_ms=1 << 62) == ()
    # Parts of the next upload take their turns behind whatever the first one had left.
    store.put_segment("b.seg", log_fd, LOG_BYTES, b"tail", timeout_ms=60_000.0)
    assert reads - read == LOG_BYTES // PART_BYTES, "a thread still reads for the upload that has ended"


@pytest.mark.parametrize("query", ["uploads", "uploadId"], ids=["begin", "end"])
def test_an_upload_ends_in_time_whichever_step_fails(store: S3Store, faults: FaultyS3, log_fd: int, query: str) -> None:
    faults.inject(S3FaultKind.SLOW_DOWN, method="POST", query_contains=query, times=None)
    with pytest.raises(UploadOverdue):
        store.put_segment("a.seg", log_fd, LOG_BYTES, b"tail", timeout_ms=1_000.0)
    faults.heal()
    assert store.list("") == []
    assert store.abort_abandoned_uploads("", started_before_ms=1 << 62) == ()


def test_an_upload_that_waits_behind_others_ends_without_a_request(
    address: S3Address, faults: FaultyS3, log_fd: int
) -> None:
    store = S3Store(address, part_bytes=PART_BYTES, probe_first=False, parts_in_flight=1)
    holding = threading.Event()
    faults.inject(S3FaultKind.DELAY, method="PUT", path_contains="long.seg", seconds=NEVER_S)
    with ThreadPoolExecutor(1) as threads:
        long = threads.submit(store.put_segment, "long.seg", log_fd, 1_000, b"tail")
        while not faults.count("PUT"):
            holding.wait(0.01)
        with pytest.raises(UploadOverdue):
            store.put_segment("short.seg", log_fd, 1_000, b"tail", timeout_ms=100.0)
        faults.heal()
        assert long.result().size_bytes == 1_004
    store.close()
    assert faults.count("PUT", path_contains="short.seg") == 0


async def test_what_an_overdue_upload_left_is_swept_and_the_segment_goes_once(faults: FaultyS3, tmp_path: Path) -> None:
    async with tiering_broker(tmp_path, faults, max_attempts=NEVER, tiered_upload_timeout_ms=1_000) as broker:
        (partition,) = await make_topic(broker, "orders")
        faults.inject(S3FaultKind.SERVER_ERROR, method="PUT", path_contains="/segments/", times=None)
        fill(partition, 2, at_ms=broker.clock.now_ms())
        await eventually(lambda: broker.counters.uploads_failed > 0)

        async def planned() -> int:
            found = await broker.database.read(
                lambda conn: segments.list_planned(conn, owner=broker.broker_id, planned_before_ms=1 << 62)
            )
            return len(found)

        assert await planned() >= 1, "the intent stays for the sweep"
        faults.heal()
        await eventually(lambda: partition.cold_end_offset == 1)
        rows = await committed(broker, partition)
        assert [(row.base_offset, row.end_offset) for row in rows] == [(0, 1)]
        await broker.lifecycle.sweep()
        assert await planned() == 0
        stored = await broker.uploads.run(lambda: broker.store.list(SEGMENTS_PREFIX))
        assert [key for key, _ in stored] == [row.object_key for row in rows]
        assert await read_everything(broker, partition) == [0, 1]
