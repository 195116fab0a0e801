"""Heartbeats and the controller's lease, on SQLite and on PostgreSQL."""

import asyncio
import threading
import time
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from tests.catalogue import create_topic, open_ready, register
from tiered.errors import StaleBrokerEpoch
from tiered.ids import InSyncReplica
from tiered.meta import brokers, changes, liveness
from tiered.meta.clock import database_now_ms
from tiered.meta.elections import change_replica_sets
from tiered.meta.engine import Database
from tiered.meta.liveness import NO_CONTROLLER, Pulse

pytest_plugins = ["tests.meta_databases"]

LONG_MS = 60_000


def epoch_of(database: Database, broker_id: int) -> int:
    return next(row.broker_epoch for row in database.run_sync(brokers.load_all) if row.broker_id == broker_id)


def beat(database: Database, broker_id: int, *, lease_ms: int = LONG_MS, **others: Any) -> Pulse:
    given = {"broker_epoch": epoch_of(database, broker_id), "lease_ms": lease_ms} | others
    return database.run_sync(lambda conn: liveness.beat(conn, broker_id=broker_id, **given))


def number(database: Database) -> int:
    return database.run_sync(lambda conn: changes.since(conn, 0)).number


def set_lease(database: Database, expires_in_ms: int) -> None:
    """As a clock that jumps would."""

    def move(conn: Connection) -> None:
        at = database_now_ms(conn) + expires_in_ms
        conn.execute(text("UPDATE lease SET expires_at_ms = :at"), {"at": at})

    database.run_sync(move)


# Beats


def test_a_beat_is_seen_by_the_others_and_is_no_change_of_the_feed(database: Database) -> None:
    database.run_sync(lambda conn: register(conn, 2))
    before = number(database)
    first = beat(database, 1)
    assert first.change_number == before
    assert [(each.broker_id, each.fenced) for each in first.beats] == [(1, False), (2, False)]
    time.sleep(0.005)
    second = beat(database, 1)
    seen = {each.broker_id: each for each in beat(database, 2).beats}
    assert seen[1] == second.beats[0]
    assert seen[1].heartbeat_at_ms > first.beats[0].heartbeat_at_ms
    assert abs(seen[1].heartbeat_at_ms - database.run_sync(database_now_ms)) < 60_000, "by the database's clock"
    assert number(database) == before


def test_a_beat_is_two_statements_and_the_controllers_three(database: Database) -> None:
    database.run_sync(lambda conn: register(conn, 2))
    assert beat(database, 1).is_controller
    statements: list[str] = []

    def counted(conn: Connection, broker_id: int, broker_epoch: int) -> Pulse:
        event.listen(conn, "before_cursor_execute", lambda *given: statements.append(given[2]))
        return liveness.beat(conn, broker_id=broker_id, broker_epoch=broker_epoch, lease_ms=LONG_MS)

    counts = []
    for broker_id in (1, 2):
        statements.clear()
        pulse = database.run_sync(partial(counted, broker_id=broker_id, broker_epoch=epoch_of(database, broker_id)))
        counts.append((pulse.controller_id, len(statements)))
    assert counts == [(1, 3), (1, 2)]


def test_a_beat_says_how_far_the_feed_is(database: Database) -> None:
    database.run_sync(create_topic)
    assert beat(database, 1).change_number == number(database)


def test_a_process_that_was_replaced_learns_of_it(database: Database) -> None:
    old = epoch_of(database, 1)
    database.run_sync(lambda conn: register(conn, 1))
    for epoch in (old, 10**9):
        with pytest.raises(StaleBrokerEpoch, match="must stop"):
            beat(database, 1, broker_epoch=epoch)
    with pytest.raises(StaleBrokerEpoch):
        database.run_sync(lambda conn: liveness.beat(conn, broker_id=9, broker_epoch=1, lease_ms=LONG_MS))


