"""The database after its migrations: the tables that the code describes, and the views that docs/sql.md promises."""

import re
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError

from tests.catalogue import HOUR_MS, NOW_MS, create_topic, register, segment_plan
from tests.contracts.segment_rows import add
from tiered.ids import InSyncReplica
from tiered.meta import broker_reports, migrations, partitions, replacements, segments, topics, views
from tiered.meta.broker_reports import LocalSegmentRow
from tiered.meta.elections import change_replica_sets
from tiered.meta.engine import Database
from tiered.meta.replacements import NewObject, WrittenObject
from tiered.meta.tables import group_offset, metadata
from tiered.rules.replication.elections import after_failure
from tiered.rules.replication.replica_set import ReplicaSet, Standings

pytest_plugins = ["tests.meta_databases"]


def test_the_migrations_build_the_tables_that_the_code_describes(database: Database) -> None:
    def differences(conn: Connection) -> object:
        context = MigrationContext.configure(conn, opts={"compare_type": True})
        return compare_metadata(context, metadata)

    assert database.run_sync(differences) == []


def test_check_constraints_and_partial_indexes_are_those_of_the_code(database_url: str, database: Database) -> None:
    """alembic does not compare them, so a database made from the tables alone is laid beside the migrated one."""

    def catalogue(conn: Connection) -> dict[str, object]:
        found: dict[str, object] = {}
        for table in metadata.sorted_tables:
            checks = inspect(conn).get_check_constraints(table.name)
            indexes = inspect(conn).get_indexes(table.name)
            found[table.name] = (
                sorted((check["name"], " ".join(check["sqltext"].split())) for check in checks),
                sorted(
                    (str(index["name"]), sorted((key, str(value)) for key, value in index["dialect_options"].items()))
                    for index in indexes
                ),
            )
        return found

    migrated = database.run_sync(catalogue)

    def rebuild(conn: Connection) -> dict[str, object]:
        views.remove(conn, migrations.REVISIONS[-1])
        metadata.drop_all(conn)
        metadata.create_all(conn)
        return catalogue(conn)

    assert database.run_sync(rebuild) == migrated


def test_the_revisions_known_without_alembic_are_those_on_disk() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    scripts = ScriptDirectory.from_config(config)
    assert tuple(reversed([script.revision for script in scripts.walk_revisions()])) == migrations.REVISIONS


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE partition SET log_start_offset = cold_end_offset + 1",
        "UPDATE partition SET log_start_offset = -1",
        "UPDATE segment SET state = 'lost'",
        "UPDATE segment SET end_offset = base_offset",
        "UPDATE segment SET state = 'committed', base_offset = 0",
        "INSERT INTO cluster VALUES (2, 'another', 0, 0, 0, 0, NULL, NULL, '[]')",
    ],
)
def test_the_database_itself_refuses_what_the_invariants_forbid(database: Database, statement: str) -> None:
    topic_id = database.run_sync(create_topic).topic_id
    plans = [segment_plan(topic_id, 0, 10), segment_plan(topic_id, 5, 10)]
    for plan in plans:
        database.run_sync(partial(segments.plan, wanted=plan))
    database.run_sync(lambda conn: segments.commit(conn, plans[0].object_id, leader_epoch=0, now_ms=NOW_MS))
    with pytest.raises(DBAPIError):
        database.run_sync(lambda conn: conn.execute(text(statement)))


# Views


def selected(database: Database, statement: str) -> list[tuple[object, ...]]:
    return database.run_sync(lambda conn: [tuple(row) for row in conn.execute(text(statement))])


def test_every_view_has_its_documented_columns_in_order(database: Database) -> None:
    def columns(conn: Connection, view: str) -> tuple[str, ...]:
        return tuple(conn.execute(text(f"SELECT * FROM {view}")).keys())

    for view in views.REVISIONS[migrations.REVISIONS[-1]]:
        assert database.run_sync(partial(columns, view=view.name)) == view.columns


