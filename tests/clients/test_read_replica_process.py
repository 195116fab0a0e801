"""`tiered serve --read-only` beside the broker that writes the bucket, and a stock client that reads from it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker_process import BrokerProcess
from tests.clients.clients import READERS
from tests.components.tiers import Written, create, eventually, fill, wait_checkpoint
from tests.support.command_line import Tiered
from tiered.cold.local import LocalStore

TOPIC = "orders"
SETTINGS = {"tiered.upload.interval.ms": 50, "tiered.checkpoint.interval.ms": 50}
BATCHES = 50
"""Of 2 kB each, in segments of 20 kB: the last of them stay hot."""


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("writer") / "data", settings=SETTINGS).start()
    yield broker
    broker.ensure_stopped()


@pytest.fixture(scope="module")
def written(writer: BrokerProcess) -> Written:
    assert create(writer, TOPIC, segment_bytes=20_000) == 0
    records = fill(writer, TOPIC, BATCHES)
    writer.wait_cold(TOPIC, end_offset=BATCHES - 10)
    return records


@pytest.fixture(scope="module")
def replica(
    writer: BrokerProcess, written: Written, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    wait_checkpoint(writer, f"sqlite:///{writer.data}/meta.db", store_of(writer), TOPIC)
    broker = BrokerProcess(
        tmp_path_factory.mktemp("replica") / "data",
        *("--read-only", "--broker-id", "7", "--store", store_of(writer).url),
        settings={"tiered.read.replica.refresh.interval.ms": 100},
    ).start()
    yield broker
    broker.ensure_stopped()


def store_of(writer: BrokerProcess) -> LocalStore:
    return LocalStore(writer.data / "objects")


@pytest.mark.parametrize(
    "argv",
    [
        ["produce", TOPIC],
        ["produce", "absent"],
        ["consume", TOPIC, "-g", "readers"],
        ["consume", "absent"],
        ["groups", "describe", "readers"],
        ["topics", "elect", "--all"],
        ["acls", "list"],
        ["topics", "create", "another"],
    ],
)
def test_the_command_line_says_that_it_met_a_read_replica(replica: BrokerProcess, argv: list[str]) -> None:
    said = Tiered(replica).failure(*argv, lines=b"a\n")
    assert "broker 7 is a read replica of file://" in said
    assert "Ask the brokers that write this bucket" in said
    assert said.count("read replica") == 1


def read(replica: BrokerProcess, count: int) -> Written:
    """The first `count` records, by a consumer that assigns its partition and names no offset. Any error ends it."""
    consumer = Consumer({"bootstrap.servers": replica.bootstrap, "group.id": "any", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, 0)])
    found: Written = []
    try:
        while len(found) < count:
            message = consumer.poll(30)
            assert message is not None, f"{len(found)} of {count}"
            if message.error():
                raise KafkaException(message.error())
            found.append((message.offset() or 0, message.value() or b""))
    finally:
        consumer.close()
    return found


def cold_end(replica: BrokerProcess) -> int:
    consumer = Consumer({"bootstrap.servers": replica.bootstrap, "group.id": "any"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
    finally:
        consumer.close()
    assert low == 0
    return int(high)


def listing(root: Path) -> dict[str, tuple[int, int]]:
    return {str(each): (each.stat().st_mtime_ns, each.stat().st_size) for each in sorted(root.rglob("*"))}


def test_a_stock_consumer_reads_everything_that_is_cold(replica: BrokerProcess, written: Written) -> None:
    found = AdminClient({"bootstrap.servers": replica.bootstrap}).list_topics(timeout=30)
    assert list(found.topics) == [TOPIC]
    assert [each.id for each in found.brokers.values()] == [7]
    end = cold_end(replica)
    assert BATCHES - 10 <= end < BATCHES
    assert read(replica, end) == written[:end]


@pytest.mark.usefixtures("kcat")
@pytest.mark.parametrize("client", READERS)
def test_every_client_that_assigns_its_partitions_reads_from_it(
    replica: BrokerProcess, written: Written, client: str
) -> None:
    found = READERS[client](replica.bootstrap, TOPIC, 30)
    assert [each.value for each in found] == [value for _, value in written[:30]]


def test_nothing_in_the_bucket_changes_by_being_read(
    writer: BrokerProcess, replica: BrokerProcess, written: Written
) -> None:
    before = listing(writer.data / "objects")
    assert read(replica, 20) == written[:20]
    refreshes = replica.metric("tiered_read_replica_refreshes_total")
    eventually(lambda: replica.metric("tiered_read_replica_refreshes_total") > refreshes, "it looks again", replica)
    assert listing(writer.data / "objects") == before


def test_what_is_uploaded_meanwhile_can_be_read_soon(
    writer: BrokerProcess, replica: BrokerProcess, written: Written
) -> None:
    before = cold_end(replica)
    more = written + fill(writer, TOPIC, 20, first=BATCHES)
    eventually(lambda: cold_end(replica) > before, "the replica sees new segments", replica)
    end = cold_end(replica)
    assert read(replica, end) == more[:end]


def test_a_stock_client_is_refused_what_would_change_anything(replica: BrokerProcess) -> None:
    refused: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": replica.bootstrap})
    producer.produce(TOPIC, b"x", partition=0, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(30) == 0
    assert [error and error.code() for error in refused] == [KafkaError.POLICY_VIOLATION]
    admin = AdminClient({"bootstrap.servers": replica.bootstrap})
    with pytest.raises(KafkaException, match="is a read replica of file://"):
        admin.create_topics([NewTopic("new", 1)])["new"].result(30)
    consumer = Consumer({"bootstrap.servers": replica.bootstrap, "group.id": "any"})
    try:
        consumer.subscribe([TOPIC])
        message = consumer.poll(30)
        error = message.error() if message is not None else None
        assert error is not None
        assert error.code() == KafkaError.POLICY_VIOLATION
        with pytest.raises(KafkaException, match="Policy violation"):
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, 5)], asynchronous=False)
    finally:
        consumer.close()


def test_the_command_line_reads_from_it(replica: BrokerProcess, written: Written) -> None:
    assert TOPIC in said(replica, "topics", "list")
    assert TOPIC in said(replica, "topics", "describe", TOPIC)
    assert "cold" in said(replica, "segments", TOPIC)
    lines = said(replica, "consume", TOPIC, "--from-beginning", "--count", "5").splitlines()
    assert [line.encode() for line in lines] == [value for _, value in written[:5]]


def said(replica: BrokerProcess, *words: str) -> str:
    where = {"TIERED_BOOTSTRAP": replica.bootstrap, "TIERED_HTTP": replica.http}
    found = subprocess.run(
        [sys.executable, "-m", "tiered.cli", *words],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **where},
    )  # fmt: skip
    assert found.returncode == 0, (words, found.stderr)
    return found.stdout


def test_records_that_are_deleted_at_the_brokers_are_out_of_range_here(
    writer: BrokerProcess, replica: BrokerProcess
) -> None:
    start = 25
    brokers = AdminClient({"bootstrap.servers": writer.bootstrap})
    brokers.delete_records([TopicPartition(TOPIC, 0, start)])[TopicPartition(TOPIC, 0)].result(30)
    consumer = Consumer({"bootstrap.servers": replica.bootstrap, "group.id": "any", "auto.offset.reset": "error"})
    try:
        eventually(
            lambda: consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)[0] == start,
            "the log's start moves here, too",
            replica,
        )
        consumer.assign([TopicPartition(TOPIC, 0, start - 1)])
        message = consumer.poll(30)
        error = message.error() if message is not None else None
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
        assert "out of range" in error.str()
    finally:
        consumer.close()


def test_it_stops_when_it_is_told_to(replica: BrokerProcess) -> None:
    assert replica.process is not None
    replica.process.send_signal(signal.SIGTERM)
    assert replica.process.wait(30) == 0
    assert "Traceback" not in replica.log()