def test_a_beat_puts_a_current_registration_back_into_service_and_tells_the_feed(database: Database) -> None:
    epoch = epoch_of(database, 1)
    database.run_sync(lambda conn: brokers.fence(conn, broker_id=1, broker_epoch=epoch))
    before = number(database)
    pulse = beat(database, 1)
    assert pulse.was_fenced
    assert not pulse.beats[0].fenced
    told = database.run_sync(lambda conn: changes.since(conn, before))
    assert told.number == pulse.change_number == before + 1
    assert [(row.broker_id, row.fenced, row.broker_epoch) for row in told.brokers] == [(1, False, epoch)]
    assert not beat(database, 1).was_fenced


def test_an_old_process_cannot_bring_its_successor_back_into_service(database: Database) -> None:
    old = epoch_of(database, 1)
    now = database.run_sync(lambda conn: register(conn, 1))
    database.run_sync(lambda conn: brokers.fence(conn, broker_id=1, broker_epoch=now))
    with pytest.raises(StaleBrokerEpoch):
        beat(database, 1, broker_epoch=old)
    assert database.run_sync(brokers.load_all)[0].fenced


# The lease


def test_the_first_who_beats_is_the_controller_until_its_lease_ends(database: Database) -> None:
    database.run_sync(lambda conn: register(conn, 2))
    assert beat(database, 2).is_controller
    for _ in range(2):
        other = beat(database, 1)
        assert (other.controller_id, other.is_controller) == (2, False)
        assert beat(database, 2).is_controller, "its own beats renew it"
    set_lease(database, -1)
    taken = beat(database, 1)
    assert (taken.controller_id, taken.is_controller) == (1, True)
    late = beat(database, 2)
    assert (late.controller_id, late.is_controller) == (1, False), "who comes late finds it taken"


def test_a_renewed_lease_ends_later(database: Database) -> None:
    def ends(conn: Connection) -> int:
        return int(conn.execute(text("SELECT expires_at_ms FROM lease")).scalar_one())

    beat(database, 1)
    first = database.run_sync(ends)
    time.sleep(0.005)
    beat(database, 1)
    assert database.run_sync(ends) > first


def test_who_does_not_want_the_lease_neither_takes_nor_renews_it(database: Database) -> None:
    nobody = beat(database, 1, wants_lease=False)
    assert (nobody.controller_id, nobody.is_controller) == (NO_CONTROLLER, False)
    assert beat(database, 1).is_controller
    set_lease(database, -1)
    assert beat(database, 1, wants_lease=False).controller_id == NO_CONTROLLER


def test_a_restarted_controller_takes_its_lease_up_at_once(database: Database) -> None:
    beat(database, 1)
    database.run_sync(lambda conn: register(conn, 1))
    assert beat(database, 1).is_controller


def test_a_lease_that_was_released_is_taken_by_the_next_beat(database: Database) -> None:
    database.run_sync(lambda conn: register(conn, 2))
    epoch, other = epoch_of(database, 1), epoch_of(database, 2)
    beat(database, 1)

    def release(broker_id: int, broker_epoch: int) -> bool:
        return database.run_sync(lambda conn: liveness.release(conn, broker_id=broker_id, broker_epoch=broker_epoch))

    assert not release(2, other)
    assert not release(1, epoch + 1)
    assert beat(database, 2).controller_id == 1
    assert release(1, epoch)
    assert not release(1, epoch)
    assert beat(database, 2).is_controller


def test_a_clock_that_was_set_back_does_not_leave_the_cluster_without_a_controller(database: Database) -> None:
    """A lease that ends in an hour, where nobody grants more than seconds, was granted before the clock was set."""
    database.run_sync(lambda conn: register(conn, 2))
    beat(database, 1, lease_ms=2_000)
    set_lease(database, 3_600_000)
    assert beat(database, 2, lease_ms=2_000).is_controller


