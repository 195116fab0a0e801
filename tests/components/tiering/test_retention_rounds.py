"""Rounds of retention in a real broker, with people who pin and delete beside them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.components.batches import batch
from tiered.broker.admin import NewTopic
from tiered.broker.broker import Broker
from tiered.broker.partitions.partition import Partition
from tiered.config import BrokerSettings, ServeOptions
from tiered.errors import PolicyViolation
from tiered.rules.segments.retention import RetentionReason
from tiered.runtime import SystemClock

WAIT_S = 60.0
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NEVER_MS = 10**9


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """One that begins no round and no sweep by itself."""
    options = ServeOptions(
        data_dir=tmp_path / "data",
        meta_url=f"sqlite:///{tmp_path / 'meta.db'}",
        store_url=f"file://{tmp_path / 'objects'}",
        rack="a",
        settings=BrokerSettings.of(
            {
                "log.retention.check.interval.ms": str(NEVER_MS),
                "tiered.sweep.interval.ms": str(NEVER_MS),
                "tiered.upload.interval.ms": "20",
                "tiered.retention.max.segments": "2",
            }
        ),
    )
    made = Broker(options, SystemClock())
    async with asyncio.TaskGroup() as tasks:
        await made.start(tasks, advertised=("127.0.0.1", 9092))
        yield made
        made.begin_stop()
        await made.stop()


async def uploaded(broker: Broker, **configs: str) -> Partition:
    """A partition with five segments of now in the store, and an active one."""
    wanted = {"segment.bytes": "600", "retention.ms": str(DAY_MS), "tiered.purge.grace.ms": str(HOUR_MS), **configs}
    topic = await broker.admin.create_topic(NewTopic(name="orders", partition_count=1, configs=wanted))
    partition = topic.partition(0)
    for _ in range(6):
        data = bytearray(batch([b"v" * 500], first_ms=broker.clock.now_ms()))
        partition.append(memoryview(data), 0, len(data), acks=1, now_ms=broker.clock.now_ms())
    await eventually(lambda: partition.cold_end_offset == 5)
    return partition


async def eventually(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not claim():
            await asyncio.sleep(0.01)


async def test_retention_goes_up_to_a_pin_and_waits_there(broker: Broker) -> None:
    partition = await uploaded(broker, **{"retention.bytes": "0", "local.retention.bytes": "0"})
    topic = broker.topics.by_name("orders")
    made = await broker.pins.take(
        topic, name="kept", owner="", ttl_ms=None, asked=None, high_watermarks={0: partition.high_watermark}
    )
    assert [(each.start_offset, each.end_offset) for each in made.ranges] == [(0, 6)]
    pin = await broker.pins.take(topic, owner="job", ttl_ms=None, asked=None, high_watermarks={0: 6})
    await broker.retention.round()
    assert partition.log_start_offset == 0
    with pytest.raises(PolicyViolation, match="snapshot kept"):
        await broker.admin.delete_records(partition, 3)
    await broker.pins.delete_snapshot("kept")
    assert (await broker.retention.explain(partition)).decided.verdicts[0].why is RetentionReason.PINNED
    # An administrator need not wait for a job.
    assert await broker.admin.delete_records(partition, 1) == 1
    await broker.retention.round()
    assert partition.log_start_offset == 1
    await broker.pins.release(pin.pin_id)
    await broker.retention.round()
    assert partition.log_start_offset == 3
