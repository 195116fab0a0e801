"""Transactions over HTTP: which are open and since when, what they hold back, and a person's word that ends one."""

import time
from urllib.parse import quote

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import Producer as Producing

from tests.broker_process import BrokerProcess
from tests.clients.http_api import ask
from tests.components.brokers import Brokers
from tests.components.http.http_brokers import brokers, cluster, wait_at
from tests.components.http.http_brokers import create as create_at
from tests.components.tiers import eventually
from tests.support.topics import create
from tests.support.transactional_producers import WAIT_S, begun
from tiered.broker.transactions.coordinator import MAX_TOGETHER

__all__ = ["brokers", "cluster"]

pytest_plugins = ["tests.postgres"]


@pytest.fixture(scope="module")
def opened(broker: BrokerProcess) -> Producing:
    """A producer `payments/1` with two records in an open transaction, after a committed one of `before`."""
    topic = create(broker, "paid", partitions=2)
    begun(broker.bootstrap, "before", topic).commit_transaction(WAIT_S)
    return begun(broker.bootstrap, "payments/1", topic, "a", "b", transaction_timeout_ms=50_000)


def test_an_open_transaction_is_listed_and_described_with_its_partitions(
    broker: BrokerProcess, opened: Producing
) -> None:
    found = ask(broker, "GET", "/transactions?open_for_ms=0").body
    assert found["silent_brokers"] == []
    (listed,) = (each for each in found["transactions"] if each["transactional_id"] == "payments/1")
    assert (listed["state"], listed["timeout_ms"], listed["partitions"]) == ("Ongoing", 50_000, 1)
    assert listed["coordinator"] == 1
    assert abs(listed["started_at_ms"] - time.time() * 1000) < 60_000
    described = ask(broker, "GET", f"/transactions/{quote('payments/1', safe='')}").body
    assert described == {**listed, "partitions": [{"topic": "paid", "partition": 0}]}


def test_transactions_are_found_by_state_by_producer_and_by_how_long_they_are_open(
    broker: BrokerProcess, opened: Producing
) -> None:
    def names(query: str) -> set[str]:
        return {each["transactional_id"] for each in ask(broker, "GET", f"/transactions{query}").body["transactions"]}

    assert {"payments/1", "before"} <= names("")
    eventually(lambda: "before" in names("?state=CompleteCommit"), "its markers are written")
    assert "payments/1" not in names("?state=CompleteCommit")
    assert "before" not in names("?open_for_ms=0")
    assert "payments/1" not in names("?open_for_ms=3600000")
    producer_id = ask(broker, "GET", "/transactions/payments%2F1").body["producer_id"]
    assert names(f"?producer_id={producer_id}") == {"payments/1"}
    assert ask(broker, "GET", "/transactions?state=Dead").status == 400


@pytest.mark.parametrize(("more", "status"), [(0, 204), (1, 400)])
def test_as_many_transactions_as_may_be_named_are_taken_with_long_ids(
    broker: BrokerProcess, more: int, status: int
) -> None:
    transactions = [
        {"transactional_id": f"{'x' * 700}-{number}", "producer_id": number, "producer_epoch": 0}
        for number in range(MAX_TOGETHER + more)
    ]
    assert ask(broker, "POST", "/transaction-aborts", {"transactions": transactions}).status == status


def test_a_partition_says_whose_transaction_holds_it_back_and_since_when(
    broker: BrokerProcess, opened: Producing
) -> None:
    held, free = ask(broker, "GET", "/topics/paid").body["partitions"]
    assert held["last_stable_offset"] == 2, "the record and the marker before"
    assert held["high_watermark"] == 4
    described = ask(broker, "GET", "/transactions/payments%2F1").body
    assert held["held_back_by"]["producer_id"] == described["producer_id"]
    assert held["held_back_by"]["first_offset"] == 2
    assert abs(held["held_back_by"]["since_ms"] - described["started_at_ms"]) < 60_000
    assert free["held_back_by"] is None
    listed = {topic["topic"]: topic["held_back_since_ms"] for topic in ask(broker, "GET", "/topics").body["topics"]}
    assert listed["paid"] == held["held_back_by"]["since_ms"]


def test_health_says_how_many_partitions_a_long_transaction_holds_back_and_for_how_long(broker: BrokerProcess) -> None:
    topic = create(broker, "long-held", partitions=2)
    before = broker.health()["held_back_partitions"]
    made = begun(broker.bootstrap, "long-held", topic, "a")
    eventually(lambda: broker.health()["held_back_partitions"] > before, "it is open for more than 3 s")
    assert broker.health()["held_back_ms"] > 3_000
    made.abort_transaction(WAIT_S)
    eventually(lambda: broker.health()["held_back_partitions"] <= before, "readers go on")


def test_an_abort_by_hand_lets_readers_go_on_and_fences_the_producer(broker: BrokerProcess) -> None:
    topic = create(broker, "stuck")
    made = begun(broker.bootstrap, "stuck", topic)
    answer = ask(broker, "POST", "/transactions/stuck/abort")
    assert answer.status == 200
    assert answer.body["state"] in ("PrepareAbort", "CompleteAbort")
    eventually(
        lambda: ask(broker, "GET", "/transactions/stuck").body["state"] == "CompleteAbort", "every partition knows"
    )
    (partition,) = ask(broker, "GET", f"/topics/{topic}").body["partitions"]
    assert partition["last_stable_offset"] == partition["high_watermark"]
    with pytest.raises(KafkaException):
        made.commit_transaction(WAIT_S)
    assert ask(broker, "POST", "/transactions/stuck/abort").body["state"] == "CompleteAbort"


@pytest.mark.parametrize(("method", "below"), [("GET", ""), ("POST", "/abort")])
def test_a_transactional_id_that_nobody_has_is_404(broker: BrokerProcess, method: str, below: str) -> None:
    answer = ask(broker, method, f"/transactions/nobody{below}")
    assert answer.status == 404
    assert "nobody" in answer.message


def test_any_broker_tells_of_all_transactions_and_aborts_them(brokers: Brokers) -> None:
    create_at(brokers, "spread")
    names = [f"spread-{number}" for number in range(6)]
    producers = [begun(brokers.bootstrap, name, "spread") for name in names]
    coordinators = set()
    for broker in brokers.by_id.values():
        listed = ask(broker, "GET", "/transactions?open_for_ms=0").body
        assert listed["silent_brokers"] == []
        mine = {each["transactional_id"]: each for each in listed["transactions"] if each["transactional_id"] in names}
        assert sorted(mine) == names
        coordinators |= {each["coordinator"] for each in mine.values()}
        for name in names:
            described = ask(broker, "GET", f"/transactions/{name}").body
            assert (described["state"], described["partitions"]) == ("Ongoing", [{"topic": "spread", "partition": 0}])
    assert len(coordinators) > 1, "or nothing was passed on"
    for name in names:
        assert ask(brokers.by_id[1], "POST", f"/transactions/{name}/abort").status == 200
    for broker in brokers.by_id.values():
        wait_at(
            brokers,
            broker,
            lambda broker: not ask(broker, "GET", "/transactions?open_for_ms=0").body["transactions"],
            "all are aborted",
        )
    del producers
