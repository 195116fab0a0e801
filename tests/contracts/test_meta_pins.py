"""Pins and snapshots on SQLite and on PostgreSQL: what was granted is never deleted, and they end and are bounded."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, select, text, update

from tests.catalogue import HOUR_MS, NOW_MS, create_topic, segment_plan
from tiered.errors import (
    OffsetOutOfRange,
    Pinned,
    PinNotFound,
    SnapshotExists,
    Throttled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tiered.meta import partitions, pins, segments, topics
from tiered.meta.engine import Database
from tiered.meta.pins import PinnedRange, PinRow, WantedRange
from tiered.meta.tables import pin, pinned_range

pytest_plugins = ["tests.meta_databases"]


@pytest.fixture
def topic_id(database: Database) -> UUID:
    """A topic with the committed segments 0 to 10, 10 to 20 and 20 to 30 in its partition 0."""
    topic_id = database.run_sync(create_topic).topic_id
    for base in (0, 10, 20):
        plan = segment_plan(topic_id, base, base + 10)
        database.run_sync(partial(segments.plan, wanted=plan))
        database.run_sync(partial(segments.commit, object_id=plan.object_id, leader_epoch=0, now_ms=NOW_MS))
    return topic_id


def take(
    database: Database,
    topic_id: UUID,
    start: int | None,
    end: int,
    *,
    name: str | None = None,
    ttl_ms: int | None = HOUR_MS,
    pin_id: UUID | None = None,
    partition: int = 0,
    max_pins: int = 10,
) -> PinRow:
    return database.run_sync(
        lambda conn: pins.take(
            conn,
            pin_id=pin_id or uuid4(),
            name=name,
            topic_id=topic_id,
            owner="a job",
            ttl_ms=ttl_ms,
            ranges=[WantedRange(partition=partition, start_offset=start, end_offset=end)],
            max_pins=max_pins,
        )
    )


def retire(database: Database, topic_id: UUID, to: int, *, is_explicit: bool = False) -> int:
    """How many segments went."""
    rows = database.run_sync(lambda conn: retirement(conn, topic_id, to, is_explicit=is_explicit))
    return len(rows)


def retirement(conn: Connection, topic_id: UUID, to: int, *, is_explicit: bool = False) -> tuple[object, ...]:
    return segments.retire_before(
        conn,
        topic_id,
        0,
        leader_epoch=0,
        new_log_start_offset=to,
        now_ms=NOW_MS,
        purge_after_ms=NOW_MS,
        is_explicit=is_explicit,
    )


def log_start(database: Database, topic_id: UUID) -> int:
    return database.run_sync(lambda conn: partitions.load(conn, topic_id, 0)).log_start_offset


def purgeable(database: Database) -> list[int]:
    rows = database.run_sync(lambda conn: segments.list_purgeable(conn, now_ms=NOW_MS))
    return sorted(row.base_offset for row in rows)


def end_now(database: Database, pin_id: UUID, *, ago_ms: int = 0) -> None:
    """As if its time had come `ago_ms` ago."""
    at_ms = time.time_ns() // 1_000_000 - ago_ms
    database.run_sync(lambda conn: conn.execute(update(pin).where(pin.c.pin_id == pin_id).values(expires_at_ms=at_ms)))


def delete_topic(database: Database, topic_id: UUID) -> None:
    database.run_sync(lambda conn: topics.delete_topic(conn, topic_id, now_ms=NOW_MS, purge_after_ms=NOW_MS))


# Taking


def test_a_snapshot_holds_from_the_log_start_for_good(database: Database, topic_id: UUID) -> None:
    retire(database, topic_id, 10)
    row = take(database, topic_id, None, 25, name="training", ttl_ms=None)
    assert (row.name, row.topic, row.expires_at_ms) == ("training", "orders", None)
    assert row.ranges == (PinnedRange(partition=0, start_offset=10, end_offset=25),)
    assert database.run_sync(lambda conn: pins.list_live(conn, named=True)) == (row,)
    assert database.run_sync(lambda conn: pins.list_live(conn, named=False)) == ()
    assert database.run_sync(lambda conn: pins.load_snapshot(conn, "training")) == row


def test_taking_the_same_pin_again_answers_with_the_first(database: Database, topic_id: UUID) -> None:
    pin_id = uuid4()
    assert take(database, topic_id, 0, 10, pin_id=pin_id) == take(database, topic_id, 0, 10, pin_id=pin_id)
    assert len(database.run_sync(lambda conn: pins.list_live(conn, named=False))) == 1


def test_what_is_deleted_cannot_be_pinned(database: Database, topic_id: UUID) -> None:
    retire(database, topic_id, 10)
    with pytest.raises(OffsetOutOfRange, match="below 10"):
        take(database, topic_id, 9, 20)
    with pytest.raises(UnknownTopicOrPartition):
        take(database, topic_id, 0, 10, partition=7)
    with pytest.raises(UnknownTopicId):
        take(database, uuid4(), 0, 10)
    delete_topic(database, topic_id)
    with pytest.raises(UnknownTopicId):
        take(database, topic_id, 10, 20)
    assert database.run_sync(lambda conn: conn.execute(select(pin)).all()) == []


def test_pins_and_snapshots_are_bounded_each_for_itself(database: Database, topic_id: UUID) -> None:
    first = take(database, topic_id, 0, 10, max_pins=1)
    with pytest.raises(Throttled, match=r"tiered\.pins\.max"):
        take(database, topic_id, 0, 10, max_pins=1)
    take(database, topic_id, 0, 10, name="one", max_pins=1)
    with pytest.raises(Throttled, match=r"tiered\.snapshots\.max"):
        take(database, topic_id, 0, 10, name="two", max_pins=1)
    # One that has ended counts no more, and its rows go when the next one is taken.
    end_now(database, first.pin_id, ago_ms=pins.PURGE_MARGIN_MS + 1_000)
    second = take(database, topic_id, 0, 10, max_pins=1)
    left = database.run_sync(lambda conn: conn.execute(select(pinned_range.c.pin_id)).scalars().all())
    assert first.pin_id not in left
    assert second.pin_id in left


def test_a_name_is_one_snapshots_until_it_is_deleted_or_ends(database: Database, topic_id: UUID) -> None:
    row = take(database, topic_id, 0, 10, name="daily")
    with pytest.raises(SnapshotExists, match="daily"):
        take(database, topic_id, 0, 10, name="daily")
    end_now(database, row.pin_id)
    take(database, topic_id, 0, 10, name="daily")
    database.run_sync(lambda conn: pins.delete_snapshot(conn, "daily"))
    take(database, topic_id, 0, 10, name="daily")
    with pytest.raises(PinNotFound, match="no snapshot weekly"):
        database.run_sync(lambda conn: pins.delete_snapshot(conn, "weekly"))


@pytest.mark.parametrize("name", ["zero\0byte", ""])
def test_there_is_no_snapshot_of_a_name_that_none_can_have(database: Database, name: str) -> None:
    with pytest.raises(PinNotFound):
        database.run_sync(lambda conn: pins.load_snapshot(conn, name))
    with pytest.raises(PinNotFound):
        database.run_sync(lambda conn: pins.delete_snapshot(conn, name))


# Holding


@pytest.mark.parametrize("name", [None, "kept"])
def test_retention_leaves_what_is_pinned_until_it_is_given_up(
    database: Database, topic_id: UUID, name: str | None
) -> None:
    row = take(database, topic_id, 10, 12, name=name)
    assert retire(database, topic_id, 10) == 1, "what lies before it may go"
    with pytest.raises(Pinned, match="holds it"):
        retire(database, topic_id, 20)
    assert (log_start(database, topic_id), purgeable(database)) == (10, [0])
    if name is None:
        database.run_sync(lambda conn: pins.release(conn, row.pin_id))
    else:
        database.run_sync(lambda conn: pins.delete_snapshot(conn, name))
    assert retire(database, topic_id, 30) == 2
    assert purgeable(database) == [0, 10, 20]


def test_a_pin_that_has_ended_and_an_empty_one_hold_nothing(database: Database, topic_id: UUID) -> None:
    take(database, topic_id, 5, 5)
    ended = take(database, topic_id, 0, 30)
    end_now(database, ended.pin_id)
    assert retire(database, topic_id, 30) == 3


def test_an_explicit_deletion_is_refused_by_a_snapshot_and_says_which(database: Database, topic_id: UUID) -> None:
    take(database, topic_id, 10, 20, name="audit")
    for attempt in (lambda: retire(database, topic_id, 15, is_explicit=True), lambda: delete_topic(database, topic_id)):
        with pytest.raises(Pinned, match=r"snapshot audit holds it; `tiered snapshot delete audit`"):
            attempt()
    assert log_start(database, topic_id) == 0
    assert retire(database, topic_id, 10, is_explicit=True) == 1
    database.run_sync(lambda conn: pins.delete_snapshot(conn, "audit"))
    delete_topic(database, topic_id)


def test_a_topic_that_several_snapshots_hold_names_all_of_them(database: Database, topic_id: UUID) -> None:
    for number in range(7):
        take(database, topic_id, 0, 10, name=f"night-{number}")
    with pytest.raises(Pinned, match=r"snapshots night-0, .*night-4 and 2 more hold it; delete all of them with"):
        delete_topic(database, topic_id)


@pytest.mark.parametrize("remove", [lambda d, t: retire(d, t, 30, is_explicit=True), delete_topic])
def test_an_explicit_deletion_passes_a_pin_and_its_objects_wait_for_it(
    database: Database, topic_id: UUID, remove: Callable[[Database, UUID], object]
) -> None:
    row = take(database, topic_id, 10, 20)
    remove(database, topic_id)
    assert purgeable(database) == [0, 20]
    waiting = database.run_sync(lambda conn: segments.list_retired(conn, topic_id, 0, limit=10))
    assert [(each.base_offset, each.is_pinned) for each in waiting] == [(0, False), (10, True), (20, False)]
    # Just ended: a renewal may be on its way to its commit.
    end_now(database, row.pin_id)
    assert purgeable(database) == [0, 20]
    end_now(database, row.pin_id, ago_ms=pins.PURGE_MARGIN_MS + 1_000)
    assert purgeable(database) == [0, 10, 20]


def test_a_pin_lives_on_after_its_topic_until_the_topic_is_forgotten(database: Database, topic_id: UUID) -> None:
    row = take(database, topic_id, 10, 20)
    delete_topic(database, topic_id)
    database.run_sync(lambda conn: pins.renew(conn, row.pin_id, ttl_ms=2 * HOUR_MS, max_lifetime_ms=9 * HOUR_MS))

    def forget() -> tuple[UUID, ...]:
        return database.run_sync(lambda conn: topics.forget_deleted(conn, deleted_before_ms=NOW_MS + 1))

    assert forget() == ()
    database.run_sync(lambda conn: pins.release(conn, row.pin_id))
    rows = database.run_sync(lambda conn: segments.list_purgeable(conn, now_ms=NOW_MS))
    database.run_sync(lambda conn: segments.mark_purged(conn, [each.object_id for each in rows], now_ms=NOW_MS))
    take(database, database.run_sync(create_topic).topic_id, 0, 0)
    assert forget() == (topic_id,)


async def test_a_pin_and_a_retirement_at_once_leave_one_order(database: Database, topic_id: UUID) -> None:
    for start in (0, 10, 20):
        wanted = [WantedRange(partition=0, start_offset=start, end_offset=30)]
        pin_id = uuid4()

        def pinning(conn: Connection, pin_id: UUID = pin_id, wanted: list[WantedRange] = wanted) -> PinRow:
            return pins.take(
                conn, pin_id=pin_id, name=None, topic_id=topic_id, owner="", ttl_ms=HOUR_MS, ranges=wanted, max_pins=9
            )

        granted, went = await asyncio.gather(
            database.run(pinning),
            database.run(partial(retirement, topic_id=topic_id, to=start + 10)),
            return_exceptions=True,
        )
        if isinstance(granted, PinRow):
            assert isinstance(went, Pinned)
            assert (await database.run(lambda conn: partitions.load(conn, topic_id, 0))).log_start_offset <= start
            await database.run(partial(pins.release, pin_id=pin_id))
            await database.run(partial(retirement, topic_id=topic_id, to=start + 10))
        else:
            assert isinstance(granted, OffsetOutOfRange)
            assert isinstance(went, tuple)


# Renewing


def test_a_renewal_lengthens_up_to_the_longest_lifetime_and_never_shortens(database: Database, topic_id: UUID) -> None:
    row = take(database, topic_id, 0, 10, ttl_ms=HOUR_MS)
    assert row.expires_at_ms == row.created_at_ms + HOUR_MS

    def renew(ttl_ms: int) -> int:
        after = database.run_sync(lambda conn: pins.renew(conn, row.pin_id, ttl_ms=ttl_ms, max_lifetime_ms=3 * HOUR_MS))
        assert after.expires_at_ms is not None
        return after.expires_at_ms - row.created_at_ms

    assert renew(1) == HOUR_MS
    assert 2 * HOUR_MS <= renew(2 * HOUR_MS) < 3 * HOUR_MS
    assert renew(9 * HOUR_MS) == 3 * HOUR_MS


def test_what_has_ended_is_not_renewed_and_a_snapshot_is_no_pin(database: Database, topic_id: UUID) -> None:
    row = take(database, topic_id, 0, 10)
    end_now(database, row.pin_id)
    snapshot = take(database, topic_id, 0, 10, name="kept")
    for pin_id in (row.pin_id, uuid4(), snapshot.pin_id):
        with pytest.raises(PinNotFound):
            database.run_sync(partial(pins.renew, pin_id=pin_id, ttl_ms=1, max_lifetime_ms=1))
        with pytest.raises(PinNotFound):
            database.run_sync(partial(pins.release, pin_id=pin_id))


# People


def test_v_pins_shows_what_holds_and_what_retired_objects_cost_stays_counted(
    database: Database, topic_id: UUID
) -> None:
    take(database, topic_id, 10, 20)
    take(database, topic_id, 20, 25, name="audit", ttl_ms=None)
    end_now(database, take(database, topic_id, 0, 10).pin_id)
    statement = "SELECT snapshot, topic, partition, start_offset, end_offset, owner FROM v_pins ORDER BY start_offset"
    rows = database.run_sync(lambda conn: [tuple(row) for row in conn.execute(text(statement))])
    assert rows == [(None, "orders", 0, 10, 20, "a job"), ("audit", "orders", 0, 20, 25, "a job")]
    retire(database, topic_id, 20, is_explicit=True)
    cost = "SELECT cold_objects, retired_objects FROM v_topic_cost"
    assert database.run_sync(lambda conn: tuple(conn.execute(text(cost)).one())) == (1, 2)


def test_held_tells_retention_what_and_for_how_long(database: Database, topic_id: UUID) -> None:
    take(database, topic_id, 10, 20)
    take(database, topic_id, 0, 5, name="audit", ttl_ms=None)
    found = database.run_sync(lambda conn: pins.held(conn, [topic_id]))
    pinned, kept = found.ranges[topic_id, 0]
    assert (pinned.start_offset, pinned.end_offset) == (10, 20)
    assert pinned.expires_in_ms is not None
    assert 0 < pinned.expires_in_ms <= HOUR_MS
    assert (kept.label, kept.expires_in_ms) == ("snapshot audit", None)
    assert database.run_sync(lambda conn: pins.held(conn, [uuid4()])).ranges == {}
