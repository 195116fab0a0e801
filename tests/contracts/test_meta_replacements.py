"""Swaps of committed objects for compacted or joined ones, on SQLite and on PostgreSQL: whatever else happens
meanwhile."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID, uuid4

import pytest

from tests.catalogue import HOUR_MS, NOW_MS, create_topic, open_ready, segment_plan
from tests.contracts.segment_rows import add, bounds, committed, plan, retire, run_until_killed
from tiered.errors import LostRace, Pinned
from tiered.meta import changes, cluster, pins, replacements, segments, topics
from tiered.meta.engine import Database
from tiered.meta.pins import WantedRange
from tiered.meta.replacements import NewObject, WrittenObject
from tiered.meta.segments import SegmentRow
from tiered.rules.segments.segment_states import SegmentState

pytest_plugins = ["tests.meta_databases"]

GRACE_MS = 60_000


@pytest.fixture
def topic_id(database: Database) -> UUID:
    return database.run_sync(create_topic).topic_id


def planned(database: Database, rows: Sequence[SegmentRow]) -> tuple[SegmentRow, ...]:
    wanted = [NewObject(before=(row,), object_id=(new := uuid4()), object_key=f"segments/{new}") for row in rows]
    return database.run_sync(lambda conn: replacements.plan(conn, wanted, timeout_ms=HOUR_MS))


def written(before: Sequence[SegmentRow], after: Sequence[SegmentRow], root: str = "c") -> list[WrittenObject]:
    return [
        WrittenObject(
            object_id=new.object_id,
            before=(old.object_id,),
            size_bytes=400,
            log_bytes=300,
            min_timestamp_ms=1,
            max_timestamp_ms=2,
            max_timestamp_is_proven=True,
            record_count=3,
            root_sha256=root * 64,
        )
        for old, new in zip(before, after, strict=True)
    ]


def swap(database: Database, topic_id: UUID, objects: Sequence[WrittenObject]) -> tuple[SegmentRow, ...]:
    return database.run_sync(lambda conn: replacements.swap(conn, topic_id, 0, objects, purge_grace_ms=GRACE_MS))


def load(database: Database, object_id: UUID) -> SegmentRow:
    return database.run_sync(partial(segments.load, object_id=object_id))


def ids(database: Database, topic_id: UUID) -> list[UUID]:
    return [row.object_id for row in database.run_sync(lambda conn: segments.list_committed(conn, topic_id, 0))]


def test_a_swap_commits_the_new_rows_and_retires_the_old_in_one_change(database: Database, topic_id: UUID) -> None:
    first, second, third = (add(database, topic_id, base, base + 10) for base in (0, 10, 20))
    new = planned(database, [first, third])
    before = database.run_sync(cluster.load).change_number
    rows = swap(database, topic_id, written([first, third], new))
    assert ids(database, topic_id) == [new[0].object_id, second.object_id, new[1].object_id]
    assert committed(database, topic_id) == [(0, 10), (10, 20), (20, 30)]
    assert bounds(database, topic_id) == (0, 30)
    assert [(row.size_bytes, row.log_bytes, row.record_count, row.root_sha256) for row in rows] == [
        (400, 300, 3, "c" * 64)
    ] * 2
    assert [(row.previous_root_sha256, row.uploaded_root_sha256) for row in rows] == [("0" * 64, "a" * 64)] * 2
    assert [(row.committed_at_ms, row.leader_epoch) for row in rows] == [(NOW_MS, 0)] * 2
    old = load(database, first.object_id)
    assert old.state is SegmentState.RETIRED
    assert old.retired_at_ms is not None
    assert old.purge_after_ms == old.retired_at_ms + GRACE_MS
    # The feed tells of all of it at once.
    found = database.run_sync(lambda conn: changes.since(conn, before))
    assert {(row.object_id, row.state) for row in found.segments} == {
        (first.object_id, SegmentState.RETIRED),
        (third.object_id, SegmentState.RETIRED),
        *((row.object_id, SegmentState.COMMITTED) for row in new),
    }


def test_the_root_that_was_uploaded_stays_however_often_the_object_is_replaced(
    database: Database, topic_id: UUID
) -> None:
    first = add(database, topic_id, 0, 10)
    for root in "cde":
        (new,) = planned(database, [first])
        (first,) = swap(database, topic_id, written([first], [new], root))
        assert (first.root_sha256, first.uploaded_root_sha256) == (root * 64, "a" * 64)


def test_repeating_a_swap_answers_with_its_rows_also_after_they_were_retired(
    database: Database, topic_id: UUID
) -> None:
    first = add(database, topic_id, 0, 10)
    new = planned(database, [first])
    objects = written([first], new)
    (row,) = swap(database, topic_id, objects)
    assert swap(database, topic_id, objects) == (row,)
    retire(database, topic_id, 10)
    assert [each.state for each in swap(database, topic_id, objects)] == [SegmentState.RETIRED]
    assert committed(database, topic_id) == []


def test_of_two_compactions_of_the_same_rows_the_second_fails_as_a_whole(database: Database, topic_id: UUID) -> None:
    rows = [add(database, topic_id, base, base + 10) for base in (0, 10)]
    mine, theirs = planned(database, rows[1:]), planned(database, rows)
    swap(database, topic_id, written(rows[1:], mine))
    with pytest.raises(LostRace, match="another replacement was faster"):
        swap(database, topic_id, written(rows, theirs))
    assert ids(database, topic_id) == [rows[0].object_id, mine[0].object_id]
    assert [load(database, each.object_id).state for each in theirs] == [SegmentState.PLANNED] * 2


def test_retention_and_the_deletion_of_the_topic_are_faster_than_a_swap(database: Database, topic_id: UUID) -> None:
    rows = [add(database, topic_id, base, base + 10) for base in (0, 10)]
    new = planned(database, rows)
    retire(database, topic_id, 10)
    with pytest.raises(LostRace):
        swap(database, topic_id, written(rows, new))
    assert ids(database, topic_id) == [rows[1].object_id]
    with pytest.raises(LostRace):
        planned(database, rows)
    database.run_sync(lambda conn: topics.delete_topic(conn, topic_id, now_ms=NOW_MS, purge_after_ms=NOW_MS))
    with pytest.raises(LostRace):
        swap(database, topic_id, written(rows[1:], new[1:]))


def test_an_upload_goes_on_beside_a_swap_and_names_the_same_root(database: Database, topic_id: UUID) -> None:
    first = add(database, topic_id, 0, 10)
    upload = plan(database, segment_plan(topic_id, 10, 20))
    new = planned(database, [first])
    swap(database, topic_id, written([first], new))
    database.run_sync(lambda conn: segments.commit(conn, upload.object_id, leader_epoch=0, now_ms=NOW_MS))
    assert committed(database, topic_id) == [(0, 10), (10, 20)]
    newest = database.run_sync(lambda conn: segments.newest_ever_committed(conn, topic_id, 0))
    assert newest is not None
    assert newest.object_id == upload.object_id


def test_what_was_abandoned_cannot_be_swapped_in(database: Database, topic_id: UUID) -> None:
    first = add(database, topic_id, 0, 10)
    (new,) = planned(database, [first])
    # As the controller does once the deadline has passed, and the job itself when it gives up.
    database.run_sync(lambda conn: segments.abandon(conn, [new.object_id], now_ms=NOW_MS))
    with pytest.raises(LostRace, match="was given up"):
        swap(database, topic_id, written([first], [new]))
    assert database.run_sync(lambda conn: segments.fail_planned(conn, [new.object_id], now_ms=NOW_MS)) == 1
    assert ids(database, topic_id) == [first.object_id]


@pytest.mark.parametrize(("name", "is_refused"), [("kept", True), (None, False)])
def test_a_snapshot_refuses_a_swap_and_a_pin_keeps_the_old_object(
    database: Database, topic_id: UUID, name: str | None, is_refused: bool
) -> None:
    first, second = add(database, topic_id, 0, 10), add(database, topic_id, 10, 20)
    new = planned(database, [first, second])
    database.run_sync(
        lambda conn: pins.take(
            conn,
            pin_id=uuid4(),
            name=name,
            topic_id=topic_id,
            owner="somebody",
            ttl_ms=HOUR_MS,
            ranges=[WantedRange(partition=0, start_offset=12, end_offset=15)],
            max_pins=10,
        )
    )
    if is_refused:
        with pytest.raises(Pinned, match="snapshot kept"):
            swap(database, topic_id, written([first, second], new))
        assert ids(database, topic_id) == [first.object_id, second.object_id]
        return
    swap(database, topic_id, written([first, second], new))
    purgeable = database.run_sync(lambda conn: segments.list_purgeable(conn, now_ms=2**60))
    assert [row.object_id for row in purgeable] == [first.object_id]


def test_planning_again_answers_with_the_rows_that_are_there(database: Database, topic_id: UUID) -> None:
    first = add(database, topic_id, 0, 10)
    wanted = [NewObject(before=(first,), object_id=uuid4(), object_key="segments/once")]
    rows = [database.run_sync(lambda conn: replacements.plan(conn, wanted, timeout_ms=HOUR_MS)) for _ in range(2)]
    assert rows[0] == rows[1]
    assert (rows[0][0].owner, rows[0][0].deadline_ms - rows[0][0].planned_at_ms) == (-1, HOUR_MS)


# One object for several


def joined(
    database: Database, topic_id: UUID, rows: Sequence[SegmentRow], root: str = "c"
) -> tuple[SegmentRow, list[WrittenObject]]:
    """The planned row of the object to which they are joined, and what is written of it."""
    new = NewObject(before=tuple(rows), object_id=uuid4(), object_key=f"segments/{rows[0].object_id}-joined")
    (row,) = database.run_sync(lambda conn: replacements.plan(conn, [new], timeout_ms=HOUR_MS))
    (one,) = written(rows[:1], [row], root)
    return row, [replace(one, before=tuple(each.object_id for each in rows))]


def test_a_joined_object_takes_the_places_of_its_neighbours_in_the_log_and_in_the_chain(
    database: Database, topic_id: UUID
) -> None:
    rows = [add(database, topic_id, base, base + 10) for base in (0, 10, 20, 30)]
    planned_row, objects = joined(database, topic_id, rows[:3])
    assert (planned_row.base_offset, planned_row.end_offset, planned_row.owner) == (0, 30, -1)
    assert planned_row.change_number == database.run_sync(cluster.load).change_number
    (row,) = swap(database, topic_id, objects)
    assert committed(database, topic_id) == [(0, 30), (30, 40)]
    assert bounds(database, topic_id) == (0, 40)
    assert [load(database, each.object_id).state for each in rows[:3]] == [SegmentState.RETIRED] * 3
    assert row.previous_root_sha256 == rows[0].previous_root_sha256
    assert (row.uploaded_root_sha256, row.joined_count) == (rows[2].root_sha256, 3)
    assert swap(database, topic_id, objects) == (row,)
    # Joined once more it counts all uploads; the chain goes on behind the last of them.
    _, more = joined(database, topic_id, [row, rows[3]], "d")
    (last,) = swap(database, topic_id, more)
    assert (last.joined_count, last.uploaded_root_sha256) == (4, rows[3].root_sha256)


def test_a_compacted_object_counts_no_uploads_also_where_it_replaces_a_joined_one(
    database: Database, topic_id: UUID
) -> None:
    rows = [add(database, topic_id, base, base + 10) for base in (0, 10)]
    (row,) = swap(database, topic_id, joined(database, topic_id, rows)[1])
    (compacted,) = swap(database, topic_id, written([row], planned(database, [row]), "d"))
    assert (row.joined_count, compacted.joined_count) == (2, None)
    assert compacted.uploaded_root_sha256 == rows[1].root_sha256


def test_nothing_is_joined_where_one_of_the_neighbours_went_meanwhile(database: Database, topic_id: UUID) -> None:
    rows = [add(database, topic_id, base, base + 10) for base in (0, 10, 20)]
    _, objects = joined(database, topic_id, rows)
    retire(database, topic_id, 10)
    with pytest.raises(LostRace, match="retention"):
        swap(database, topic_id, objects)
    assert ids(database, topic_id) == [each.object_id for each in rows[1:]]


def test_a_snapshot_refuses_the_plan_of_what_it_holds(database: Database, topic_id: UUID) -> None:
    rows = [add(database, topic_id, base, base + 10) for base in (0, 10)]
    wanted = [WantedRange(partition=0, start_offset=12, end_offset=15)]
    take = partial(pins.take, pin_id=uuid4(), name="kept", topic_id=topic_id, owner="somebody", ttl_ms=None)
    database.run_sync(lambda conn: take(conn, ranges=wanted, max_pins=1))
    with pytest.raises(Pinned, match="snapshot kept"):
        joined(database, topic_id, rows)


DYING_SWAP = """
import sys
from uuid import UUID
from tiered.meta import replacements
from tiered.meta.engine import Database
from tiered.meta.replacements import WrittenObject
url, topic_id, old, new = sys.argv[1:]
object = WrittenObject(object_id=UUID(new), before=(UUID(old),), size_bytes=4, log_bytes=3, min_timestamp_ms=1,
    max_timestamp_ms=2, max_timestamp_is_proven=True, record_count=3, root_sha256="c" * 64)
Database.open(url).run_sync(
    lambda conn: replacements.swap(conn, UUID(topic_id), 0, [object], purge_grace_ms=0))
"""


def test_a_death_between_retiring_and_committing_leaves_everything_as_it_was(database_url: str) -> None:
    database = open_ready(database_url)
    topic_id = database.run_sync(create_topic).topic_id
    first = add(database, topic_id, 0, 10)
    (new,) = planned(database, [first])
    database.close_sync()
    run_until_killed(
        DYING_SWAP, "meta.replacements.swap.half", database_url, str(topic_id), str(first.object_id), str(new.object_id)
    )
    database = Database.open(database_url)
    try:
        assert ids(database, topic_id) == [first.object_id]
        assert [row.object_id for row in swap(database, topic_id, written([first], [new]))] == [new.object_id]
    finally:
        database.close_sync()
