"""Brokers whose clocks are far from each other's: transactions and records last as long as they should."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from tests.broker_process import BrokerProcess
from tests.clients.clients import admin
from tests.cluster.clocks import ClockFile
from tests.support.transactional_producers import begun

if TYPE_CHECKING:
    from tests.postgres import PostgresDatabases

pytest_plugins = ["tests.postgres"]

WAIT_S = 60.0
OFF_S = 3_000
"""Less than what retention takes for a clock that jumped (`tiered.retention.max.clock.jump.ms`)."""


@contextmanager
def brokers_off_by(
    folder: Path, databases: "PostgresDatabases", *offsets_s: float, **settings: object
) -> Iterator[list[BrokerProcess]]:
    """Brokers 1, 2, …, each with a clock that was off from its start."""
    url = databases.create()
    brokers: list[BrokerProcess] = []
    named = {name.replace("_", "."): value for name, value in settings.items()}
    try:
        for broker_id, offset_s in enumerate(offsets_s, 1):
            clock = ClockFile(folder / f"clock-{broker_id}")
            clock.set_offset_s(offset_s)
            arguments = ("--meta", url, "--store", f"file://{folder}/objects", "--broker-id", str(broker_id))
            brokers.append(
                BrokerProcess(folder / f"{broker_id}", *arguments, settings=named, environ=clock.environ()).start()
            )
        yield brokers
    finally:
        for broker in brokers:
            broker.ensure_stopped()
        databases.drop(url)


def make_topic(broker: BrokerProcess, name: str, replicas: Sequence[int], **config: str) -> None:
    configs = {key.replace("_", "."): value for key, value in config.items()}
    topic = NewTopic(name, 1, replica_assignment=[list(replicas)], config=configs)
    admin(broker.bootstrap).create_topics([topic])[name].result(WAIT_S)


def eventually(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def wait_deleted(broker: BrokerProcess, topic: str, end_offset: int) -> None:
    """Returns once retention has taken everything below `end_offset`."""
    eventually(lambda: broker.segments(topic)["log_start_offset"] == end_offset)


def transactions(broker: BrokerProcess) -> dict[str, tuple[str, int]]:
    """State and coordinator by transactional id."""
    rows = broker.get("/api/v1/transactions")["transactions"]
    return {row["transactional_id"]: (row["state"], row["coordinator"]) for row in rows}


def states(broker: BrokerProcess) -> set[str]:
    """None of them while nobody coordinates what a broker did that has just died: the list is refused as a whole."""
    try:
        return {state for state, _ in transactions(broker).values()}
    except HTTPError as error:
        if error.code != 503:
            raise
        return set()


def test_a_healthy_transaction_survives_a_coordinator_whose_clock_was_behind(
    tmp_path: Path, postgres_databases: "PostgresDatabases"
) -> None:
    with brokers_off_by(tmp_path, postgres_databases, -OFF_S, 0) as (behind, right):
        make_topic(right, "t", [2])
        producers = {f"id-{number}": begun(right.bootstrap, f"id-{number}", "t") for number in range(6)}
        moved = [name for name, (_, coordinator) in transactions(right).items() if coordinator == 1]
        assert moved
        assert "s behind the database's" in behind.log()
        behind.kill()
        eventually(lambda: {coordinator for _, coordinator in transactions(right).values()} == {2})
        for name in moved:
            producers[name].commit_transaction(WAIT_S)


def test_a_dead_producers_transaction_ends_although_its_coordinators_clock_was_ahead(
    tmp_path: Path, postgres_databases: "PostgresDatabases"
) -> None:
    with brokers_off_by(tmp_path, postgres_databases, OFF_S, 0) as (ahead, right):
        make_topic(right, "t", [2])
        for number in range(6):
            begun(right.bootstrap, f"id-{number}", "t", transaction_timeout_ms=10_000)
        assert 1 in {coordinator for _, coordinator in transactions(right).values()}
        ahead.kill()
        eventually(lambda: states(right) == {"CompleteAbort"})


@pytest.mark.parametrize("offset_s", [OFF_S, -OFF_S])
def test_a_clock_that_is_off_makes_no_record_old(
    tmp_path: Path, postgres_databases: "PostgresDatabases", offset_s: int
) -> None:
    settings = {"log_retention_check_interval_ms": 100, "tiered_upload_interval_ms": 100}
    with brokers_off_by(tmp_path, postgres_databases, offset_s, **settings) as (broker,):
        hour_ms = 3_600_000
        make_topic(broker, "new", [1], segment_bytes="2000", retention_ms=str(hour_ms // 2))
        make_topic(broker, "old", [1], segment_bytes="2000", retention_ms=str(hour_ms // 2))
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        now_ms = time.time_ns() // 1_000_000
        # When the second lot of the old is gone, a whole round has looked at the first lot of the new.
        for end_offset in (50, 100):
            for _ in range(50):
                producer.produce("new", b"v" * 300, timestamp=now_ms)
                producer.produce("old", b"v" * 300, timestamp=now_ms - 2 * hour_ms)
                producer.flush(WAIT_S)
            wait_deleted(broker, "old", end_offset)
        assert broker.segments("new")["log_start_offset"] == 0
        assert abs(broker.metric("tiered_clock_ahead_seconds") - offset_s) < 60