def local(
    topic_id: UUID, base: int, end: int, *, closed: bool = True, partition: int = 0
) -> broker_reports.LocalSegmentRow:
    return broker_reports.LocalSegmentRow(
        topic_id=topic_id,
        partition=partition,
        base_offset=base,
        end_offset=end,
        size_bytes=77,
        closed=closed,
        min_timestamp_ms=1,
        max_timestamp_ms=2,
    )


def test_v_segments_shows_a_joined_object_once_also_where_the_disk_has_it_in_pieces(database: Database) -> None:
    database.run_sync(lambda conn: register(conn, 2))
    topic_id = database.run_sync(create_topic).topic_id
    rows = [add(database, topic_id, base, base + 10) for base in (0, 10, 20)]
    new = NewObject(before=tuple(rows[:2]), object_id=UUID(int=9), object_key="segments/joined")
    (plan,) = database.run_sync(lambda conn: replacements.plan(conn, [new], timeout_ms=1))
    written = WrittenObject(
        object_id=plan.object_id,
        before=tuple(each.object_id for each in rows[:2]),
        size_bytes=9,
        log_bytes=8,
        min_timestamp_ms=1,
        max_timestamp_ms=2,
        max_timestamp_is_proven=True,
        record_count=20,
        root_sha256="c" * 64,
    )
    database.run_sync(lambda conn: replacements.swap(conn, topic_id, 0, [written], purge_grace_ms=0))

    def shown(*on_disk: LocalSegmentRow) -> list[tuple[Any, ...]]:
        report = partial(broker_reports.replace_local_segments, broker_id=1, of_partitions=None, now_ms=NOW_MS)
        database.run_sync(lambda conn: report(conn, segments=on_disk))
        return selected(
            database,
            "SELECT base_offset, end_offset, tier FROM v_segments WHERE state <> 'retired' ORDER BY base_offset, tier",
        )

    pieces = [local(topic_id, base, base + 10) for base in (0, 10, 20, 30)]
    assert shown(*pieces) == [(0, 20, "both"), (20, 30, "both"), (30, 40, "hot")]
    # Of the joined object only a part is left on the disk, and then nothing.
    assert shown(*pieces[1:]) == [(0, 20, "both"), (20, 30, "both"), (30, 40, "hot")]
    assert shown(*pieces[2:]) == [(0, 20, "cold"), (20, 30, "both"), (30, 40, "hot")]


def test_v_segments_says_where_each_range_of_offsets_is(database: Database) -> None:
    database.run_sync(lambda conn: register(conn, 2))
    topic_id = database.run_sync(create_topic).topic_id
    plans = [segment_plan(topic_id, base, base + 10) for base in range(0, 50, 10)]
    for plan in plans:
        database.run_sync(partial(segments.plan, wanted=plan))
    for plan in plans[:3]:
        database.run_sync(partial(segments.commit, object_id=plan.object_id, leader_epoch=0, now_ms=NOW_MS))
    database.run_sync(
        lambda conn: segments.retire_before(
            conn, topic_id, 0, leader_epoch=0, new_log_start_offset=10, now_ms=NOW_MS, purge_after_ms=NOW_MS
        )
    )
    database.run_sync(lambda conn: segments.abandon(conn, [plans[4].object_id], now_ms=NOW_MS))
    on_disk = [local(topic_id, 20, 30), local(topic_id, 30, 40), local(topic_id, 40, 50)]
    on_disk.append(local(topic_id, 50, 53, closed=False))
    for broker_id in (1, 2):
        database.run_sync(
            partial(
                broker_reports.replace_local_segments,
                broker_id=broker_id,
                of_partitions=None,
                segments=on_disk,
                now_ms=NOW_MS,
            )
        )
    position = broker_reports.PartitionPosition(
        topic_id=topic_id, partition=0, high_watermark=53, log_end_offset=53, disk_only_since_ms=NOW_MS
    )
    database.run_sync(partial(broker_reports.report_positions, positions=[position], now_ms=NOW_MS))
    rows = selected(
        database,
        "SELECT base_offset, end_offset, tier, state, size_bytes, object_key, disk_only_since_ms FROM v_segments "
        "WHERE topic = 'orders' AND partition = 0 ORDER BY base_offset",
    )
    assert rows == [
        (0, 10, "cold", "retired", plans[0].size_bytes, plans[0].object_key, None),
        (10, 20, "cold", "committed", plans[1].size_bytes, plans[1].object_key, None),
        (20, 30, "both", "committed", plans[2].size_bytes, plans[2].object_key, None),
        (30, 40, "hot", "planned", plans[3].size_bytes, plans[3].object_key, NOW_MS),
        (40, 50, "hot", "closed", 77, None, NOW_MS),
        (50, 53, "hot", "open", 77, None, NOW_MS),
    ]
    database.run_sync(lambda conn: topics.delete_topic(conn, topic_id, now_ms=NOW_MS, purge_after_ms=NOW_MS))
    assert selected(database, "SELECT * FROM v_segments") == []


