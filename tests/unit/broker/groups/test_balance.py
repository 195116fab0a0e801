"""When slots move between brokers: at once where nobody has them, and never while there is nothing to do."""

import asyncio
import logging
from pathlib import Path

import pytest

from tests.catalogue import register
from tests.unit.broker.groups.coordinators import Coordinating, coordinating
from tiered.broker.groups.slot_balance import SlotBalance
from tiered.meta import brokers, cluster, coordinator_slots

OTHER = 2


async def look_at_the_cluster(broker: Coordinating) -> None:
    rows, slots = await broker.database.read(
        lambda conn: (brokers.load_all(conn), coordinator_slots.load_all(conn).values())
    )
    broker.image.put_brokers(rows, broker.context.clock.monotonic_ms())
    broker.image.put_slots(slots)


async def changes(broker: Coordinating) -> int:
    return await broker.database.read(lambda conn: cluster.load(conn).change_number)


async def test_a_new_broker_gets_its_half_and_then_nothing_is_asked_of_sql(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with coordinating(tmp_path, offsets_topic_num_partitions="8") as broker:
        balance = SlotBalance(context=broker.context, image=broker.image)
        moving = asyncio.create_task(balance.move_for_ever())
        await look_at_the_cluster(broker)
        before = await changes(broker)
        balance.look()
        await asyncio.sleep(0.05)
        assert await changes(broker) == before
        await broker.database.run(lambda conn: register(conn, OTHER))
        await look_at_the_cluster(broker)
        balance.look()
        async with asyncio.timeout(20):
            while {row.broker_id for row in broker.image.slots.values()} == {1}:
                await asyncio.sleep(0.02)
                await look_at_the_cluster(broker)
        assert sorted(row.broker_id for row in broker.image.slots.values()) == [1] * 4 + [OTHER] * 4
        broker.groups.slots_changed(broker.image.slots.values())
        assert (
            "transactional ids of 8 of 8 slots now: 8 that no broker coordinated were taken, "
            "none went to another broker" in caplog.text
        )
        assert "transactional ids of 4 of 8 slots now: none came from another broker, 4 went to broker 2" in caplog.text
        after = await changes(broker)
        balance.look()
        await asyncio.sleep(0.05)
        assert await changes(broker) == after
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)
