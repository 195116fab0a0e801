"""Three brokers that are asked over HTTP, and partitions that each of them leads."""

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.http_api import ask
from tests.components.brokers import Brokers, three_brokers
from tests.postgres import PostgresDatabases

SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "tiered.upload.interval.ms": 100,
    "tiered.tail.heartbeat.interval.ms": 300,
    "broker.heartbeat.interval.ms": 300,
    "broker.session.timeout.ms": 3_000,
}
PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster(postgres_databases: PostgresDatabases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with three_brokers(postgres_databases, tmp_path_factory.mktemp("cluster"), SETTINGS) as made:
        yield made


@pytest.fixture
def brokers(cluster: Brokers) -> Iterator[Brokers]:
    cluster.start()
    cluster.wait(lambda: all(not row.fenced for row in cluster.registered().values()), "every broker is in service")
    for each in cluster.by_id.values():
        wait_at(
            cluster, each, lambda each: len(each.get("/readyz")["live_brokers"]) == 3, "every broker sees the others"
        )
    yield cluster
    assert "unforeseen" not in cluster.logs(), cluster.logs()


def create(brokers: Brokers, topic: str, partitions: int = 1, replication_factor: int = 3, **configs: object) -> None:
    """Returns once every broker has applied it."""
    brokers.create(topic, partitions, replication_factor, **configs)
    for broker in brokers.by_id.values():
        wait_at(
            brokers, broker, lambda broker: ask(broker, "GET", f"/topics/{topic}").status == 200, "all know the topic"
        )


def wait_at(brokers: Brokers, broker: BrokerProcess, claim: Callable[[BrokerProcess], bool], what: str) -> None:
    brokers.wait(lambda: claim(broker), what)


def scattered(
    brokers: Brokers, topic: str, *, replication_factor: int = 1, records: int = 10
) -> dict[int, list[bytes]]:
    """A topic whose partitions are led by all brokers; the values in each."""
    create(brokers, topic, PARTITIONS, replication_factor)
    assert {row.leader for row in brokers.rows(topic)} == {1, 2, 3}
    return {
        number: brokers.produce(topic, [b"%d-%d" % (number, each) for each in range(records)], partition=number)
        for number in range(PARTITIONS)
    }


def value_of(record: Mapping[str, Any]) -> bytes:
    return b64decode(record["value"]["base64"])