def test_v_lag_is_what_a_group_has_still_to_read(database: Database) -> None:
    topic_id = database.run_sync(lambda conn: create_topic(conn, assignments=[(1,)] * 4)).topic_id

    def fill(conn: Connection) -> None:
        about = {"topic_id": topic_id, "leader_epoch": 0, "metadata": "", "committed_at_ms": NOW_MS}
        offsets = [(0, 40), (1, 10), (2, 5), (3, -1)]
        rows = [
            {"group_id": "billing", "partition": partition, "committed_offset": offset, **about}
            for partition, offset in offsets
        ]
        conn.execute(group_offset.insert(), rows)
        positions = [
            broker_reports.PartitionPosition(topic_id=topic_id, partition=0, high_watermark=100, log_end_offset=101),
            broker_reports.PartitionPosition(topic_id=topic_id, partition=1, high_watermark=8, log_end_offset=8),
            broker_reports.PartitionPosition(topic_id=topic_id, partition=3, high_watermark=8, log_end_offset=8),
        ]
        broker_reports.report_positions(conn, positions, now_ms=NOW_MS + 1)

    database.run_sync(fill)
    assert selected(database, "SELECT * FROM v_lag ORDER BY partition") == [
        ("billing", "orders", 0, 40, 100, 60, NOW_MS, NOW_MS + 1),
        ("billing", "orders", 1, 10, 8, 0, NOW_MS, NOW_MS + 1),
        ("billing", "orders", 2, 5, None, None, NOW_MS, None),
        ("billing", "orders", 3, -1, 8, None, NOW_MS, NOW_MS + 1),
    ]


def test_v_overdue_uploads_lists_what_should_have_ended(database: Database) -> None:
    topic_id = database.run_sync(create_topic).topic_id
    now_ms = time.time_ns() // 1_000_000
    late = segment_plan(topic_id, 0, 10, planned_at_ms=now_ms - 2 * HOUR_MS)
    on_time = segment_plan(topic_id, 10, 20, planned_at_ms=now_ms)
    for plan in (late, on_time):
        database.run_sync(partial(segments.plan, wanted=plan))
    ((topic, base, owner, abandoned, overdue_ms),) = selected(
        database, "SELECT topic, base_offset, owner, abandoned, overdue_ms FROM v_overdue_uploads"
    )
    assert (topic, base, owner, bool(abandoned)) == ("orders", 0, 1, False)
    assert isinstance(overdue_ms, int)
    assert HOUR_MS - 1_000 < overdue_ms < HOUR_MS + 60_000


