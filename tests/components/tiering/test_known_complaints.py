"""What users of other tiered logs complain of, where no other test shows that it is not so here."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.reconciling import NEVER_MS, SEGMENTS, append, eventually, options, uploaded
from tests.components.tiers import create, fill
from tests.fault_s3.moto_server import aws_environment, moto_s3, store_url
from tiered.broker.broker import Broker
from tiered.broker.replaceable_parts import BrokerParts
from tiered.cold.local import LocalStore
from tiered.cold.object_store import ObjectInfo
from tiered.errors import StoreUnavailable
from tiered.formats.object_key import SEGMENTS_PREFIX
from tiered.meta import segments
from tiered.rules.pacing import upload_pace
from tiered.runtime import SystemClock
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind, faulty_s3


class HastyClock(SystemClock):
    """The machine's, after so long a rest."""

    def __init__(self) -> None:
        self.rested_ms = 0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.rested_ms


class FailingStore(LocalStore):
    """Raises what it is given, once for each: at the beginning of an upload, or when the object is there already."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.before: list[BaseException] = []
        self.after: list[BaseException] = []

    def put_segment(
        self, key: str, fd: int, log_bytes: int, tail: bytes, *, timeout_ms: float | None = None
    ) -> ObjectInfo:
        if self.before:
            raise self.before.pop()
        info = super().put_segment(key, fd, log_bytes, tail, timeout_ms=timeout_ms)
        if self.after:
            raise self.after.pop()
        return info


@asynccontextmanager
async def broker_with(store: FailingStore, clock: HastyClock, root: Path) -> AsyncIterator[Broker]:
    never = str(NEVER_MS)
    made = Broker(options(root, tiered_checkpoint_interval_ms=never), clock, BrokerParts(store=store))
    async with asyncio.TaskGroup() as tasks:
        await made.start(tasks, advertised=("127.0.0.1", 9092))
        yield made
        made.begin_stop()
        await made.stop()


async def test_an_upload_that_ran_out_of_memory_is_told_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, clock = FailingStore(tmp_path / "objects"), HastyClock()
    async with broker_with(store, clock, tmp_path) as broker:
        partition = await uploaded(broker)
        store.before.append(MemoryError())
        with caplog.at_level(logging.ERROR, logger="tiered.broker.tiering.upload_pipeline"):
            append(broker, partition, 1)
            await eventually(lambda: broker.counters.uploads_failed == 1)
        assert "orders-0: an upload failed in an unforeseen way" in caplog.text
        assert partition.cold_end_offset == SEGMENTS
        clock.rested_ms += upload_pace.MAX_REST_MS
        await eventually(lambda: partition.cold_end_offset == SEGMENTS + 1)


async def test_copies_that_failed_count_for_nothing_in_retention_by_size(tmp_path: Path) -> None:
    store, clock = FailingStore(tmp_path / "objects"), HastyClock()
    async with broker_with(store, clock, tmp_path) as broker:
        # Enough for all that is there and one segment more, not for ten copies of it.
        partition = await uploaded(broker, **{"retention.bytes": "9000"})
        store.after += [StoreUnavailable("the answer was lost") for _ in range(10)]
        append(broker, partition, 1)
        for failures in range(1, 11):
            await eventually(lambda wanted=failures: broker.counters.uploads_failed == wanted)
            clock.rested_ms += upload_pace.MAX_REST_MS
        await eventually(lambda: partition.cold_end_offset == SEGMENTS + 1)
        await broker.retention.round()
        assert partition.log_start_offset == 0
        where = partition.topic_partition
        rows = await broker.database.read(lambda conn: segments.list_committed(conn, where.topic_id, where.partition))
        assert partition.cold_bytes == sum(row.size_bytes for row in rows)
        assert [key for key, _ in store.list(SEGMENTS_PREFIX)] == sorted(row.object_key for row in rows)


@pytest.fixture
def faults() -> Iterator[FaultyS3]:
    with moto_s3() as url, faulty_s3(url) as faults, aws_environment():
        yield faults


def test_cold_partitions_of_one_fetch_are_read_at_once(
    faults: FaultyS3, make_broker: Callable[..., BrokerProcess]
) -> None:
    settings = {"log.segment.bytes": 6_000, "log.local.retention.bytes": 1, "log.retention.check.interval.ms": 200}
    broker = make_broker("--store", store_url(faults.url, "parallel"), settings=settings).start()
    assert create(broker, "orders", 4) == 0
    for number in range(4):
        fill(broker, "orders", 10, partition=number)
        broker.wait_cold("orders", number, end_offset=5, only=True)
    faults.inject(S3FaultKind.DELAY, method="GET", path_contains=".seg", times=None, seconds=3_600.0)
    before = len(faults.seen)
    with ThreadPoolExecutor(1) as threads, RawConnection(broker, timeout_s=60) as connection:
        wanted = [("orders", number, 0, -1, 1 << 20) for number in range(4)]
        answer = threads.submit(connection.fetch_many, wanted, max_wait_ms=30_000)
        asked: set[str] = set()
        deadline = time.monotonic() + 60
        while len(asked) < 4:
            assert time.monotonic() < deadline, f"only {sorted(asked)} are asked for before any has answered"
            time.sleep(0.02)
            asked = {seen.path for seen in faults.seen[before:] if seen.method == "GET" and seen.path.endswith(".seg")}
        assert not answer.done()
        faults.heal()
        found = [each.partitions[0] for each in answer.result().topics]
    assert [(each.error_code, bool(each.records)) for each in found] == [(0, True)] * 4
