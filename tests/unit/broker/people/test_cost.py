"""What topics cost: bytes of both tiers by the prices of the settings, and what an upload took."""

from pathlib import Path

import pytest

from tests.catalogue import NOW_MS, create_topic, register, segment_plan
from tests.unit.broker.context import surroundings
from tiered.broker.partitions.topics import Topics
from tiered.broker.people.cost import GIB, cost
from tiered.meta import segments


async def test_committed_bytes_cost_by_the_month_and_their_uploads_once(tmp_path: Path) -> None:
    prices = {"tiered_price_cold_usd_per_gib_month": "2.0", "tiered_price_upload_usd_per_1000": "1000.0"}
    async with surroundings(tmp_path, **prices) as made:
        database = made.context.database
        await database.run(lambda conn: register(conn, 1))
        topic_id = (await database.run(create_topic)).topic_id
        plan = segment_plan(topic_id, 0, 10)
        await database.run(lambda conn: segments.plan(conn, plan))
        assert [each.upload_usd for each in (await cost(made.context, Topics())).topics] == [0.0], "not committed yet"
        await database.run(
            lambda conn: segments.commit(conn, plan.object_id, leader_epoch=0, now_ms=NOW_MS, size_bytes=GIB // 2)
        )
        (told,) = (await cost(made.context, Topics())).topics
        assert told.total_usd_per_month == pytest.approx(1.0)
        assert told.upload_usd >= 1.0