def test_v_topic_cost_counts_what_is_stored_and_where(database: Database) -> None:
    topic_id = database.run_sync(create_topic).topic_id
    database.run_sync(lambda conn: create_topic(conn, "empty"))
    plans = [segment_plan(topic_id, base, base + 10) for base in (0, 10, 20)]
    for plan in plans:
        database.run_sync(partial(segments.plan, wanted=plan))
    for plan in plans[:2]:
        database.run_sync(partial(segments.commit, object_id=plan.object_id, leader_epoch=0, now_ms=NOW_MS))
    database.run_sync(
        lambda conn: segments.retire_before(
            conn, topic_id, 0, leader_epoch=0, new_log_start_offset=10, now_ms=NOW_MS, purge_after_ms=NOW_MS
        )
    )
    database.run_sync(
        lambda conn: broker_reports.replace_local_segments(
            conn, broker_id=1, of_partitions=None, segments=[local(topic_id, 20, 30)], now_ms=NOW_MS
        )
    )
    rows = selected(
        database,
        "SELECT topic, deleted, cold_objects, cold_bytes, cold_records, retired_objects, retired_bytes, "
        "planned_bytes, local_bytes FROM v_topic_cost ORDER BY topic",
    )
    size = plans[0].size_bytes
    assert rows == [("empty", False, 0, 0, 0, 0, 0, 0, 0), ("orders", False, 1, size, 10, 1, size, size, 77)]
    assert database.run_sync(lambda conn: partitions.load(conn, topic_id, 0)).cold_end_offset == 20


def test_v_partitions_counts_who_is_in_sync_and_serves(database: Database) -> None:
    epochs = [1, *(database.run_sync(partial(register, broker_id=each)) for each in (2, 3))]
    database.run_sync(lambda conn: create_topic(conn, assignments=[(2, 3, 1), (1,)]))
    wanted = "SELECT topic, partition, leader, preferred_leader, leader_epoch, replicas, in_sync, under_replicated, "
    wanted += "reassigning, high_watermark, disk_only_since_ms FROM v_partitions ORDER BY partition"
    alone = ("orders", 1, 1, 1, 0, 1, 1, False, False, None, None)
    assert selected(database, wanted) == [("orders", 0, 2, 2, 0, 3, 3, False, False, None, None), alone]
    dead = InSyncReplica(2, epochs[1])

    def move(row: partitions.PartitionRow, _: Standings) -> ReplicaSet | None:
        moved = replace(row.replica_set, adding_replicas=(1,), removing_replicas=(2,))
        return moved if row.partition == 0 else None

    def fail_and_move(conn: Connection) -> None:
        change_replica_sets(conn, lambda row, now: after_failure(row.replica_set, now, min_isr=3), fence=[dead])
        change_replica_sets(conn, move)
        position = broker_reports.PartitionPosition(
            topic_id=topics.load_all(conn)[0].topic_id,
            partition=0,
            high_watermark=7,
            log_end_offset=9,
            disk_only_since_ms=NOW_MS,
        )
        broker_reports.report_positions(conn, [position], now_ms=NOW_MS)

    database.run_sync(fail_and_move)
    # The dead one keeps its place in the ISR, and is not counted.
    assert selected(database, wanted) == [("orders", 0, 3, 2, 1, 3, 2, True, True, 7, NOW_MS), alone]
    # It is back, and has lost what it had.
    database.run_sync(lambda conn: register(conn, 2))
    assert selected(database, wanted)[0][6:8] == (2, True)


# docs/sql.md

GUIDE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()


def test_every_query_of_the_guide_runs(database: Database) -> None:
    queries = re.findall(r"```sql\n(.*?)```", GUIDE, re.DOTALL)
    statements = [statement for query in queries for statement in query.split(";") if statement.strip()]
    assert len(statements) >= 6

    def run(conn: Connection, statement: str) -> None:
        conn.exec_driver_sql(statement).all()

    database.run_sync(create_topic)
    for statement in statements:
        database.run_sync(partial(run, statement=statement))


def test_the_guide_names_every_column_of_every_view_and_every_table() -> None:
    for view in views.REVISIONS[migrations.REVISIONS[-1]]:
        section = GUIDE.partition(f"### `{view.name}`")[2].partition("\n##")[0]
        missing = [column for column in view.columns if f"`{column}`" not in section]
        assert not missing, f"docs/sql.md does not explain {missing} of {view.name}"
    assert [table for table in metadata.tables if f"`{table}`" not in GUIDE] == []
