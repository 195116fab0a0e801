"""Uploads of many partitions through a store that goes away and comes back: bounded, in turns, oldest first."""

from pathlib import Path

from tests.fault_s3.tiering_broker import committed, eventually, fill, make_topic, tiering_broker
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind


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

        faults.inject(S3FaultKind.SERVER_ERROR, times=None)
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
