"""A broker's number is taken by compare-and-swap, on SQLite and on PostgreSQL."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest

from tests.catalogue import open_ready, registration
from tiered.errors import LostRace
from tiered.meta import brokers, changes, liveness
from tiered.meta.brokers import BrokerRow, RegistrationResult
from tiered.meta.engine import Database
from tiered.rules.replication.number_claim import Claim, Holder

pytest_plugins = ["tests.meta_databases"]


def claim(process: UUID, *earlier: UUID, marker_epoch: int | None = None, silent: Holder | None = None) -> Claim:
    return Claim(incarnations=frozenset({process, *earlier}), marker_epoch=marker_epoch, silent=silent)


def take(database: Database, process: UUID, wanted: Claim) -> RegistrationResult:
    return database.run_sync(lambda conn: registration(conn, 2, incarnation_id=process, claim=wanted))


def two(database: Database) -> BrokerRow:
    row = database.run_sync(lambda conn: brokers.load(conn, 2))
    assert row is not None
    return row


def beat(database: Database) -> None:
    time.sleep(0.005)
    epoch = two(database).broker_epoch
    database.run_sync(lambda conn: liveness.beat(conn, broker_id=2, broker_epoch=epoch, lease_ms=60_000))


def test_a_number_that_nobody_has_is_free(database: Database) -> None:
    assert database.run_sync(lambda conn: brokers.load(conn, 2)) is None
    process = uuid4()
    made = take(database, process, claim(process))
    assert (two(database).incarnation_id, two(database).broker_epoch) == (process, made.broker_epoch)


def test_a_process_of_another_folder_is_not_replaced_and_nothing_changes(database: Database) -> None:
    first, second = uuid4(), uuid4()
    take(database, first, claim(first))
    before, number = two(database), database.run_sync(lambda conn: changes.since(conn, 0)).number
    with pytest.raises(LostRace, match="another process"):
        take(database, second, claim(second))
    assert two(database) == before
    assert database.run_sync(lambda conn: changes.since(conn, 0)).number == number


def test_a_process_of_the_same_folder_is_replaced_at_once(database: Database) -> None:
    first, second, third = uuid4(), uuid4(), uuid4()
    made = take(database, first, claim(first))
    made = take(database, second, claim(second, marker_epoch=made.broker_epoch))
    take(database, third, claim(third, second))
    assert two(database).incarnation_id == third


def test_one_that_is_out_of_service_is_replaced_at_once(database: Database) -> None:
    first, second = uuid4(), uuid4()
    made = take(database, first, claim(first))
    database.run_sync(lambda conn: brokers.fence(conn, broker_id=2, broker_epoch=made.broker_epoch))
    take(database, second, claim(second))
    assert (two(database).incarnation_id, two(database).fenced) == (second, False)


def test_a_silent_one_is_replaced_unless_it_beats_after_all(database: Database) -> None:
    first, second = uuid4(), uuid4()
    take(database, first, claim(first))
    silent = two(database).holder
    beat(database)
    with pytest.raises(LostRace):
        take(database, second, claim(second, silent=silent))
    take(database, second, claim(second, silent=two(database).holder))
    assert two(database).incarnation_id == second


@pytest.mark.parametrize("is_held", [False, True])
def test_of_two_that_want_a_number_at_once_exactly_one_gets_it(database_url: str, is_held: bool) -> None:
    ready = open_ready(database_url)
    silent = None
    if is_held:
        gone = uuid4()
        take(ready, gone, claim(gone))
        silent = two(ready).holder
    together = threading.Barrier(2)

    def race(process: UUID) -> UUID | None:
        own = Database.open(database_url)
        try:
            together.wait(30)
            take(own, process, claim(process, silent=silent))
        except LostRace:
            return None
        else:
            return process
        finally:
            own.close_sync()

    with ThreadPoolExecutor(2) as threads:
        winners = [each for each in threads.map(race, (uuid4(), uuid4())) if each is not None]
    assert winners == [two(ready).incarnation_id]
    ready.close_sync()
