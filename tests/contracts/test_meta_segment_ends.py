"""How segments end on SQLite and on PostgreSQL: retired, abandoned, purged; whoever asks, and wherever it dies."""

import asyncio
from functools import partial
from uuid import UUID

import pytest
from sqlalchemy.exc import IntegrityError

from tests.catalogue import HOUR_MS, NOW_MS, create_topic, elect, open_ready, register, segment_plan
from tests.contracts.segment_rows import add, bounds, commit, committed, new_leader, plan, retire, run_until_killed
from tiered.errors import FencedLeaderEpoch, LostRace
from tiered.meta import segments, topics
from tiered.meta.engine import Database
from tiered.meta.segments import SegmentRow
from tiered.rules.segments.segment_states import SegmentState

pytest_plugins = ["tests.meta_databases"]


@pytest.fixture
def topic_id(database: Database) -> UUID:
    return database.run_sync(create_topic).topic_id


# Retiring and purging


def test_retiring_moves_log_start_offset_and_the_rows_below_it(database: Database, topic_id: UUID) -> None:
    for base in (0, 10, 20):
        add(database, topic_id, base, base + 10)
    retired = retire(database, topic_id, 25)
    assert [(row.base_offset, row.state, row.purge_after_ms) for row in retired] == [
        (0, SegmentState.RETIRED, NOW_MS + HOUR_MS),
        (10, SegmentState.RETIRED, NOW_MS + HOUR_MS),
    ]
    assert committed(database, topic_id) == [(20, 30)]
    assert bounds(database, topic_id) == (25, 30)
    assert retire(database, topic_id, 5) == ()
    assert bounds(database, topic_id) == (25, 30)


def test_a_zombie_cannot_retire(database: Database, topic_id: UUID) -> None:
    add(database, topic_id, 0, 10)
    new_leader(database, topic_id)
    with pytest.raises(FencedLeaderEpoch):
        retire(database, topic_id, 10)
    assert committed(database, topic_id) == [(0, 10)]
    assert bounds(database, topic_id) == (0, 10)


def test_objects_are_purgeable_after_their_grace_and_purged_once(database: Database, topic_id: UUID) -> None:
    row = add(database, topic_id, 0, 10)
    retire(database, topic_id, 10)

    def purgeable(now_ms: int) -> list[UUID]:
        return [row.object_id for row in database.run_sync(lambda conn: segments.list_purgeable(conn, now_ms=now_ms))]

    def mark() -> int:
        return database.run_sync(lambda conn: segments.mark_purged(conn, [row.object_id], now_ms=NOW_MS))

    assert purgeable(NOW_MS + HOUR_MS - 1) == []
    assert purgeable(NOW_MS + HOUR_MS) == [row.object_id]
    assert (mark(), mark()) == (1, 0)
    assert purgeable(NOW_MS + HOUR_MS) == []
    # The last root outlives its segment for as long as the row does: the chain goes on from there.
    newest = database.run_sync(lambda conn: segments.newest_ever_committed(conn, topic_id, 0))
    assert newest is not None
    assert newest.object_id == row.object_id
    forget = segments.forget_purged
    assert database.run_sync(lambda conn: forget(conn, purged_before_ms=NOW_MS)) == 0
    assert database.run_sync(lambda conn: forget(conn, purged_before_ms=NOW_MS + 1)) == 1
    assert database.run_sync(lambda conn: segments.newest_ever_committed(conn, topic_id, 0)) is None


def test_each_leader_purges_its_own_and_somebody_what_nobody_leads(database: Database, topic_id: UUID) -> None:
    database.run_sync(lambda conn: register(conn, 2))
    other = database.run_sync(lambda conn: create_topic(conn, "other", assignments=[(2, 1)])).topic_id
    gone = database.run_sync(lambda conn: create_topic(conn, "gone", assignments=[(2,)])).topic_id
    mine, theirs, nobodys = (add(database, each, 0, 10).object_id for each in (topic_id, other, gone))
    for each in (topic_id, other):
        retire(database, each, 10)
    database.run_sync(lambda conn: topics.delete_topic(conn, gone, now_ms=NOW_MS, purge_after_ms=NOW_MS + 2 * HOUR_MS))

    def purgeable(leader: int | None, hours: int = 3) -> set[UUID]:
        now_ms = NOW_MS + hours * HOUR_MS
        rows = database.run_sync(lambda conn: segments.list_purgeable(conn, now_ms=now_ms, leader=leader))
        return {row.object_id for row in rows}

    def of_deleted_topics(hours: int, limit: int = 10) -> set[UUID]:
        now_ms = NOW_MS + hours * HOUR_MS
        rows = database.run_sync(
            lambda conn: segments.list_purgeable_of_deleted_topics(conn, now_ms=now_ms, limit=limit)
        )
        return {row.object_id for row in rows}

    assert purgeable(1) == {mine}
    assert purgeable(2) == {theirs}
    assert purgeable(3) == set()
    assert purgeable(1, hours=0) == set()
    assert purgeable(None) == {mine, theirs, nobodys}
    assert of_deleted_topics(1) == set()
    assert of_deleted_topics(2) == {nobodys}
    assert of_deleted_topics(2, limit=0) == set()
    # Whoever leads next goes on.
    database.run_sync(lambda conn: elect(conn, other, 1))
    assert (purgeable(1), purgeable(2)) == ({mine, theirs}, set())


def test_a_live_segment_is_never_marked_purged(database: Database, topic_id: UUID) -> None:
    row = add(database, topic_id, 0, 10)
    assert database.run_sync(lambda conn: segments.mark_purged(conn, [row.object_id], now_ms=NOW_MS)) == 0
    assert database.run_sync(lambda conn: segments.fail_planned(conn, [row.object_id], now_ms=NOW_MS)) == 0
    assert committed(database, topic_id) == [(0, 10)]


