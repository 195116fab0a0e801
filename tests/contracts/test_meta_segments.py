"""The catalogue of segments on SQLite and on PostgreSQL: planning and T3, whoever commits and wherever it dies."""

import asyncio
from functools import partial
from uuid import UUID, uuid4

import pytest

from tests.catalogue import NOW_MS, advance_log_start_offset, create_topic, elect, open_ready, register, segment_plan
from tests.contracts.segment_rows import add, bounds, commit, committed, new_leader, plan, run_until_killed
from tiered.errors import FencedLeaderEpoch, Invalid, LostRace, UnknownTopicOrPartition
from tiered.meta import partitions, segments, topics
from tiered.meta.engine import Database
from tiered.meta.segments import SegmentPlan, SegmentRow
from tiered.rules.segments.segment_states import SegmentState

pytest_plugins = ["tests.meta_databases"]


@pytest.fixture
def topic_id(database: Database) -> UUID:
    return database.run_sync(create_topic).topic_id


# Planning


def test_a_planned_row_holds_the_whole_plan(database: Database, topic_id: UUID) -> None:
    wanted = segment_plan(topic_id, 0, 10)
    row = plan(database, wanted)
    assert SegmentPlan(**{name: getattr(row, name) for name in SegmentPlan.__slots__}) == wanted
    assert (row.state, row.committed_at_ms, row.abandoned_at_ms) == (SegmentState.PLANNED, None, None)
    assert bounds(database, topic_id) == (0, 0)


def test_planning_the_same_object_again_is_harmless(database: Database, topic_id: UUID) -> None:
    wanted = segment_plan(topic_id, 0, 10)
    assert plan(database, wanted) == plan(database, wanted)


def test_only_the_present_leader_can_plan(database: Database, topic_id: UUID) -> None:
    new_leader(database, topic_id)
    with pytest.raises(FencedLeaderEpoch):
        plan(database, segment_plan(topic_id, 0, 10))
    with pytest.raises(UnknownTopicOrPartition):
        plan(database, segment_plan(topic_id, 0, 10, partition=5))
    with pytest.raises(UnknownTopicOrPartition):
        plan(database, segment_plan(uuid4(), 0, 10))


def test_what_is_covered_already_is_not_planned(database: Database, topic_id: UUID) -> None:
    add(database, topic_id, 0, 10)
    with pytest.raises(LostRace, match="need no upload"):
        plan(database, segment_plan(topic_id, 0, 10))


# T3


def test_a_commit_moves_the_row_and_the_partition_together(database: Database, topic_id: UUID) -> None:
    row = plan(database, segment_plan(topic_id, 0, 10))
    after = commit(database, row.object_id, size_bytes=4_321)
    assert (after.state, after.committed_at_ms, after.size_bytes) == (SegmentState.COMMITTED, NOW_MS, 4_321)
    assert bounds(database, topic_id) == (0, 10)
    assert committed(database, topic_id) == [(0, 10)]


@pytest.mark.parametrize(("base", "end"), [(11, 20), (20, 30), (0, 20), (5, 15), (9, 11)])
def test_a_segment_that_leaves_a_gap_or_overlaps_is_refused(
    database: Database, topic_id: UUID, base: int, end: int
) -> None:
    add(database, topic_id, 0, 10)
    row = plan(database, segment_plan(topic_id, base, end))
    with pytest.raises(LostRace, match="ends at 10"):
        commit(database, row.object_id)
    assert committed(database, topic_id) == [(0, 10)]
    assert bounds(database, topic_id) == (0, 10)
    add(database, topic_id, 10, 20)


def test_a_zombie_leader_cannot_commit(database: Database, topic_id: UUID) -> None:
    row = plan(database, segment_plan(topic_id, 0, 10))
    epoch = new_leader(database, topic_id)
    with pytest.raises(FencedLeaderEpoch, match="another leader"):
        commit(database, row.object_id, epoch=0)
    assert bounds(database, topic_id) == (0, 0)
    with pytest.raises(LostRace, match="leader epoch 0"):
        commit(database, row.object_id, epoch=epoch)
    assert bounds(database, topic_id) == (0, 0)
    add(database, topic_id, 0, 10, epoch=epoch)