async def test_of_many_who_reach_for_the_lease_one_gets_it(database: Database) -> None:
    epochs = {1: epoch_of(database, 1)}
    for broker_id in range(2, 7):
        epochs[broker_id] = await database.run(partial(register, broker_id=broker_id))
    pulses = await asyncio.gather(
        *(
            database.run(partial(liveness.beat, broker_id=broker_id, broker_epoch=epoch, lease_ms=LONG_MS))
            for broker_id, epoch in epochs.items()
        )
    )
    (holder,) = {pulse.controller_id for pulse in pulses}
    assert [pulse.is_controller for pulse in pulses].count(True) == 1
    assert holder in epochs


# Beats and everything else at once


async def test_a_beat_and_a_fencing_never_wait_for_each_other(database: Database) -> None:
    """A beat that finds itself fenced takes its number before its row, as the fencing does."""
    epoch = epoch_of(database, 1)
    ended = asyncio.Event()

    async def fence() -> None:
        for _ in range(30):
            await database.run(lambda conn: change_replica_sets(conn, lambda *_: None, fence=[InSyncReplica(1, epoch)]))
        ended.set()

    async def live() -> int:
        back = 0
        while not ended.is_set():
            pulse = await database.run(
                lambda conn: liveness.beat(conn, broker_id=1, broker_epoch=epoch, lease_ms=LONG_MS), ahead=True
            )
            back += pulse.was_fenced
        return back

    _, back, other = await asyncio.gather(fence(), live(), live())
    assert back + other > 0
    assert deadlocks(database) == 0


def deadlocks(database: Database) -> int:
    if database.dialect == "sqlite":
        return 0
    query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    return database.run_sync(lambda conn: int(conn.exec_driver_sql(query).scalar_one()))


async def test_a_beat_goes_ahead_of_all_that_waits_for_a_lock(postgres_url: str) -> None:
    database, other = open_ready(postgres_url), Database.open(postgres_url)
    epoch = epoch_of(database, 1)
    entered, release = threading.Event(), threading.Event()

    def hold(conn: Connection) -> None:
        conn.execute(text("UPDATE cluster SET change_number = change_number"))
        entered.set()
        release.wait(20)

    holder = asyncio.create_task(other.run(hold))
    await asyncio.to_thread(entered.wait, 10)
    waiting = [asyncio.create_task(database.run(partial(create_topic, name=f"t{n}"))) for n in range(12)]
    await asyncio.sleep(0.1)
    for _ in range(5):
        pulse = await database.run(
            lambda conn: liveness.beat(conn, broker_id=1, broker_epoch=epoch, lease_ms=LONG_MS),
            deadline_ms=2_000, ahead=True,
        )  # fmt: skip
        assert pulse.is_controller
    assert not any(task.done() for task in waiting)
    release.set()
    await holder
    await asyncio.gather(*waiting)
    await database.close()
    await other.close()


async def test_a_broker_that_stops_within_a_beat_does_not_stop_those_who_fence_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiered.meta.postgres_session.MAX_IDLE_IN_CHANGE_MS", 300)
    stopped, database = Database.open(postgres_url), open_ready(postgres_url)
    epoch = epoch_of(database, 1)
    entered, woken = threading.Event(), threading.Event()

    def beat_and_stop(conn: Connection) -> None:
        liveness.beat(conn, broker_id=1, broker_epoch=epoch, lease_ms=LONG_MS)
        entered.set()
        woken.wait(20)

    stopping = asyncio.create_task(stopped.run(beat_and_stop, ahead=True))
    await asyncio.to_thread(entered.wait, 10)
    dead = InSyncReplica(1, epoch)
    elected = await database.run(
        lambda conn: change_replica_sets(conn, lambda *_: None, fence=[dead]), deadline_ms=5_000
    )
    assert elected.fenced == (dead,)
    woken.set()
    await asyncio.gather(stopping, return_exceptions=True)
    await database.close()
    await stopped.close()
