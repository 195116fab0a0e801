"""Word of changes: PostgreSQL tells, SQLite never does, and nothing is lost when a connection is."""

import logging
import queue
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Connection

from tests.catalogue import create_topic, open_ready
from tiered.errors import InvalidTopic
from tiered.meta import listener, topics
from tiered.meta.engine import Database

if TYPE_CHECKING:
    from tests.postgres import PostgresServer

pytest_plugins = ["tests.meta_databases"]

SOON_SECONDS = 20.0
"""For a busy machine; what it really takes is printed."""


class Heard:
    """Counts calls, and when they came."""

    def __init__(self) -> None:
        self.calls: queue.Queue[float] = queue.Queue()

    def __call__(self) -> None:
        self.calls.put(time.perf_counter())

    def next(self) -> float:
        return self.calls.get(timeout=SOON_SECONDS)

    def drain(self) -> None:
        """Until it has been quiet for a moment: the first call says that the connection was made."""
        while True:
            try:
                self.calls.get(timeout=0.3)
            except queue.Empty:
                return


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Database]:
    opened = open_ready(postgres_url)
    yield opened
    opened.close_sync()


LISTENING = (
    "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND query IN ('LISTEN tiered_change', 'SELECT 1')"
)


def test_every_change_wakes_a_listener_within_a_moment(postgres: Database) -> None:
    heard = Heard()
    listening = postgres.listen(heard)
    heard.next()
    delays = []
    for number in range(20):
        postgres.run_sync(partial(create_topic, name=f"t{number}"))
        committed = time.perf_counter()
        delays.append(heard.next() - committed)
    print(f"\nwoken {sorted(delays)[len(delays) // 2] * 1000:.2f} ms after the commit was answered (median)")
    listening.close()
    postgres.run_sync(lambda conn: create_topic(conn, "unheard"))
    assert heard.calls.empty()


def test_what_was_not_committed_is_not_told(postgres: Database) -> None:
    heard = Heard()
    postgres.listen(heard)
    heard.next()

    def fail(conn: Connection) -> None:
        create_topic(conn, "half")
        raise InvalidTopic("as planned")

    with pytest.raises(InvalidTopic):
        postgres.run_sync(fail)
    postgres.run_sync(topics.load_all)
    heard.drain()
    postgres.run_sync(create_topic)
    heard.next()
    assert heard.calls.empty()


def test_everybody_who_listens_is_told_of_what_anybody_does(postgres_url: str, postgres: Database) -> None:
    other = Database.open(postgres_url)
    ears = [Heard() for _ in range(3)]
    for ear in ears:
        other.listen(ear)
        ear.next()
    postgres.run_sync(create_topic)
    for ear in ears:
        ear.next()
    other.close_sync()


def test_a_connection_that_was_lost_is_made_again_and_says_so(
    postgres: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    heard = Heard()
    postgres.listen(heard)
    heard.next()
    cut = f"SELECT pg_terminate_backend(pid) {LISTENING}"
    for _ in range(2):
        heard.drain()
        assert postgres.run_sync(lambda conn: conn.exec_driver_sql(cut).scalars().all()) == [True]
        heard.next()  # what came meanwhile would not have been heard
        heard.drain()
        postgres.run_sync(lambda conn: create_topic(conn, f"t{time.monotonic_ns()}"))
        heard.next()
    said = [record.message for record in caplog.records if record.name == listener.__name__]
    assert [("tells of changes again" in line) for line in said] == [False, True] * 2


def test_a_server_that_was_stopped_is_heard_again(postgres_url: str, postgres_server: "PostgresServer") -> None:
    database = open_ready(postgres_url)
    heard = Heard()
    database.listen(heard)
    heard.next()
    heard.drain()
    postgres_server.stop()
    time.sleep(0.3)
    postgres_server.start()
    heard.next()
    database.run_sync(create_topic)
    heard.next()
    database.close_sync()


def test_a_connection_that_no_longer_answers_is_given_up(
    postgres_url: str, postgres_server: "PostgresServer", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(listener, "ANSWER_SECONDS", 0.3)
    database = open_ready(postgres_url)
    heard = Heard()
    database.listen(heard)
    heard.next()
    pid = database.run_sync(lambda conn: conn.exec_driver_sql(f"SELECT pid {LISTENING}").scalar_one())
    postgres_server.freeze(int(pid))
    try:
        heard.next()  # on another connection
        database.run_sync(create_topic)
        heard.next()
    finally:
        postgres_server.thaw(int(pid))
    database.close_sync()


def test_who_listens_sleeps_until_there_is_word(postgres: Database) -> None:
    heard = Heard()
    postgres.listen(heard)
    heard.next()
    heard.drain()
    (thread,) = [each.native_id for each in threading.enumerate() if each.name == "meta-listen"]

    def times_woken() -> int:
        status = Path(f"/proc/self/task/{thread}/status").read_text()
        return int(status.partition("voluntary_ctxt_switches:")[2].split()[0])

    before = times_woken()
    time.sleep(0.5)
    assert times_woken() - before <= 1


def test_closing_the_database_ends_its_listeners_at_once(postgres_url: str) -> None:
    database = open_ready(postgres_url)
    heard = Heard()
    for _ in range(3):
        database.listen(heard)
    for _ in range(3):
        heard.next()
    database.close_sync()
    assert not [each for each in threading.enumerate() if each.name == "meta-listen"]


def test_sqlite_never_tells(tmp_path: "object") -> None:
    database = open_ready(f"sqlite:///{tmp_path}/meta.db")
    heard = Heard()
    listening = database.listen(heard)
    database.run_sync(create_topic)
    heard.drain()
    listening.close()
    database.close_sync()
