"""Uploads switched off and on again at run time, or asked to lag: nothing is lost, and nothing goes twice."""

from pathlib import Path
from uuid import uuid4

import pytest

from tests.fault_s3.tiering_broker import (
    committed,
    eventually,
    fill,
    make_topic,
    read_everything,
    tiering_broker,
    uploaded,
)
from tiered.broker.broker import Broker
from tiered.broker.partitions.partition import Partition
from tiered.broker.tiering import tier_plan
from tiered.config.setting import ConfigChange, ConfigOperation
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind

HOUR_MS = 3_600_000
UNTIL_HEALED_S = 60.0


async def alter(broker: Broker, name: str, **configs: object) -> None:
    steps = [
        ConfigChange(name=key.replace("_", "."), operation=ConfigOperation.SET, value=str(value))
        for key, value in configs.items()
    ]
    await broker.admin.alter_topic(broker.topics.by_name(name), steps, keep_others=True, validate_only=False)


def first(broker: Broker, name: str) -> Partition:
    return broker.topics.by_name(name).partition(0)


def nothing_is_due(broker: Broker, partition: Partition) -> bool:
    far_ahead_ms = broker.clock.now_ms() + 1000 * HOUR_MS
    return tier_plan.due_upload(partition, far_ahead_ms) is None and tier_plan.overdue_bytes(partition, 0) == 0


@pytest.mark.parametrize(
    ("off", "on"),
    [
        ({"remote_storage_enable": "false"}, {"remote_storage_enable": "true"}),
        ({"remote_log_copy_disable": "true"}, {"remote_log_copy_disable": "false"}),
    ],
    ids=["remote.storage.enable", "remote.log.copy.disable"],
)
async def test_a_topic_paused_in_the_middle_of_an_upload_goes_on_where_it_was(
    faults: FaultyS3, tmp_path: Path, off: dict[str, str], on: dict[str, str]
) -> None:
    prefix = f"p-{uuid4()}"
    async with tiering_broker(tmp_path, faults, prefix=prefix, log_local_retention_bytes=0) as broker:
        (partition,) = await make_topic(broker, "orders")
        (other,) = await make_topic(broker, "others")
        now_ms = broker.clock.now_ms()
        fill(partition, 3, at_ms=now_ms)
        await eventually(lambda: partition.cold_end_offset == 2)
        faults.inject(S3FaultKind.DELAY, method="PUT", path_contains="/segments/", seconds=UNTIL_HEALED_S)
        fill(partition, 3, at_ms=now_ms)
        await eventually(lambda: any(seen.fault is S3FaultKind.DELAY for seen in faults.seen))
        await alter(broker, "orders", **off)
        faults.heal()
        # What was on its way arrives; the rest stays, and the pause is this topic's alone.
        await eventually(lambda: partition.cold_end_offset == 3)
        await eventually(lambda: broker.upload_pipeline.running == 0)
        assert nothing_is_due(broker, partition)
        fill(partition, 4, at_ms=now_ms)
        fill(other, 2, at_ms=now_ms)
        await eventually(lambda: other.cold_end_offset == 1)
        await broker.retention.round()
        assert partition.log.local_log_start_offset <= 3, "local retention took what only the disk had"
        assert partition.cold_end_offset == 3
        assert await read_everything(broker, partition) == list(range(10))

    async with tiering_broker(tmp_path, faults, prefix=prefix, log_local_retention_bytes=0) as broker:
        partition = first(broker, "orders")
        assert nothing_is_due(broker, partition)
        assert await read_everything(broker, partition) == list(range(10))
        await alter(broker, "orders", **on)
        await eventually(lambda: partition.cold_end_offset == 9)
        await broker.retention.round()
        assert partition.log.local_log_start_offset == 9
        assert await read_everything(broker, partition) == list(range(10))
        rows = await committed(broker, partition)
        assert [(row.base_offset, row.end_offset) for row in rows] == [(base, base + 1) for base in range(9)]
        previous = ["0" * 64, *(row.root_sha256 for row in rows)]
        assert [row.previous_root_sha256 for row in rows] == previous[:-1]
    orders = [each for each in uploaded(faults) if each[0] == "orders"]
    assert orders == [("orders", 0, base) for base in range(9)], "each segment went once, in order"


@pytest.mark.parametrize("how", ["remote_storage_enable", "remote_log_copy_disable"])
async def test_total_retention_goes_on_while_uploads_are_switched_off(
    faults: FaultyS3, tmp_path: Path, how: str
) -> None:
    async with tiering_broker(tmp_path, faults) as broker:
        (partition,) = await make_topic(broker, "orders", retention_bytes=1_800, local_retention_bytes=-2)
        now_ms = broker.clock.now_ms()
        fill(partition, 3, at_ms=now_ms)
        await eventually(lambda: partition.cold_end_offset == 2)
        await alter(broker, "orders", **{how: "false" if how == "remote_storage_enable" else "true"})
        fill(partition, 9, at_ms=now_ms)
        await broker.retention.round()
        start = partition.log_start_offset
        assert start > 2, "the disk would fill for as long as uploads are off"
        assert (partition.cold_end_offset, partition.log.local_log_start_offset) == (start, start)
        await alter(broker, "orders", **{how: "true" if how == "remote_storage_enable" else "false"})
        await eventually(lambda: partition.cold_end_offset == 11)
        assert await read_everything(broker, partition) == list(range(start, 12))
        assert [base for _, _, base in uploaded(faults)] == [0, 1, *range(start, 11)]


async def test_a_segment_waits_for_its_lag_by_age_or_by_size_whichever_ends_first(
    faults: FaultyS3, tmp_path: Path
) -> None:
    async with tiering_broker(tmp_path, faults) as broker:
        (by_size,) = await make_topic(broker, "by-size", remote_copy_lag_ms=-1, remote_copy_lag_bytes=1_200)
        (by_age,) = await make_topic(broker, "by-age", remote_copy_lag_ms=HOUR_MS, remote_copy_lag_bytes=-1)
        now_ms = broker.clock.now_ms()
        fill(by_age, 2, at_ms=now_ms - 2 * HOUR_MS)
        fill(by_age, 2, at_ms=now_ms)
        fill(by_size, 6, at_ms=now_ms - 2 * HOUR_MS)
        size_bytes = by_size.log.segments[0].size_bytes
        kept = -(-1_200 // size_bytes)
        await eventually(lambda: (by_age.cold_end_offset, by_size.cold_end_offset) == (2, 6 - kept))
        for each in (by_age, by_size):
            assert tier_plan.due_upload(each, broker.clock.now_ms()) is None
        # What may lag still counts as not uploaded: local retention leaves it.
        await broker.retention.round()
        assert by_age.log.log_end_offset == 4
        await alter(broker, "by-age", remote_copy_lag_ms=0)
        await alter(broker, "by-size", remote_copy_lag_bytes=0)
        await eventually(lambda: (by_age.cold_end_offset, by_size.cold_end_offset) == (3, 5))