def test_a_repeated_commit_answers_as_the_first_did(database: Database, topic_id: UUID) -> None:
    row = add(database, topic_id, 0, 10)
    assert commit(database, row.object_id) == row
    new_leader(database, topic_id)
    assert commit(database, row.object_id) == row
    assert bounds(database, topic_id) == (0, 10)


def test_an_unplanned_object_cannot_be_committed(database: Database, topic_id: UUID) -> None:
    with pytest.raises(Invalid, match="plan it before"):
        commit(database, uuid4())


async def test_of_leaders_that_commit_the_same_offsets_at_once_one_wins(database: Database, topic_id: UUID) -> None:
    for base in range(0, 50, 10):
        rows = [plan(database, segment_plan(topic_id, base, base + 10)) for _ in range(4)]
        results = await asyncio.gather(
            *(
                database.run(partial(segments.commit, object_id=row.object_id, leader_epoch=0, now_ms=NOW_MS))
                for row in rows
            ),
            return_exceptions=True,
        )
        assert sum(isinstance(result, SegmentRow) for result in results) == 1
        assert sum(isinstance(result, LostRace) for result in results) == 3
    assert committed(database, topic_id) == [(base, base + 10) for base in range(0, 50, 10)]


async def test_a_commit_and_an_election_at_once_leave_one_order(database: Database, topic_id: UUID) -> None:
    for _ in range(10):
        before = await database.run(lambda conn: partitions.load(conn, topic_id, 0))
        end = before.cold_end_offset + 10
        wanted = segment_plan(topic_id, before.cold_end_offset, end, leader_epoch=before.leader_epoch)
        await database.run(partial(segments.plan, wanted=wanted))
        result, after = await asyncio.gather(
            database.run(
                partial(segments.commit, object_id=wanted.object_id, leader_epoch=wanted.leader_epoch, now_ms=NOW_MS)
            ),
            database.run(lambda conn: elect(conn, topic_id)),
            return_exceptions=True,
        )
        assert isinstance(after, partitions.PartitionRow)
        # What the new leader was told includes the zombie's commit, or the zombie was refused.
        if isinstance(result, SegmentRow):
            assert after.cold_end_offset == end
        else:
            assert isinstance(result, FencedLeaderEpoch)
            assert after.cold_end_offset == before.cold_end_offset
            assert (await database.run(lambda conn: partitions.load(conn, topic_id, 0))) == after


def test_after_delete_records_the_segment_that_holds_the_start_can_still_be_committed(
    database: Database, topic_id: UUID
) -> None:
    add(database, topic_id, 0, 10)
    database.run_sync(lambda conn: advance_log_start_offset(conn, topic_id, 0, leader_epoch=0, new_log_start_offset=15))
    assert bounds(database, topic_id) == (15, 15)
    beside = [
        plan(database, segment_plan(topic_id, base, end)).object_id for base, end in [(16, 30), (5, 30), (20, 30)]
    ]
    for object_id in beside:
        with pytest.raises(LostRace):
            commit(database, object_id)
    add(database, topic_id, 10, 20)
    assert bounds(database, topic_id) == (15, 20)
    add(database, topic_id, 20, 30)
    assert committed(database, topic_id) == [(0, 10), (10, 20), (20, 30)]


