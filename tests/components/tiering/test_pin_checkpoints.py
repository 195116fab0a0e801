"""Pins and snapshots on their way to the bucket's checkpoint: a real broker whose ticks the test begins."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.components.reconciling import NEVER_MS, SEGMENTS, eventually, options, uploaded
from tiered.broker.broker import Broker
from tiered.cold.bucket import checkpoints
from tiered.formats.pin_entries import PinEntry
from tiered.runtime import SystemClock


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    never = str(NEVER_MS)
    made = Broker(options(tmp_path, tiered_group_checkpoint_interval_ms=never), SystemClock())
    async with asyncio.TaskGroup() as tasks:
        await made.start(tasks, advertised=("127.0.0.1", 9092))
        await eventually(lambda: made.controller.is_leading)
        yield made
        made.begin_stop()
        await made.stop()


async def stored(broker: Broker) -> tuple[int, tuple[PinEntry, ...]]:
    """The version of the bucket's checkpoint, and the pins in it, once the controller has looked."""
    await broker.checkpoints.look_at_pins()
    await broker.checkpoints.write_stale()
    found = await broker.uploads.run(checkpoints.read_cluster_checkpoint, broker.store)
    assert found is not None
    return found.version, found.pins


async def test_what_is_held_is_in_the_bucket_until_it_is_given_up(broker: Broker) -> None:
    await uploaded(broker)
    topic = broker.topics.find("orders")
    assert topic is not None
    high_watermarks = {0: SEGMENTS}
    assert (await stored(broker))[1] == ()
    await broker.pins.take(topic, name="audit", owner="alice", ttl_ms=None, asked=None, high_watermarks=high_watermarks)
    pin = await broker.pins.take(topic, owner="a job", ttl_ms=60_000, asked=None, high_watermarks=high_watermarks)
    version, (audit, job) = await stored(broker)
    assert (audit.name, audit.owner, audit.topic_id, audit.expires_at_ms) == ("audit", "alice", topic.topic_id, None)
    assert [(each.partition, each.start_offset, each.end_offset) for each in audit.ranges] == [(0, 0, SEGMENTS)]
    assert (job.name, job.pin_id, job.expires_at_ms) == (None, pin.pin_id, pin.expires_at_ms)

    await broker.pins.renew(pin.pin_id, ttl_ms=120_000)
    assert await stored(broker) == (version, (audit, job)), "a renewal alone writes nothing"
    await broker.pins.release(pin.pin_id)
    assert (await stored(broker))[1] == (audit,)
    await broker.pins.delete_snapshot("audit")
    assert (await stored(broker))[1] == ()


async def test_whoever_writes_the_checkpoint_for_another_reason_asks_for_pins_too(broker: Broker) -> None:
    await uploaded(broker)
    topic = broker.topics.find("orders")
    assert topic is not None
    await broker.pins.take(topic, name="audit", owner="", ttl_ms=None, asked=None, high_watermarks={0: SEGMENTS})
    broker.checkpoints.cluster_changed()
    await broker.checkpoints.write_stale()
    found = await broker.uploads.run(checkpoints.read_cluster_checkpoint, broker.store)
    assert found is not None
    assert [each.name for each in found.pins] == ["audit"]
