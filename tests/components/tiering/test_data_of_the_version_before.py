"""A data folder and a bucket that 328dc458 has left: brokers believed what producers said of their records' times then.

`tests/golden/data_of_328dc458.tar.gz` has the topics `cold-*`, wholly in the store, and `hot-*`: two batches of three
records, a minute apart, whose headers leave out the greatest time, have the first record's, or one that is too late.
The topics `*-missing` end with a batch of two records that are no gzip.
"""

import asyncio
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.components.batches import batch
from tests.components.reconciling import NEVER_MS, eventually
from tests.golden.regenerate import FOLDER
from tiered.broker.broker import Broker
from tiered.broker.partitions.partition import Partition
from tiered.cold.opening import open_store
from tiered.cold.verify.verification import StoreVerifier, VerificationState
from tiered.config import BrokerSettings, ConfigChange, ConfigOperation, ServeOptions
from tiered.formats.record_batch import whole_batches
from tiered.formats.segment_check import FaultKind
from tiered.runtime import SystemClock

FIRST_MS, MINUTE_MS = 1_700_000_000_000, 60_000
TIMES = [FIRST_MS + MINUTE_MS * number for number in range(6)]
TOPICS = [f"{tier}-{wrong}" for tier in ("cold", "hot") for wrong in ("missing", "first", "late")]
SETTINGS = {"log.retention.check.interval.ms": str(NEVER_MS), "tiered.upload.interval.ms": "20"}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    data = tmp_path / "data"
    with tarfile.open(FOLDER / "data_of_328dc458.tar.gz") as packed:
        packed.extractall(data)
    options = ServeOptions(
        data_dir=data,
        meta_url=f"sqlite:///{data / 'meta.db'}",
        store_url=f"file://{data / 'objects'}",
        settings=BrokerSettings.of(SETTINGS),
    )
    made = Broker(options, SystemClock())
    async with asyncio.TaskGroup() as tasks:
        await made.start(tasks, advertised=("127.0.0.1", 9092))
        yield made
        made.begin_stop()
        await made.stop()


def partition_of(broker: Broker, topic: str) -> Partition:
    return broker.topics.by_name(topic).partition(0)


async def offsets_of(broker: Broker, partition: Partition) -> list[int]:
    """Every offset that a consumer is given."""
    offsets: list[int] = []
    while (offset := offsets[-1] + 1 if offsets else 0) < partition.high_watermark:
        if offset < partition.cold_end_offset:
            cold = await broker.reader.read_cold(partition, offset, 1 << 20)
            assert cold is not None
            data = cold.records.read()
        else:
            hot = partition.read_hot(offset, 1 << 20, committed_only=False, at_least_one=True)
            assert hot is not None
            data = hot.records.read()
        for _, header in whole_batches(data, 0, len(data)):
            offsets += range(header.base_offset, header.end_offset)
    return offsets


async def check_times(broker: Broker, topic: str) -> None:
    partition = partition_of(broker, topic)
    for offset, time_ms in enumerate(TIMES):
        assert await broker.reader.offset_for_timestamp(partition, time_ms - 1) == (offset, time_ms), topic
    assert await broker.reader.offset_for_timestamp(partition, TIMES[-1] + 1) is None, topic
    assert await broker.reader.max_timestamp(partition) == (5, TIMES[-1]), topic


async def retain(broker: Broker, topic: str, retention_ms: int) -> None:
    change = ConfigChange(name="retention.ms", operation=ConfigOperation.SET, value=str(retention_ms))
    await broker.admin.alter_topic(broker.topics.by_name(topic), [change], keep_others=True, validate_only=False)


async def upload(broker: Broker, partition: Partition) -> None:
    partition.changed()
    partition.log.roll(broker.clock.now_ms())
    await eventually(lambda: partition.cold_end_offset == partition.high_watermark)


async def verified(broker: Broker) -> VerificationState:
    verifier = StoreVerifier(open_store(broker.store.url))
    try:
        return await verifier.run()
    finally:
        await asyncio.to_thread(verifier.close)


async def test_nothing_is_lost_and_every_time_is_that_of_a_record(broker: Broker) -> None:
    for topic in TOPICS:
        partition = partition_of(broker, topic)
        count = 8 if topic.endswith("missing") else 6
        assert (partition.log_start_offset, partition.high_watermark) == (0, count)
        assert await offsets_of(broker, partition) == list(range(count))
        await check_times(broker, topic)


async def test_no_record_is_deleted_for_what_its_header_says(broker: Broker) -> None:
    now_ms = broker.clock.now_ms()
    for topic in TOPICS:
        partition = partition_of(broker, topic)
        written_ms = [segment.committed_at_ms for segment in partition.committed]
        written_ms += [segment.written_ms for segment in partition.log.segments if segment.size_bytes]
        age_ms = now_ms - min(written_ms)
        if topic.startswith("hot"):
            await upload(broker, partition)
        await retain(broker, topic, age_ms + 3_600_000 if topic.startswith("cold") else 2 * (now_ms - FIRST_MS))
    await broker.retention.round()
    assert {partition_of(broker, topic).log_start_offset for topic in TOPICS} == {0}


async def test_verify_names_the_batch_that_nobody_can_decode_and_goes_on(broker: Broker) -> None:
    state = await verified(broker)
    (problem,) = state.problems
    fault = problem.fault
    assert (problem.topic, fault.kind, fault.first_offset, fault.last_offset) == (
        "cold-missing",
        FaultKind.RECORDS,
        6,
        7,
    )
    assert state.checked_segments == 3


async def test_what_is_uploaded_now_has_the_times_of_its_records(broker: Broker) -> None:
    for topic in ("hot-first", "hot-late", "hot-missing"):
        partition = partition_of(broker, topic)
        await upload(broker, partition)
        (row,) = partition.committed
        # A batch that nobody can decode may be of any time.
        is_proven = None if topic == "hot-missing" else True
        assert (row.max_timestamp_is_proven, row.max_timestamp_ms) == (is_proven, row.max_timestamp_ms)
        if is_proven:
            assert row.max_timestamp_ms == TIMES[-1]
        await check_times(broker, topic)
    data = bytearray(batch([b"v"], first_ms=TIMES[-1] + 1))
    partition = partition_of(broker, "cold-late")
    partition.append(memoryview(data), 0, len(data), acks=1, now_ms=broker.clock.now_ms())
    assert partition.log.segments[-1].times_are_proven
    assert await broker.reader.max_timestamp(partition) == (6, TIMES[-1] + 1)