def test_committed_rows_are_listed_from_an_offset_and_for_a_replica(database: Database, topic_id: UUID) -> None:
    rows = [add(database, topic_id, base, base + 10) for base in (0, 10, 20)]
    other = database.run_sync(lambda conn: create_topic(conn, "other")).topic_id
    elsewhere = add(database, other, 0, 7)
    for broker_id in (2, 11):  # a list that names 11 does not name 1
        database.run_sync(partial(register, broker_id=broker_id))
    shared = database.run_sync(lambda conn: create_topic(conn, "shared", assignments=[(2, 11), (11,)])).topic_id
    followed = add(database, shared, 0, 5)

    def listed(from_offset: int, limit: int | None = None) -> list[SegmentRow]:
        return list(
            database.run_sync(
                lambda conn: segments.list_committed(conn, topic_id, 0, from_offset=from_offset, limit=limit)
            )
        )

    assert listed(0) == rows
    assert listed(10) == rows[1:]
    assert listed(19, limit=1) == rows[1:2]
    assert listed(30) == []
    assert set(database.run_sync(lambda conn: segments.load_committed(conn, replica=1))) == {*rows, elsewhere}
    for follower in (2, 11):
        found = database.run_sync(partial(segments.load_committed, replica=follower))
        assert found == (followed,)
    assert database.run_sync(lambda conn: segments.load_committed(conn, replica=3)) == ()
    database.run_sync(lambda conn: topics.delete_topic(conn, other, now_ms=NOW_MS, purge_after_ms=NOW_MS))
    assert database.run_sync(lambda conn: segments.load_committed(conn, replica=1)) == tuple(rows)


# Dying in the middle

_COMMIT_AND_DIE = """
import sys
from uuid import UUID
from tiered.meta import segments
from tiered.meta.engine import Database
database = Database.open(sys.argv[1])
database.run_sync(lambda conn: segments.commit(conn, UUID(sys.argv[2]), leader_epoch=0, now_ms=1))
"""


@pytest.mark.parametrize(
    ("crash_at", "happened"),
    [("meta.segments.commit.half", False), ("meta.before_commit", False), ("meta.after_commit", True)],
)
def test_kill_9_during_a_commit_leaves_all_of_it_or_nothing(database_url: str, crash_at: str, happened: bool) -> None:
    database = open_ready(database_url)
    topic_id = database.run_sync(create_topic).topic_id
    row = plan(database, segment_plan(topic_id, 0, 10))
    database.close_sync()
    run_until_killed(_COMMIT_AND_DIE, crash_at, database_url, str(row.object_id))
    database = Database.open(database_url)
    assert committed(database, topic_id) == ([(0, 10)] if happened else [])
    assert bounds(database, topic_id) == (0, 10 if happened else 0)
    assert commit(database, row.object_id).state is SegmentState.COMMITTED
    assert bounds(database, topic_id) == (0, 10)
    database.close_sync()


# Of objects that were found in the store


def test_each_object_has_the_state_and_key_of_its_row_and_a_stranger_has_none(database: Database) -> None:
    topic_id = database.run_sync(create_topic).topic_id
    plans = [segment_plan(topic_id, base, base + 10) for base in (0, 10, 20)]
    for each in plans:
        database.run_sync(lambda conn, each=each: segments.plan(conn, each))  # type: ignore[misc]
    first, second, third = (each.object_id for each in plans)
    database.run_sync(lambda conn: segments.commit(conn, first, leader_epoch=0, now_ms=NOW_MS))
    database.run_sync(lambda conn: segments.abandon(conn, [second], now_ms=NOW_MS))
    database.run_sync(lambda conn: segments.fail_planned(conn, [second], now_ms=NOW_MS))
    stranger = uuid4()

    found = database.run_sync(lambda conn: segments.load_some(conn, [first, second, third, stranger]))
    assert {object_id: each.state for object_id, each in found.items()} == {
        first: SegmentState.COMMITTED,
        second: SegmentState.PURGED,
        third: SegmentState.PLANNED,
    }
    assert [found[each.object_id].object_key for each in plans] == [each.object_key for each in plans]
    assert found[first].change_number < found[second].change_number


def test_nothing_is_asked_for_nothing(database: Database) -> None:
    assert database.run_sync(lambda conn: segments.load_some(conn, [])) == {}
