"""A database that went back is noticed by whoever had seen more in it, on SQLite and on PostgreSQL."""

from typing import Any

import pytest
from sqlalchemy import Connection, delete, insert, select, update

from tests.catalogue import create_topic, register
from tests.contracts.topic_names import names
from tiered.errors import CoordinatorLoading, MetadataUnavailable, MetadataWentBack
from tiered.meta import brokers, cluster, liveness, producer_ids
from tiered.meta.engine import Database
from tiered.meta.history import History, Seen
from tiered.meta.tables import cluster as cluster_table
from tiered.meta.tables import database_start

pytest_plugins = ["tests.meta_databases"]


def a_broker(*, seen: Seen | None = None) -> History:
    return History(seen, broker_id=1, on_went_back=lambda _: None)


def enter(database: Database, history: History, server: str) -> str | None:
    """Why the server is refused."""
    try:
        history.take(database.run_sync(lambda conn: history.look(conn, server)))
    except MetadataWentBack as error:
        return str(error)
    return None


def change(database: Database, *, times: int = 1) -> int:
    numbers = [database.run_sync(cluster.take_number) for _ in range(times)]
    return numbers[-1]


def forget(database: Database, *, since: int) -> None:
    """As where a standby was promoted that had no change after this one."""

    def go_back(conn: Connection) -> None:
        conn.execute(update(cluster_table).values(change_number=since))
        conn.execute(delete(database_start).where(database_start.c.change_number > since))

    database.run_sync(go_back)


def beat(conn: Connection, broker_id: int = 1) -> liveness.Pulse:
    return liveness.beat(conn, broker_id=broker_id, broker_epoch=broker_id, lease_ms=1_000)


def went_back(database: Database) -> str | None:
    return database.run_sync(cluster.load).went_back


def test_a_database_that_lost_nothing_is_gone_on_with(database: Database) -> None:
    history = a_broker()
    assert enter(database, history, "first") is None
    history.saw("first", change(database, times=3))
    for server in ("second", "third", "third"):
        assert enter(database, history, server) is None
        history.saw(server, change(database))
    assert history.seen is not None
    assert (history.seen.start, history.seen.server, history.seen.change_number) == (3, "third", change(database) - 1)
    history.require()


def test_a_database_that_has_less_than_was_seen_is_refused_by_everybody(database: Database) -> None:
    before = change(database)
    history, other = a_broker(), a_broker()
    assert enter(database, history, "first") is enter(database, other, "first") is None
    history.saw("first", change(database, times=3))
    forget(database, since=before)
    reason = enter(database, history, "second")
    assert reason is not None
    assert "has lost commits" in reason
    assert went_back(database) == reason
    assert enter(database, other, "second") == reason
    assert enter(database, a_broker(), "second") == reason
    assert database.run_sync(beat).went_back == reason


def test_nothing_is_changed_any_more_once_one_broker_has_said_so(database: Database) -> None:
    """Also by a broker that has looked before, and whose own changes are all there."""
    before = change(database)
    history, other = a_broker(), a_broker()
    assert enter(database, history, "first") is enter(database, other, "first") is None
    history.saw("first", change(database, times=3))
    forget(database, since=before)
    assert enter(database, other, "second") is None
    change(database)
    reason = enter(database, history, "second")
    reasons: list[str] = []
    database.history = History(None, broker_id=2, on_went_back=reasons.append)
    for _ in range(2):
        with pytest.raises(MetadataWentBack):
            database.run_sync(cluster.take_number)
    assert reasons == [reason]


def test_no_ids_are_given_out_before_every_broker_in_service_has_compared(database: Database) -> None:
    database.run_sync(lambda conn: register(conn, 2))
    assert enter(database, a_broker(), "first") is None
    for broker_id in (1, 2):
        with pytest.raises(CoordinatorLoading, match=f"broker {broker_id} has not compared"):
            database.run_sync(producer_ids.allocate_block)
        database.run_sync(lambda conn, broker_id=broker_id: beat(conn, broker_id))  # type: ignore[misc]
    database.run_sync(producer_ids.allocate_block)
    assert enter(database, a_broker(), "second") is None
    database.run_sync(beat)
    with pytest.raises(CoordinatorLoading):
        database.run_sync(producer_ids.allocate_block)
    database.run_sync(lambda conn: brokers.fence(conn, broker_id=2, broker_epoch=2))
    database.run_sync(producer_ids.allocate_block)


@pytest.mark.parametrize("restarts", [1, 2, 3])
def test_it_is_noticed_however_many_changes_and_starts_have_come_since(database: Database, restarts: int) -> None:
    history, other = a_broker(), a_broker()
    assert enter(database, history, "first") is enter(database, other, "first") is None
    before = change(database)
    history.saw("first", change(database))
    forget(database, since=before)
    for number in range(restarts):
        assert enter(database, other, f"later {number}") is None
        other.saw(f"later {number}", change(database, times=10))
    assert enter(database, history, f"later {restarts - 1}") is not None


def test_another_database_of_the_same_cluster_is_refused(database: Database) -> None:
    seen = Seen(cluster_id="test-cluster", start=1, server="of another machine", change_number=0)
    assert enter(database, a_broker(), "first") is None
    assert "has another past" in str(enter(database, a_broker(seen=seen), "first"))


def state_of(conn: Connection) -> tuple[int, list[Any]]:
    return cluster.load(conn).change_number, list(conn.execute(select(database_start)).mappings())


def bring_back(database: Database, state: tuple[int, list[Any]]) -> None:
    """As where the newest state takes the place of one that was refused."""

    def change_all(conn: Connection) -> None:
        conn.execute(update(cluster_table).values(change_number=state[0], went_back=None))
        conn.execute(delete(database_start))
        conn.execute(insert(database_start), [dict(row) for row in state[1]])

    database.run_sync(change_all)


