"""SQL away for seconds: consumers go on fetching, commits fail with a retriable error and succeed afterwards, and
no committed offset ever goes back. `make test` has short outages; `make soak-tests` those
of 30 s.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.postgres import PostgresDatabases
from tests.support.topics import create
from tests.support.wire_offsets import commit, fetch

if TYPE_CHECKING:
    from tests.postgres import PostgresServer

pytest_plugins = ["tests.postgres"]

GROUPS = 8
RETRIABLE = {14, 15, 16}
TOPIC = "outage"
PATIENCE_S = 60.0


@dataclass(slots=True)
class CommitterState:
    """One group that commits 1, 2, 3 …: what was acknowledged, what failed, and what came back."""

    group: str
    acknowledged: int = 0
    tried: int = 0
    codes: list[int] = field(default_factory=list)
    slowest_s: float = 0.0
    went_back: list[str] = field(default_factory=list)


class Committers:
    """Threads that commit until they are stopped."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._stop = threading.Event()
        self.states = [CommitterState(f"group-{number}") for number in range(GROUPS)]
        self._threads = [threading.Thread(target=self._run, args=(state,), daemon=True) for state in self.states]
        for thread in self._threads:
            thread.start()

    def _run(self, state: CommitterState) -> None:
        with RawConnection(self._broker, timeout_s=PATIENCE_S) as connection:
            while not self._stop.is_set():
                state.tried += 1
                started = time.monotonic()
                code = commit(connection, state.group, {TOPIC: {0: state.tried}})[TOPIC, 0]
                state.slowest_s = max(state.slowest_s, time.monotonic() - started)
                if code == 0:
                    state.acknowledged = state.tried
                else:
                    state.codes.append(code)
                if state.tried % 5 == 0:
                    self._look(connection, state)

    def _look(self, connection: RawConnection, state: CommitterState) -> None:
        try:
            found = fetch(connection, state.group, {TOPIC: [0]})[TOPIC, 0]
        except AssertionError:
            return  # SQL is away, and OffsetFetch says so
        if found != -1 and not state.acknowledged <= found <= state.tried:
            state.went_back.append(f"{state.group}: {found} after {state.acknowledged} was acknowledged")

    def wait_for_progress(self) -> None:
        """Returns once each group has had a new commit acknowledged."""
        before = [state.acknowledged for state in self.states]
        deadline = time.monotonic() + PATIENCE_S
        while any(state.acknowledged <= old for state, old in zip(self.states, before, strict=True)):
            assert time.monotonic() < deadline, "commits do not succeed"
            time.sleep(0.02)

    def failures(self) -> int:
        return sum(len(state.codes) for state in self.states)

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


class TableReader:
    """SELECTs the committed offsets over and over, and notes each that is lower than before."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stop = threading.Event()
        self.reads = 0
        self.went_back: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        highest: dict[str, int] = {}
        while not self._stop.wait(0.02):
            try:
                with self._engine.connect() as conn:
                    rows = conn.execute(text("SELECT group_id, committed_offset FROM group_offset")).all()
            except DBAPIError:
                continue  # the outage
            self.reads += 1
            for group, offset in rows:
                if offset < highest.get(group, -1):
                    self.went_back.append(f"{group}: {offset} after {highest[group]}")
                highest[group] = max(offset, highest.get(group, -1))

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)


class Traffic:
    """Records that are produced all the time and consumed as they come, by a member of a group.

    It commits nothing: librdkafka sends older asynchronous commits again after newer ones, which no broker can tell
    from a consumer that goes back. Those who are checked commit one after another.
    """

    def __init__(self, broker: BrokerProcess) -> None:
        self._stop = threading.Event()
        self.consumed = 0
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1})
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.assignments = 0
        self._consumer.subscribe([TOPIC], on_assign=self._assigned)
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    def _assigned(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.assignments += 1

    def _produce(self) -> None:
        while not self._stop.wait(0.01):
            self._producer.produce(TOPIC, b"x", partition=0)
            self._producer.poll(0)

    def _consume(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.consumed += 1

    def wait_for_records(self, count: int) -> None:
        """Returns once `count` more records were consumed."""
        wanted, deadline = self.consumed + count, time.monotonic() + PATIENCE_S
        while self.consumed < wanted:
            assert time.monotonic() < deadline, "fetching has stopped"
            time.sleep(0.01)

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._consumer.close()
        self._producer.flush(PATIENCE_S)


@pytest.fixture
def server(postgres_server: "PostgresServer") -> Iterator["PostgresServer"]:
    """The session's server; it runs when the test has ended."""
    yield postgres_server
    postgres_server.thaw_all()


@pytest.fixture
def url(server: "PostgresServer") -> str:
    """A database of the test's own on it, which goes with the server: it may be away when the test ends."""
    databases = PostgresDatabases(server.url())
    try:
        return databases.create()
    finally:
        databases.close()


