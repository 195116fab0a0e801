"""What the catalogue knows of objects that were found, on SQLite and on PostgreSQL."""

from uuid import uuid4

from tests.catalogue import NOW_MS, create_topic, segment_plan
from tiered.meta import known_objects, segments
from tiered.meta.engine import Database
from tiered.rules.segments.segment_states import SegmentState

pytest_plugins = ["tests.meta_databases"]


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

    found = database.run_sync(lambda conn: known_objects.load(conn, [first, second, third, stranger]))
    assert {object_id: each.state for object_id, each in found.items()} == {
        first: SegmentState.COMMITTED,
        second: SegmentState.PURGED,
        third: SegmentState.PLANNED,
    }
    assert [found[each.object_id].object_key for each in plans] == [each.object_key for each in plans]
    assert found[first].change_number < found[second].change_number


def test_nothing_is_asked_for_nothing(database: Database) -> None:
    assert database.run_sync(lambda conn: known_objects.load(conn, [])) == {}
