"""The tools in Kafka's bin folder, with three brokers: what an operator types first, and what they say to it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.clients.java_client import KafkaTools, fetch_jars

if TYPE_CHECKING:
    from tests.clients.three_brokers import ThreeBrokers

pytest_plugins = ["tests.clients.three_brokers"]
pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
MOVES_ASKED = 30
"""`--verify` takes seconds itself: the move has all of them."""


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    fetch_jars("tools.xml", folder)
    return folder


@pytest.fixture
def tools(jars: Path, three_brokers: "ThreeBrokers") -> KafkaTools:
    return KafkaTools(jars, three_brokers.bootstrap)


def test_a_throttled_reassignment_is_listed_cancelled_and_verified(tools: KafkaTools, tmp_path: Path) -> None:
    tools.run("kafka-topics", "--create", "--topic", "moved", "--replica-assignment", "1:2")
    value = "x" * 1000
    tools.run("kafka-console-producer", "--topic", "moved", told="".join(f"{value}\n" for _ in range(2000)))
    plan = tmp_path / "move.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [3, 2]}]}))

    def reassign(*what: str) -> list[str]:
        return tools.run("kafka-reassign-partitions", "--reassignment-json-file", str(plan), *what)

    assert "Successfully started partition reassignment for moved-0" in reassign("--execute", "--throttle", "1000")
    listed = tools.run("kafka-reassign-partitions", "--list")
    assert "moved-0: replicas: 3,2,1. adding: 3. removing: 1." in listed
    assert "Reassignment of partition moved-0 is still in progress." in reassign("--verify")
    assert throttles(tools) == {"leader.replication.throttled.rate=1000", "follower.replication.throttled.rate=1000"}
    assert replicas_throttled(tools)

    # It clears three settings of each broker in one request; one of them is of moves between folders of a broker.
    assert "Successfully cancelled partition reassignment for: moved-0" in reassign("--cancel")
    assert throttles(tools) == set()
    assert not replicas_throttled(tools)

    reassign("--execute", "--throttle", "100000000", "--replica-alter-log-dirs-throttle", "100000000")
    verified = (reassign("--verify") for _ in range(MOVES_ASKED))
    assert any("Reassignment of partition moved-0 is completed." in said for said in verified)
    assert throttles(tools) == set()
    assert not replicas_throttled(tools)
    described = tools.run("kafka-topics", "--describe", "--topic", "moved")
    assert "Replicas: 3,2" in described[1]


def throttles(tools: KafkaTools) -> set[str]:
    """Of the three brokers; each has the same, or none."""
    found = [described(tools, "brokers", str(broker)) for broker in (1, 2, 3)]
    assert found[0] == found[1] == found[2]
    return found[0]


def replicas_throttled(tools: KafkaTools) -> bool:
    return any("throttled.replicas" in each for each in described(tools, "topics", "moved"))


def described(tools: KafkaTools, of: str, name: str) -> set[str]:
    """`name=value` of each config that kafka-configs finds set."""
    lines = tools.run("kafka-configs", "--describe", "--entity-type", of, "--entity-name", name)
    return {line.split()[0] for line in lines if line.startswith("  ")}


def alter(tools: KafkaTools, of: str, name: str, *what: str) -> str:
    """Empty when that succeeded, else the tool's words. Without a name: the default of all."""
    whose = ("--entity-name", name) if name else ("--entity-default",)
    done = tools.ask("kafka-configs", "--alter", "--entity-type", of, *whose, *what)
    return done.stderr if done.returncode else ""


def test_broker_settings_are_altered_described_and_refused(tools: KafkaTools) -> None:
    assert not alter(tools, "brokers", "2", "--add-config", "background.threads=12,log.cleaner.threads=2")
    assert described(tools, "brokers", "2") == {"background.threads=12", "log.cleaner.threads=2"}
    assert not alter(tools, "brokers", "", "--add-config", "message.max.bytes=2000000")
    lines = tools.run("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-default")
    assert [line.split()[0] for line in lines[1:]] == ["message.max.bytes=2000000"]
    assert "Cannot update these configs dynamically" in alter(tools, "brokers", "2", "--add-config", "log.dirs=/x")
    assert not alter(tools, "brokers", "2", "--delete-config", "background.threads,log.cleaner.threads")
    assert not alter(tools, "brokers", "", "--delete-config", "message.max.bytes")
    assert described(tools, "brokers", "2") == set()


