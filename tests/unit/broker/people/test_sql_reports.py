"""What a broker tells SQL of its partitions: once for each change, positions by their leader alone."""

from pathlib import Path

from sqlalchemy import text

from tests.unit.broker.context import Surroundings, surroundings
from tests.unit.broker.replication.replicas import TOPIC_ID, replica, row, tell
from tests.unit.broker.tiering.tiers import tiers
from tiered.broker.partitions.topics import Topic, Topics
from tiered.broker.people.sql_reports import SqlReports


async def positions(made: Surroundings) -> list[int]:
    statement = text("SELECT log_end_offset FROM partition_position")
    return list(await made.context.database.run(lambda conn: conn.execute(statement).scalars().all()))


async def test_positions_are_reported_by_the_leader_and_again_when_they_change(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        partition, topics = replica(tmp_path, 1, min_insync_replicas=1), Topics()
        topics.put(
            Topic(
                name="t", topic_id=TOPIC_ID, partition_count=1, config=partition.config, overrides={},
                partitions=(partition,),
            )
        )  # fmt: skip
        reports = SqlReports(context=made.context, topics=topics)
        await reports.write()
        assert await positions(made) == [], "nobody leads"
        tell(partition, row(isr=(1,), replicas=(1,)))
        reports.note([partition])
        await reports.write()
        assert await positions(made) == [0]
        await made.context.database.run(lambda conn: conn.execute(text("DELETE FROM partition_position")))
        await reports.write_all()
        assert await positions(made) == [], "nothing has changed since"


async def test_sql_knows_since_when_a_record_is_on_disks_alone_until_the_store_has_it(tmp_path: Path) -> None:
    async with tiers(tmp_path) as made:
        partition = made.partition
        reports = SqlReports(context=made.context, topics=made.topics)

        async def since_ms() -> int | None:
            reports.note([partition])
            await reports.write()
            statement = text("SELECT disk_only_since_ms FROM partition_position")
            return await made.context.database.run(lambda conn: conn.execute(statement).scalar_one())

        assert await since_ms() == partition.log.segments[0].created_ms
        partition.log.roll(made.clock.now_ms())
        for segment in partition.log.segments[:-1]:
            await made.lifecycle.upload(partition, segment.base_offset)
        assert await since_ms() is None
