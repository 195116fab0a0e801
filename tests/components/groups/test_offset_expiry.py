"""When committed offsets go (KIP-211, KIP-496). Rows are made old in SQL: a minute is the shortest retention."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.support.topics import create
from tests.support.wire_offsets import commit, fetch, group_id

LONG_AGO_MS = 1_600_000_000_000
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Keeps offsets for a minute and looks for expired ones all the time."""
    settings = {
        "offsets.retention.minutes": 1,
        "offsets.retention.check.interval.ms": 100,
        "group.initial.rebalance.delay.ms": 0,
    }
    process = BrokerProcess(tmp_path_factory.mktemp("expiry") / "data", settings=settings).start()
    yield process
    process.ensure_stopped()


def execute(broker: BrokerProcess, statement: str, *parameters: object) -> list[tuple[object, ...]]:
    """One statement on the broker's own database, beside it."""
    connection = sqlite3.connect(Path(broker.data) / "meta.db", timeout=10, isolation_level=None)
    try:
        return connection.execute(statement, parameters).fetchall()
    finally:
        connection.close()


def make_old(broker: BrokerProcess, group: str, topic: str) -> None:
    execute(
        broker,
        "UPDATE group_offset SET committed_at_ms = ? WHERE group_id = ? "
        "AND topic_id = (SELECT topic_id FROM topic WHERE name = ? AND deleted_at_ms IS NULL)",
        LONG_AGO_MS, group, topic,
    )  # fmt: skip


def wait_until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not claim():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def pass_a_round(broker: BrokerProcess, topic: str) -> None:
    """Returns after a whole round of expiry: a group that is old in every way has gone."""
    canary = group_id()
    with RawConnection(broker) as connection:
        commit(connection, canary, {topic: {0: 1}})
        make_old(broker, canary, topic)
        wait_until(lambda: fetch(connection, canary, None) == {})


def rows(broker: BrokerProcess, group: str) -> list[tuple[object, ...]]:
    return execute(broker, "SELECT protocol_type, generation FROM consumer_group WHERE group_id = ?", group)


def test_offsets_of_a_group_without_members_go_by_the_age_of_their_commit(broker: BrokerProcess) -> None:
    old, young = create(broker, "simple-old"), create(broker, "simple-young")
    group = group_id()
    with RawConnection(broker) as connection:
        commit(connection, group, {old: {0: 1}, young: {0: 2}})
        make_old(broker, group, old)
        wait_until(lambda: fetch(connection, group, None) == {(young, 0): 2})
        assert len(rows(broker, group)) == 1
        make_old(broker, group, young)
        wait_until(lambda: rows(broker, group) == [])
        assert fetch(connection, group, None) == {}
        assert commit(connection, group, {old: {0: 3}})[old, 0] == 0
        assert fetch(connection, group, None) == {(old, 0): 3}


def test_a_living_group_loses_only_old_offsets_of_topics_it_does_not_read_and_an_empty_one_all(
    broker: BrokerProcess,
) -> None:
    read, unread = create(broker, "read"), create(broker, "unread")
    group = group_id()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe([read])
    with RawConnection(broker) as connection:
        wait_until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 1)
        offsets = [TopicPartition(read, 0, 5), TopicPartition(unread, 0, 6)]
        consumer.commit(offsets=offsets, asynchronous=False)
        assert fetch(connection, group, None) == {(read, 0): 5, (unread, 0): 6}
        make_old(broker, group, read)
        make_old(broker, group, unread)
        wait_until(lambda: fetch(connection, group, None) == {(read, 0): 5})
        pass_a_round(broker, read)
        assert fetch(connection, group, None) == {(read, 0): 5}

        consumer.close()
        wait_until(
            lambda: (
                execute(broker, "SELECT count(*) FROM consumer_group WHERE group_id = ? AND empty_since_ms > 0", group)
                == [(1,)]
            )
        )
        pass_a_round(broker, read)
        assert fetch(connection, group, None) == {(read, 0): 5}, "its last member has only just left"
        execute(broker, "UPDATE consumer_group SET empty_since_ms = ? WHERE group_id = ?", LONG_AGO_MS, group)
        wait_until(lambda: rows(broker, group) == [])
        assert fetch(connection, group, None) == {}
