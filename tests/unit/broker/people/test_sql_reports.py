"""What a broker tells SQL of its partitions: once for each change, positions by their leader alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, text

from tests.unit.broker.context import Surroundings, surroundings
from tests.unit.broker.replication.replicas import TOPIC_ID, replica, row, tell
from tests.unit.broker.tiering.tiers import tiers
from tiered.broker.partitions.topics import Topic, Topics
from tiered.broker.people import sql_reports
from tiered.broker.people.sql_reports import SqlReports
from tiered.ids import TopicId, TopicPartition
from tiered.meta import broker_reports


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


async def test_a_transaction_reports_few_partitions_so_that_commits_wait_for_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_reports, "PARTITIONS_AT_ONCE", 2)
    reported = list[int]()
    replace = broker_reports.replace_local_segments

    def counted(conn: Connection, *, of_partitions: Sequence[Any] | None, **options: Any) -> None:
        reported.append(-1 if of_partitions is None else len(of_partitions))
        replace(conn, of_partitions=of_partitions, **options)

    monkeypatch.setattr(broker_reports, "replace_local_segments", counted)
    async with surroundings(tmp_path) as made:
        topics = Topics()
        for number in range(5):
            topic_id = TopicId(UUID(int=number + 1))
            partition = replica(tmp_path / str(number), 1, min_insync_replicas=1)
            partition.topic_partition = TopicPartition(topic_id, 0)
            topics.put(
                Topic(
                    name=f"t{number}", topic_id=topic_id, partition_count=1, config=partition.config, overrides={},
                    partitions=(partition,),
                )
            )  # fmt: skip
        reports = SqlReports(context=made.context, topics=topics)
        await reports.write()
        assert reported == [-1, 2, 2, 1], "what the process before has reported goes first"
        await reports.write_all()
        assert len(reported) == 4, "nothing has changed since"