# Failed uploads


def test_an_abandoned_upload_can_never_be_committed(database: Database, topic_id: UUID) -> None:
    row = plan(database, segment_plan(topic_id, 0, 10))
    (abandoned,) = database.run_sync(lambda conn: segments.abandon(conn, [row.object_id], now_ms=NOW_MS))
    assert (abandoned.state, abandoned.abandoned_at_ms) == (SegmentState.PLANNED, NOW_MS)
    with pytest.raises(LostRace, match="was abandoned"):
        commit(database, row.object_id)
    assert bounds(database, topic_id) == (0, 0)
    assert database.run_sync(lambda conn: segments.fail_planned(conn, [row.object_id], now_ms=NOW_MS)) == 1
    assert database.run_sync(lambda conn: segments.load(conn, row.object_id)).state is SegmentState.PURGED


def test_an_upload_fails_only_after_it_was_abandoned(database: Database, topic_id: UUID) -> None:
    row = plan(database, segment_plan(topic_id, 0, 10))
    assert database.run_sync(lambda conn: segments.fail_planned(conn, [row.object_id], now_ms=NOW_MS)) == 0
    assert commit(database, row.object_id).state is SegmentState.COMMITTED
    assert database.run_sync(lambda conn: segments.abandon(conn, [row.object_id], now_ms=NOW_MS)) == ()


async def test_a_sweeper_and_a_late_commit_never_both_succeed(database: Database, topic_id: UUID) -> None:
    base = 0
    for _ in range(10):
        wanted = segment_plan(topic_id, base, base + 10)
        await database.run(partial(segments.plan, wanted=wanted))
        result, swept = await asyncio.gather(
            database.run(partial(segments.commit, object_id=wanted.object_id, leader_epoch=0, now_ms=NOW_MS)),
            database.run(partial(segments.abandon, object_ids=[wanted.object_id], now_ms=NOW_MS)),
            return_exceptions=True,
        )
        assert isinstance(result, SegmentRow) != bool(swept)
        if isinstance(result, SegmentRow):
            base += 10


def test_uploads_to_sweep_are_found_by_owner_and_by_age(database: Database, topic_id: UUID) -> None:
    mine = plan(database, segment_plan(topic_id, 0, 10))
    others = plan(database, segment_plan(topic_id, 0, 20, owner=2, planned_at_ms=NOW_MS + HOUR_MS))
    add(database, topic_id, 0, 5)

    def planned(owner: int, before: int) -> list[UUID]:
        rows = database.run_sync(lambda conn: segments.list_planned(conn, owner=owner, planned_before_ms=before))
        return [row.object_id for row in rows]

    assert planned(1, NOW_MS) == []
    assert planned(1, NOW_MS + 1) == [mine.object_id]
    assert planned(2, NOW_MS + 2 * HOUR_MS) == [others.object_id]

    def of_anybody(before: int, limit: int = 10) -> list[UUID]:
        rows = database.run_sync(
            lambda conn: segments.list_overdue_planned(conn, planned_before_ms=before, limit=limit)
        )
        return [row.object_id for row in rows]

    assert of_anybody(NOW_MS) == []
    assert of_anybody(NOW_MS + 1) == [mine.object_id]
    assert of_anybody(NOW_MS + 2 * HOUR_MS) == [mine.object_id, others.object_id]
    assert of_anybody(NOW_MS + 2 * HOUR_MS, limit=1) == [mine.object_id]
    # Abandoned ones too: who abandoned them may have died before it deleted what the store held.
    database.run_sync(lambda conn: segments.abandon(conn, [mine.object_id], now_ms=NOW_MS))
    assert of_anybody(NOW_MS + 1) == [mine.object_id]


# Dying in the middle

_RETIRE_AND_DIE = """
import sys
from uuid import UUID
from tiered.meta import segments
from tiered.meta.engine import Database
database = Database.open(sys.argv[1])
database.run_sync(lambda conn: segments.retire_before(conn, UUID(sys.argv[2]), 0, leader_epoch=0,
                  new_log_start_offset=10, now_ms=1, purge_after_ms=1))
"""


@pytest.mark.parametrize(("crash_at", "happened"), [("meta.segments.retire.half", False), ("meta.after_commit", True)])
def test_kill_9_during_a_retirement_leaves_all_of_it_or_nothing(
    database_url: str, crash_at: str, happened: bool
) -> None:
    database = open_ready(database_url)
    topic_id = database.run_sync(create_topic).topic_id
    add(database, topic_id, 0, 10)
    database.close_sync()
    run_until_killed(_RETIRE_AND_DIE, crash_at, database_url, str(topic_id))
    database = Database.open(database_url)
    assert committed(database, topic_id) == ([] if happened else [(0, 10)])
    assert bounds(database, topic_id) == (10 if happened else 0, 10)
    database.close_sync()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE partition SET log_start_offset = -1",
        "UPDATE partition SET log_start_offset = cold_end_offset + 1",
        "UPDATE segment SET base_offset = -1",
        "UPDATE segment SET end_offset = base_offset",
        "UPDATE segment SET state = 'mine'",
    ],
)
def test_the_database_itself_refuses_offsets_and_states_that_cannot_be(
    database: Database, topic_id: UUID, statement: str
) -> None:
    add(database, topic_id, 0, 10)
    with pytest.raises(IntegrityError):
        database.run_sync(lambda conn: conn.exec_driver_sql(statement))
    assert (committed(database, topic_id), bounds(database, topic_id)) == ([(0, 10)], (0, 10))