@pytest.mark.parametrize("changes", [0, 1])
@pytest.mark.parametrize("is_restarted_before", [False, True])
def test_who_met_a_promoted_standby_first_and_changed_nothing_there_takes_the_newest_database(
    database: Database, changes: int, is_restarted_before: bool
) -> None:
    first_to_meet = a_broker()
    assert enter(database, first_to_meet, "first") is None
    first_to_meet.saw("first", change(database))
    older = database.run_sync(state_of)
    if is_restarted_before:
        enter(database, a_broker(), "second")
    else:
        change(database)
    newest = database.run_sync(state_of)
    bring_back(database, older)
    assert enter(database, first_to_meet, "standby") is None
    first_to_meet.saw("standby", older[0] + 1)
    if changes:
        first_to_meet.saw("standby", change(database, times=changes))

    bring_back(database, newest)
    restarted = a_broker(seen=first_to_meet.seen)
    assert (enter(database, restarted, "newest") is None) is (changes == 0)


def test_the_database_of_another_cluster_is_left_as_it_is(database: Database) -> None:
    """Somebody gave a broker the wrong --meta: it must not stop those who belong there."""
    assert enter(database, a_broker(), "first") is None
    stranger = a_broker(seen=Seen(cluster_id="another", start=7, server="first", change_number=1_000))
    assert enter(database, stranger, "first") is None
    assert not stranger.has_entered("first")
    assert went_back(database) is None


def test_an_answer_that_comes_when_its_server_was_replaced_counts(database: Database) -> None:
    told: list[str] = []
    history = History(None, broker_id=1, on_went_back=told.append)
    assert enter(database, history, "first") is None
    before = change(database)
    history.saw("first", before)
    late = change(database)
    forget(database, since=before)
    assert enter(database, history, "second") is None
    history.saw("first", before)
    assert told == []
    history.saw("first", late)
    with pytest.raises(MetadataWentBack):
        history.require()
    assert len(told) == 1


def test_an_answer_that_comes_while_the_next_start_is_looked_at_counts(database: Database) -> None:
    history = a_broker()
    assert enter(database, history, "first") is None
    before = change(database)
    late = change(database)
    forget(database, since=before)
    look = database.run_sync(lambda conn: history.look(conn, "second"))
    history.saw("first", late)
    with pytest.raises(MetadataWentBack):
        history.take(look)


@pytest.mark.parametrize("changes_since", [1, 10])
def test_who_hears_late_of_what_is_lost_tells_the_others(database: Database, changes_since: int) -> None:
    """Also where it has seen as many changes in the database that went back."""
    before = change(database)
    history, other = a_broker(), a_broker()
    assert enter(database, history, "first") is enter(database, other, "first") is None
    late = change(database)
    forget(database, since=before)
    assert enter(database, history, "second") is enter(database, other, "second") is None
    history.saw("second", change(database, times=changes_since))
    history.saw("first", late)
    with pytest.raises(MetadataWentBack):
        history.require()
    assert went_back(database) is None
    assert not history.has_entered("second")
    reason = enter(database, history, "second")
    assert reason is not None
    assert went_back(database) == reason
    with pytest.raises(MetadataWentBack):
        history.has_entered("second")
    assert enter(database, other, "third") == reason


def test_who_knows_of_a_loss_says_nothing_of_it_in_a_database_that_has_all(database: Database) -> None:
    before = change(database)
    history = a_broker()
    assert enter(database, history, "first") is None
    late = change(database)
    forget(database, since=before)
    assert enter(database, history, "second") is None
    history.saw("first", late)
    database.run_sync(lambda conn: conn.execute(delete(database_start).where(database_start.c.server == "second")))
    database.run_sync(lambda conn: conn.execute(update(cluster_table).values(change_number=late)))
    assert enter(database, history, "newest") is not None, "the process has refused, until it starts again"
    assert went_back(database) is None


def test_a_start_that_could_not_be_written_down_is_written_by_the_next_call(database: Database) -> None:
    history = a_broker()

    def fails(conn: Connection) -> None:
        history.look(conn, "first")
        raise ValueError("as planned")

    with pytest.raises(ValueError, match="as planned"):
        database.run_sync(fails)
    assert not history.has_entered("first")
    assert enter(database, history, "first") is None
    assert enter(database, a_broker(seen=history.seen), "first") is None


async def test_what_a_committed_call_took_or_read_was_seen_and_nothing_else(database: Database) -> None:
    history = database.history = a_broker()
    numbers = [await database.run(cluster.take_number)]
    database.run_sync(beat)
    await database.run(producer_ids.allocate_block)

    def fails(conn: Connection) -> None:
        cluster.take_number(conn)
        raise ValueError("as planned")

    with pytest.raises(ValueError, match="as planned"):
        await database.run(fails)
    await database.run(names)
    assert history.seen is not None
    assert history.seen.change_number == numbers[-1] + 1
    by_another = Database.open(database.name)
    numbers.append(by_another.run_sync(lambda conn: create_topic(conn).change_number))
    by_another.close_sync()
    assert (await database.read(cluster.load)).change_number == numbers[-1] == history.seen.change_number


async def test_no_call_is_made_once_it_is_known(database: Database) -> None:
    history = database.history = a_broker()
    await database.run(cluster.take_number)
    history.refuse("as planned")
    for call in (database.run(names), database.read(names), database.read_part(names)):
        with pytest.raises(MetadataUnavailable, match="as planned"):
            await call
