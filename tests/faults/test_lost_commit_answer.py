"""A change of the catalogue whose COMMIT was not answered: what SQL holds is taken over, whatever it is."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from tiered.broker.admin import NewTopic
from tiered.broker.broker import Broker
from tiered.broker.replaceable_parts import BrokerParts
from tiered.config import BrokerSettings, ServeOptions
from tiered.errors import MetadataOutcomeUnknown, TopicExists
from tiered.meta.engine import Database
from tiered.runtime import SystemClock

pytest_plugins = ["tests.postgres"]

DEADLINE_MS = 1_000
SLOW_COMMIT = """
CREATE FUNCTION sleep_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.name LIKE 'slow%' THEN PERFORM pg_sleep(2); END IF;
    IF NEW.name LIKE 'slow-fails%' THEN RAISE EXCEPTION 'as planned'; END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER sleeps AFTER INSERT ON topic DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION sleep_at_commit();
"""


@pytest.fixture
async def broker(postgres_url: str, tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker that waits a second for SQL, while the server gives a statement ten."""
    url = f"{postgres_url}&options=-c%20statement_timeout%3D10000%20-c%20lock_timeout%3D10000"
    options = ServeOptions(
        data_dir=tmp_path / "data",
        meta_url=url,
        store_url=f"file://{tmp_path / 'objects'}",
        rack="a",
        settings=BrokerSettings(),
    )
    made = Broker(options, SystemClock(), BrokerParts(database=Database.open(url, deadline_ms=DEADLINE_MS)))
    async with asyncio.TaskGroup() as tasks:
        await made.start(tasks, advertised=("127.0.0.1", 9092))
        await made.database.run(lambda conn: conn.execute(text(SLOW_COMMIT)))
        yield made
        made.begin_stop()
        await made.stop()


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not claim():
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_topic_that_was_created_without_an_answer_is_served_and_exists_for_whoever_asks_again(
    broker: Broker,
) -> None:
    with pytest.raises(MetadataOutcomeUnknown):
        await broker.admin.create_topic(NewTopic(name="slow", partition_count=2))
    assert broker.changes.outcome_unknown
    await until(lambda: broker.topics.find("slow") is not None)
    topic = broker.topics.by_name("slow")
    assert [partition.offsets.high_watermark for partition in topic.partitions] == [0, 0]
    with pytest.raises(TopicExists):
        await broker.admin.create_topic(NewTopic(name="slow"))


@pytest.mark.slow
async def test_a_topic_whose_creation_failed_without_an_answer_is_not_there_and_can_be_created(broker: Broker) -> None:
    with pytest.raises(MetadataOutcomeUnknown):
        await broker.admin.create_topic(NewTopic(name="slow-fails"))
    await until(lambda: not broker.changes.outcome_unknown)
    assert broker.topics.find("slow-fails") is None
    await broker.database.run(lambda conn: conn.execute(text("DROP TRIGGER sleeps ON topic")))
    await broker.admin.create_topic(NewTopic(name="slow-fails"))
    assert broker.topics.find("slow-fails") is not None
