"""Uploads of many partitions through a store that goes away and comes back: bounded, in turns, oldest first."""

from pathlib import Path

from tests.fault_s3.tiering_broker import (
    committed,
    eventually,
    fill,
    make_topic,
    read_everything,
    tiering_broker,
    uploaded,
)
from tiered.rules.pacing import upload_pace
from tiered.testing.faulty_s3 import FaultKind, FaultyS3

HOUR_MS = 3_600_000


async def test_a_backlog_drains_oldest_first_and_a_long_one_starves_no_other_topic(
    faults: FaultyS3, tmp_path: Path
) -> None:
    async with tiering_broker(tmp_path, faults, tiered_upload_concurrency=1) as broker:
        faults.inject(FaultKind.SERVER_ERROR, times=None)
        now_ms = broker.clock.now_ms()
        young, old = await make_topic(broker, "huge", partitions=2)
        fill(old, 13, at_ms=now_ms - 3 * HOUR_MS)
        fill(young, 5, at_ms=now_ms - 2 * HOUR_MS)
        await eventually(lambda: broker.counters.uploads_failed > 0)
        small = [(await make_topic(broker, f"small-{number}"))[0] for number in range(3)]
        for number, partition in enumerate(small):
            fill(partition, 2, at_ms=now_ms - HOUR_MS + number)
        # Once it has been looked for what is due, all of it is.
        looked = broker.counters.uploads_failed
        await eventually(lambda: broker.counters.uploads_failed > looked)
        faults.heal()
        everything = [old, young, *small]
        await eventually(lambda: all(each.cold_end_offset == each.high_watermark - 1 for each in everything))
        order = uploaded(faults)
        assert len(order) == len(set(order)) == 12 + 4 + 3
        last = max(order.index((f"small-{number}", 0, 0)) for number in range(3))
        assert last <= 4, f"one topic's backlog held up the others: {order}"
        huge = [(partition, base) for topic, partition, base in order if topic == "huge"]
        assert huge == [*((1, base) for base in range(12)), *((0, base) for base in range(4))]
        assert [await read_everything(broker, each) for each in everything] == [
            list(range(each.high_watermark)) for each in everything
        ]


async def test_while_the_store_is_away_producing_goes_on_and_one_upload_asks_for_all(
    faults: FaultyS3, tmp_path: Path
) -> None:
    async with tiering_broker(tmp_path, faults, tiered_upload_concurrency=4, log_local_retention_bytes=0) as broker:
        partitions = await make_topic(broker, "orders", partitions=6)
        now_ms = broker.clock.now_ms()
        for each in partitions:
            fill(each, 2, at_ms=now_ms)
        await eventually(lambda: all(each.cold_end_offset == 1 for each in partitions))
        await broker.retention.round()
        assert all(each.log.local_log_start_offset == 1 for each in partitions), "local retention is at work"

        faults.inject(FaultKind.SERVER_ERROR, times=None)
        for each in partitions:
            fill(each, 1, at_ms=now_ms + 1)
        await eventually(lambda: broker.upload_pipeline.allowed == 1)
        await broker.retention.round()
        for each in partitions:
            fill(each, 1, at_ms=now_ms + 2)
            assert (each.log.local_log_start_offset, each.cold_end_offset, each.high_watermark) == (1, 1, 4)

        faults.heal()
        await eventually(lambda: all(each.cold_end_offset == 3 for each in partitions))
        assert broker.upload_pipeline.allowed == 4
        for each in partitions:
            rows = await committed(broker, each)
            assert [(row.base_offset, row.end_offset) for row in rows] == [(base, base + 1) for base in range(3)]


async def test_a_partition_that_the_store_refuses_alone_holds_up_nobody(faults: FaultyS3, tmp_path: Path) -> None:
    async with tiering_broker(tmp_path, faults, tiered_upload_concurrency=1) as broker:
        refused, other = await make_topic(broker, "orders", partitions=2)
        faults.inject(FaultKind.ACCESS_DENIED, method="PUT", path_contains="/segments/", times=1)
        now_ms = broker.clock.now_ms()
        fill(refused, 2, at_ms=now_ms - HOUR_MS)
        await eventually(lambda: broker.counters.uploads_failed == 1)
        fill(other, 3, at_ms=now_ms)
        await eventually(lambda: (refused.cold_end_offset, other.cold_end_offset) == (1, 2))
        assert broker.counters.uploads_failed == 1
        assert upload_pace.FIRST_REST_MS <= 1_000, "or this test takes too long"
