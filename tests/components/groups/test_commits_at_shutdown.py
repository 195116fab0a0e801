"""Commits that wait when a broker stops: they are in SQL before the broker has gone."""

import asyncio
from pathlib import Path

from sqlalchemy import text

from tiered.broker.admin import NewTopic
from tiered.broker.broker import Broker
from tiered.broker.groups.committed_offsets import OffsetEntry
from tiered.broker.groups.values import Fence
from tiered.config import BrokerSettings, ServeOptions
from tiered.meta.engine import Database
from tiered.runtime import SystemClock


async def test_what_waits_at_shutdown_is_written(tmp_path: Path) -> None:
    options = ServeOptions(
        data_dir=tmp_path / "data",
        meta_url=f"sqlite:///{tmp_path / 'meta.db'}",
        store_url=f"file://{tmp_path / 'objects'}",
        settings=BrokerSettings.of({"tiered.offset.commit.linger.ms": "300"}),
    )
    made = Broker(options, SystemClock())
    async with asyncio.TaskGroup() as tasks:
        await made.start(tasks, advertised=("127.0.0.1", 9092))
        await made.admin.create_topic(NewTopic(name="orders"))
        slot = made.groups.slot("billing")
        fence = Fence(group_id="billing", slot=slot, tenure=made.groups.slots.tenure(slot), generation=0)
        entry = OffsetEntry(topic_id=made.topics.by_name("orders").topic_id, partition=0, offset=5)
        waiting = made.groups.offsets.submit(fence, [entry])
        made.begin_stop()
        await made.stop()
        await waiting
    database = Database.open(options.meta_url)
    found = await database.run(lambda conn: conn.execute(text("SELECT committed_offset FROM group_offset")).all())
    await database.close()
    assert found == [(5,)]