def run_outages(broker: BrokerProcess, server: "PostgresServer", url: str, outages: list[tuple[str, float]]) -> None:
    broker.start()
    create(broker, TOPIC)
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), connect_args={"connect_timeout": 2})
    traffic, committers, reader = Traffic(broker), Committers(broker), TableReader(engine)
    try:
        traffic.wait_for_records(10)
        committers.wait_for_progress()
        assert committers.failures() == 0
        for kind, seconds in outages:
            failed_before, consumed_before = committers.failures(), traffic.consumed
            began = time.monotonic()
            server.freeze_all() if kind == "frozen" else server.stop()
            # On a starved machine the committers notice it later: it lasts until one did.
            while (took_s := time.monotonic() - began) < seconds or (
                committers.failures() == failed_before and took_s < PATIENCE_S
            ):
                traffic.wait_for_records(5)
            consumed = traffic.consumed - consumed_before
            server.thaw_all() if kind == "frozen" else server.start()
            healed = time.monotonic()
            committers.wait_for_progress()
            failed = committers.failures() - failed_before
            print(
                f"{kind} for {seconds:g} s: {consumed} records consumed meanwhile, {failed} commits failed, every "
                f"group's commits succeed again {time.monotonic() - healed:.1f} s afterwards"
            )
            assert failed, "the outage was not noticed: it shows nothing"
    finally:
        committers.finish()
        reader.finish()
        traffic.finish()
    codes = {code for state in committers.states for code in state.codes}
    assert codes <= RETRIABLE, f"clients would give up on {codes - RETRIABLE}\n{broker.log()[-4000:]}"
    assert [each for state in committers.states for each in state.went_back] == []
    assert reader.went_back == []
    assert reader.reads > 10
    assert traffic.assignments == 1, "heartbeats need no SQL: nobody had to join again"
    with RawConnection(broker) as connection, engine.connect() as conn:
        rows = conn.execute(text("SELECT group_id, committed_offset FROM group_offset")).all()
        stored = {row.group_id: row.committed_offset for row in rows}
        for state in committers.states:
            found = fetch(connection, state.group, {TOPIC: [0]})[TOPIC, 0]
            assert state.acknowledged <= found <= state.tried
            assert stored[state.group] == found
    slowest = max(state.slowest_s for state in committers.states)
    acknowledged = sum(state.acknowledged for state in committers.states)
    print(f"{acknowledged} the sum of offsets acknowledged; the slowest answer took {slowest:.1f} s; none went back")
    engine.dispose()


@pytest.mark.slow
def test_short_outages_of_sql_stop_no_consumer_and_take_no_commit_back(
    make_broker: Callable[..., BrokerProcess], server: "PostgresServer", url: str
) -> None:
    run_outages(make_broker("--meta", url), server, url, [("frozen", 6.5), ("stopped", 1.5)])


@pytest.mark.soak
def test_outages_of_half_a_minute_stop_no_consumer_and_take_no_commit_back(
    make_broker: Callable[..., BrokerProcess], server: "PostgresServer", url: str
) -> None:
    run_outages(make_broker("--meta", url), server, url, [("frozen", 30.0), ("stopped", 30.0)])


SLOW_COMMIT = """
CREATE FUNCTION sleep_at_commit() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF NEW.committed_offset = 13 THEN PERFORM pg_sleep(7); END IF; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER sleeps AFTER INSERT OR UPDATE ON group_offset DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION sleep_at_commit();
"""


@pytest.mark.slow
def test_a_commit_whose_answer_was_lost_is_settled_before_anything_is_read_or_written(
    make_broker: Callable[..., BrokerProcess], postgres_url: str
) -> None:
    """COMMIT takes longer than the broker waits for it, and happens nevertheless."""
    broker = make_broker("--meta", postgres_url).start()
    create(broker, TOPIC)
    engine = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg"))
    with engine.begin() as conn:
        conn.exec_driver_sql(SLOW_COMMIT)
    with RawConnection(broker, timeout_s=PATIENCE_S) as connection:
        assert commit(connection, "billing", {TOPIC: {0: 12}})[TOPIC, 0] == 0
        assert commit(connection, "billing", {TOPIC: {0: 13}})[TOPIC, 0] == 15
        with engine.connect() as conn:
            stored = conn.execute(text("SELECT committed_offset FROM group_offset")).scalar_one()
        assert stored == 12, "the old COMMIT must still be under way, or this shows nothing"
        assert fetch(connection, "billing", {TOPIC: [0]})[TOPIC, 0] == 13, "an answer of 12 would be overtaken"
        assert commit(connection, "billing", {TOPIC: {0: 7}})[TOPIC, 0] == 0
        assert fetch(connection, "billing", {TOPIC: [0]})[TOPIC, 0] == 7
    engine.dispose()
    assert "the group slots were taken again" in broker.log()
