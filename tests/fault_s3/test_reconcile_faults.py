"""Reconcile and scrub behind an S3 that fails: what it does not answer, or damages on the way, is no finding."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fault_s3.tiering_broker import (
    NEVER_MS,
    committed,
    eventually,
    fill,
    make_topic,
    read_everything,
    tiering_broker,
)
from tiered.broker.broker import Broker
from tiered.broker.partitions.partition import Partition
from tiered.broker.reconcile.findings import Finding, FindingKind
from tiered.config import BrokerSettings
from tiered.config.setting import ConfigChange, ConfigOperation
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind

SEGMENTS = 4
ON_THE_WAY = (
    S3FaultKind.SERVER_ERROR,
    S3FaultKind.SLOW_DOWN,
    S3FaultKind.RESET,
    S3FaultKind.TRUNCATE,
    S3FaultKind.WHOLE,
    S3FaultKind.NO_CONTENT_RANGE,
)


@pytest.fixture
async def broker(tmp_path: Path, faults: FaultyS3) -> AsyncIterator[Broker]:
    async with tiering_broker(
        tmp_path,
        faults,
        tiered_reconcile_interval_ms=NEVER_MS,
        tiered_reconcile_period_ms=0,
        tiered_scrub_period_ms=1,
        tiered_scrub_max_bytes_per_second=1 << 40,
    ) as made:
        yield made


async def uploaded(broker: Broker) -> Partition:
    (partition,) = await make_topic(broker, "orders")
    fill(partition, SEGMENTS + 1, at_ms=broker.clock.now_ms())
    await eventually(lambda: partition.cold_end_offset == SEGMENTS)
    await eventually(lambda: broker.checkpoints.stale_count == 0)
    return partition


async def found(broker: Broker) -> list[Finding]:
    await broker.reconciler.round()
    return broker.reconciler.findings.all()


def asked(faults: FaultyS3) -> int:
    """Requests about segments: listings of them, and what was asked for by name."""
    return faults.count("GET", query_contains="segments") + faults.count("HEAD", path_contains="/segments/")


async def read_to_the_end(broker: Broker) -> None:
    """Returns when all objects were looked for and all chunks read once more."""
    turns, ended_ms = broker.reconciler.bucket.turns, broker.reconciler.scrub.turn_ended_at_ms
    scrub = broker.reconciler.scrub
    for _ in range(50):
        assert await found(broker) == []
        if broker.reconciler.bucket.turns > turns and scrub.turn_ended_at_ms > ended_ms:
            return
    raise AssertionError("50 rounds were not enough")


@pytest.mark.parametrize("seed", range(2))
async def test_faults_on_the_way_are_no_findings_and_the_turns_come_to_their_end(
    broker: Broker, faults: FaultyS3, seed: int
) -> None:
    await uploaded(broker)
    faults.misbehave(seed=seed, probability=0.3, kinds=ON_THE_WAY)
    await read_to_the_end(broker)
    faults.heal()
    await read_to_the_end(broker)


async def test_a_bit_that_flips_once_on_the_way_is_read_again(broker: Broker, faults: FaultyS3) -> None:
    await uploaded(broker)
    for _ in range(SEGMENTS):
        faults.inject(S3FaultKind.FLIP, method="GET", path_contains="/segments/", times=1)
        assert await found(broker) == []


@pytest.mark.parametrize(
    ("kind", "method"),
    [(S3FaultKind.ACCESS_DENIED, "GET"), (S3FaultKind.ACCESS_DENIED, "HEAD"), (S3FaultKind.RESET, "HEAD")],
)
async def test_a_store_that_refuses_is_no_store_that_lost_something(
    broker: Broker, faults: FaultyS3, kind: S3FaultKind, method: str
) -> None:
    await uploaded(broker)
    faults.inject(kind, method=method)
    for _ in range(2):
        assert await found(broker) == []
    faults.heal()
    await read_to_the_end(broker)


async def test_a_round_makes_no_more_requests_than_it_may(broker: Broker, faults: FaultyS3) -> None:
    partition = await uploaded(broker)
    budget = {"tiered.reconcile.max.requests": "3", "tiered.scrub.max.bytes.per.second": "0"}
    broker.state.settings = BrokerSettings.of(dict(broker.settings.static) | budget)
    for segment in partition.committed:
        broker.store.delete(segment.object_key)
    for _ in range(3):
        before = asked(faults)
        await broker.reconciler.round()
        assert asked(faults) - before <= 3
    told = {each.first_offset for each in broker.reconciler.findings.all()}
    assert told == set(range(SEGMENTS))
    assert {each.kind for each in broker.reconciler.findings.all()} == {FindingKind.MISSING}


async def test_scrubbing_stands_back_while_the_store_asks_to_slow_down(broker: Broker, faults: FaultyS3) -> None:
    await uploaded(broker)
    faults.inject(S3FaultKind.SLOW_DOWN, method="GET", times=1)
    await broker.reconciler.bucket.round()
    assert broker.store.slow_downs == 1
    await broker.reconciler.scrub.round()
    assert broker.counters.scrubbed_chunks == 0
    await broker.reconciler.scrub.round()
    assert broker.counters.scrubbed_chunks > 0


async def test_what_the_store_has_lost_stays_on_the_local_disk(broker: Broker, faults: FaultyS3) -> None:
    """A store that took an object, showed it, and does not have it: local retention must not take the last copy."""
    partition = await uploaded(broker)
    lost = (await committed(broker, partition))[1]
    broker.store.delete(lost.object_key)
    assert [each.kind for each in await found(broker)] == [FindingKind.MISSING]
    name = ConfigChange(name="local.retention.bytes", operation=ConfigOperation.SET, value="1")
    topic = broker.topics.by_name("orders")
    await broker.admin.alter_topic(topic, [name], keep_others=True, validate_only=False)
    await broker.retention.round()
    assert partition.log.local_log_start_offset == 1
    assert await read_everything(broker, partition) == list(range(SEGMENTS + 1))
    # It is held no longer than it is lost.
    await broker.lifecycle.move_log_start(partition, 2, is_explicit=True)
    await eventually(lambda: partition.log_start_offset == 2)
    await found(broker)
    await broker.retention.round()
    assert partition.log.local_log_start_offset == SEGMENTS
