"""Rounds of retention in a real broker whose clock the test sets: a jump deletes nothing, and a round has a bound."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.components.batches import batch
from tiered.broker.admin import NewTopic
from tiered.broker.broker import Broker
from tiered.broker.partitions.partition import Partition
from tiered.config import BrokerSettings, ServeOptions
from tiered.errors import PolicyViolation
from tiered.meta import segments
from tiered.rules.segments.retention import Why
from tiered.runtime import SystemClock

WAIT_S = 60.0
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NEVER_MS = 10**9


class AdjustedClock:
    """The machine's clocks, of which somebody has set the one on the wall."""

    def __init__(self) -> None:
        self._machine = SystemClock()
        self.set_ahead_ms = 0

    def now_ms(self) -> int:
        return self._machine.now_ms() + self.set_ahead_ms

    def monotonic_ms(self) -> float:
        return self._machine.monotonic_ms()

    def elapsed_ms(self) -> float:
        return self._machine.elapsed_ms()


@pytest.fixture
def clock() -> AdjustedClock:
    return AdjustedClock()


@pytest.fixture
async def broker(tmp_path: Path, clock: AdjustedClock) -> AsyncIterator[Broker]:
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
    made = Broker(options, clock)
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


async def reasons(broker: Broker, partition: Partition) -> list[Why]:
    return [each.why for each in (await broker.retention.explain(partition)).decided.verdicts]


async def test_a_clock_that_jumps_deletes_nothing_and_everybody_can_see_why(
    broker: Broker, clock: AdjustedClock, caplog: pytest.LogCaptureFixture
) -> None:
    partition = await uploaded(broker)
    broker.clock_watch.look()
    clock.set_ahead_ms = 10 * 366 * DAY_MS
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await broker.retention.round()
    assert partition.log_start_offset == 0
    assert (await reasons(broker, partition))[:5] == [Why.CLOCK_JUMPED] * 5
    assert broker.counters.retention_clock_ahead_ms > 9 * 366 * DAY_MS
    (said,) = [each.getMessage() for each in caplog.records if "retention by age" in each.getMessage()]
    assert "tiered.retention.max.clock.jump.ms" in said

    clock.set_ahead_ms = 0
    await broker.retention.round()
    assert broker.counters.retention_clock_ahead_ms == 0
    assert (await reasons(broker, partition))[:5] == [Why.WITHIN_RETENTION] * 5
    assert partition.log_start_offset == 0


async def test_somebody_who_knows_better_can_say_that_the_clock_is_right(broker: Broker, clock: AdjustedClock) -> None:
    partition = await uploaded(broker)
    broker.clock_watch.look()
    clock.set_ahead_ms = 2 * DAY_MS
    await broker.retention.round()
    assert partition.log_start_offset == 0
    static = {"tiered.retention.max.clock.jump.ms": "-1", "tiered.retention.max.segments": "100"}
    broker.state.settings = BrokerSettings.of({**broker.settings.static, **static})
    await broker.retention.round()
    assert partition.log_start_offset == 5


async def test_a_round_takes_so_many_segments_at_the_most_as_it_was_explained(broker: Broker) -> None:
    partition = await uploaded(broker, **{"retention.bytes": "0", "local.retention.bytes": "0"})
    for log_start_offset in (2, 4, 5):
        decided = (await broker.retention.explain(partition)).decided
        assert decided.delete_before_offset == log_start_offset
        await broker.retention.round()
        assert partition.log_start_offset == log_start_offset


async def test_a_jump_ends_no_grace_of_what_was_retired(broker: Broker, clock: AdjustedClock) -> None:
    partition = await uploaded(broker, **{"retention.bytes": "0", "local.retention.bytes": "0"})
    await broker.retention.round()
    where = partition.topic_partition
    objects = (await broker.retention.explain(partition)).retired
    assert [(each.base_offset, each.is_pinned) for each in objects] == [(0, False), (1, False)]
    clock.set_ahead_ms = 10 * DAY_MS
    await broker.lifecycle.sweep()
    assert (await broker.retention.explain(partition)).retired == objects
    clock.set_ahead_ms = 0
    rows = await broker.database.read(lambda conn: segments.list_committed(conn, where.topic_id, where.partition))
    assert [row.base_offset for row in rows] == [2, 3, 4]


async def test_retention_goes_up_to_a_pin_and_waits_there(broker: Broker) -> None:
    partition = await uploaded(broker, **{"retention.bytes": "0", "local.retention.bytes": "0"})
    topic = broker.topics.by_name("orders")
    made = await broker.pins.create_snapshot(
        topic, name="kept", owner="", ttl_ms=None, asked=None, high_watermarks={0: partition.high_watermark}
    )
    assert [(each.start_offset, each.end_offset) for each in made.ranges] == [(0, 6)]
    pin = await broker.pins.take(topic, owner="job", ttl_ms=None, asked=None, high_watermarks={0: 6})
    await broker.retention.round()
    assert partition.log_start_offset == 0
    with pytest.raises(PolicyViolation, match="snapshot kept"):
        await broker.admin.delete_records(partition, 3)
    await broker.pins.delete_snapshot("kept")
    assert (await broker.retention.explain(partition)).decided.verdicts[0].why is Why.PINNED
    # An administrator need not wait for a job.
    assert await broker.admin.delete_records(partition, 1) == 1
    await broker.retention.round()
    assert partition.log_start_offset == 1
    await broker.pins.release(pin.pin_id)
    await broker.retention.round()
    assert partition.log_start_offset == 3