def test_group_configs_are_altered_described_and_refused(tools: KafkaTools) -> None:
    assert not alter(tools, "groups", "readers", "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in described(tools, "groups", "readers")
    assert "InvalidConfigurationException" in alter(tools, "groups", "readers", "--add-config", "retention.ms=1")
    assert not alter(tools, "groups", "readers", "--delete-config", "consumer.session.timeout.ms")
    assert "consumer.session.timeout.ms=50000" not in described(tools, "groups", "readers")


def test_broker_loggers_are_altered_and_described(tools: KafkaTools) -> None:
    loggers = {each.partition("=")[0] for each in described(tools, "broker-loggers", "1")}
    logger = next(each for each in sorted(loggers) if each.startswith("tiered."))
    assert not alter(tools, "broker-loggers", "1", "--add-config", f"{logger}=DEBUG")
    assert f"{logger}=DEBUG" in described(tools, "broker-loggers", "1")
    assert f"{logger}=DEBUG" not in described(tools, "broker-loggers", "2")
    assert not alter(tools, "broker-loggers", "1", "--delete-config", logger)
    assert f"{logger}=DEBUG" not in described(tools, "broker-loggers", "1")
    assert "InvalidConfigurationException" in alter(tools, "broker-loggers", "1", "--add-config", f"{logger}=LOUD")


def test_client_metrics_are_altered_listed_and_deleted(tools: KafkaTools) -> None:
    metrics = "org.apache.kafka.producer."
    wanted = ["--metrics", metrics, "--interval", "10000", "--match", "client_id=.*"]
    tools.run("kafka-client-metrics", "--alter", "--name", "producers", *wanted)
    assert tools.run("kafka-client-metrics", "--list") == ["producers"]
    asked = described(tools, "client-metrics", "producers")
    assert asked == {f"metrics={metrics}", "interval.ms=10000", "match=client_id=.*"}
    assert not alter(tools, "client-metrics", "producers", "--add-config", "interval.ms=20000")
    assert any("interval.ms=20000" in each for each in tools.run("kafka-client-metrics", "--describe"))
    tools.run("kafka-client-metrics", "--delete", "--name", "producers")
    assert "producers" not in tools.run("kafka-client-metrics", "--list")


def test_a_group_is_listed_described_and_reset(tools: KafkaTools) -> None:
    tools.run("kafka-topics", "--create", "--topic", "orders", "--partitions", "2", "--replication-factor", "3")
    tools.run("kafka-console-producer", "--topic", "orders", told="".join(f"{number}\n" for number in range(100)))
    read = ["--topic", "orders", "--group", "shop", "--max-messages", "100", "--timeout-ms", "60000"]
    first = tools.run("kafka-console-consumer", *read, "--from-beginning")
    assert sorted(map(int, first)) == list(range(100))
    assert ["shop", "Classic", "consumer"] in [line.split() for line in tools.run("kafka-groups", "--list")]
    assert sum(lags(tools)) == 0
    reset = ["--group", "shop", "--topic", "orders", "--reset-offsets", "--to-earliest", "--execute"]
    assert len(tools.run("kafka-consumer-groups", *reset)) >= 3
    assert sum(lags(tools)) == 100
    assert sorted(tools.run("kafka-console-consumer", *read)) == sorted(first)
    assert tools.run("kafka-get-offsets", "--topic", "orders", "--time", "earliest") == ["orders:0:0", "orders:1:0"]
    tools.run("kafka-consumer-groups", "--group", "shop", "--delete")
    assert "shop" not in "".join(tools.run("kafka-groups", "--list"))


def lags(tools: KafkaTools) -> list[int]:
    lines = tools.run("kafka-consumer-groups", "--describe", "--group", "shop")
    return [int(line.split()[5]) for line in lines if line.startswith("shop ")]


def test_an_open_transaction_is_listed_described_and_aborted(tools: KafkaTools) -> None:
    tools.run("kafka-topics", "--create", "--topic", "paid", "--partitions", "3", "--replication-factor", "3")
    producer = Producer({"bootstrap.servers": tools.bootstrap, "transactional.id": "payments-1"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("paid", b"1", partition=2)
    assert producer.flush(30) == 0
    where = ["--topic", "paid", "--partition", "2"]
    listed = table(tools.run("kafka-transactions", "list"))
    assert [(each["TransactionalId"], each["TransactionState"]) for each in listed] == [("payments-1", "Ongoing")]
    (open_one,) = table(tools.run("kafka-transactions", "describe", "--transactional-id", "payments-1"))
    assert (open_one["TransactionState"], open_one["TopicPartitions"]) == ("Ongoing", "paid-2")
    (found,) = table(tools.run("kafka-transactions", "describe-producers", *where))
    assert (found["ProducerId"], found["CurrentTransactionStartOffset"]) == (open_one["ProducerId"], "0")
    hanging = ["find-hanging", "--topic", "paid", "--max-transaction-timeout", "15"]
    assert table(tools.run("kafka-transactions", *hanging)) == [], "it is open, and does not hang"

    tools.run("kafka-transactions", "abort", *where, "--start-offset", "0")
    (found,) = table(tools.run("kafka-transactions", "describe-producers", *where))
    assert found["CurrentTransactionStartOffset"] == "None"
    tools.run("kafka-transactions", "forceTerminateTransaction", "--transactionalId", "payments-1")
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(30)
    assert refused.value.args[0].code() == KafkaError._FENCED


def table(lines: list[str]) -> list[dict[str, str]]:
    """Of a tool that prints columns under their names."""
    names = lines[0].split()
    return [
        dict(zip(names, (each.strip() for each in line.rstrip("\t").split("\t")), strict=True)) for line in lines[1:]
    ]


def test_the_quorum_is_the_controller_and_features_are_finalized(tools: KafkaTools) -> None:
    status = dict(line.split(":", 1) for line in tools.run("kafka-metadata-quorum", "describe", "--status"))
    leader = int(status["LeaderId"])
    voters = {each["id"] for each in json.loads(status["CurrentVoters"])}
    observers = {each["id"] for each in json.loads(status["CurrentObservers"])}
    assert (voters, observers) == ({leader}, {1, 2, 3} - {leader})
    features = {" ".join(line.split()[:2]) for line in tools.run("kafka-features", "describe")}
    assert {"Feature: group.version", "Feature: metadata.version", "Feature: transaction.version"} <= features
