"""Option `isolation.level`: from either tier, Spark's rows are those that a consumer of committed records gets.

The broker is real and in this process; so are planning and tasks, without a JVM. Producers are librdkafka's.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_tiered.job_arguments import parsed_options, source_arguments
from pyspark_tiered.options import Isolation, parse_options
from pyspark_tiered.stream import StreamReader
from tests.spark.committed_rows import COLUMNS, Rows, committed_records, spark_batch
from tests.support.claimed_times import break_stored
from tiered.errors import TieredError
from tiered.testing import LocalCluster, cluster

PARTITIONS = 2


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalCluster]:
    with cluster() as running:
        yield running


class Producers:
    """Three that write to the same partitions by turns, so that their transactions lie in each other."""

    def __init__(self, broker: LocalCluster, topic: str) -> None:
        self._topic = topic
        self._written = 0
        self.all = [
            Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-{name}", "log_level": 0})
            for name in ("commits", "aborts", "stays")
        ]
        for each in self.all:
            each.init_transactions(30)

    def write_in_turn(self, rounds: int, producers: list[Producer]) -> None:
        for _ in range(rounds):
            for each in producers:
                for partition in range(PARTITIONS):
                    value = f"{self._written}-".ljust(300, ".")
                    each.produce(self._topic, value, partition=partition)
                    self._written += 1
                each.flush(30)


@pytest.fixture(scope="module")
def topic(broker: LocalCluster) -> Iterator[str]:
    """In the bucket and behind it: committed and aborted transactions. At the end one that is open."""
    name = broker.create_topic(partitions=PARTITIONS, configs={"segment.bytes": 4000, "local.retention.bytes": 1})
    producers = Producers(broker, name)
    commits, aborts, stays = producers.all
    for is_hot in (False, True):
        for _ in range(3):
            commits.begin_transaction()
            aborts.begin_transaction()
            producers.write_in_turn(5, [aborts, commits])
            aborts.abort_transaction(30)
            commits.commit_transaction(30)
        if not is_hot:
            broker.tier(name, keep_local=False)
    commits.begin_transaction()
    stays.begin_transaction()
    producers.write_in_turn(2, [stays, commits])
    commits.commit_transaction(30)
    yield name
    stays.abort_transaction(30)


def test_a_batch_from_both_tiers_and_from_brokers_alone_is_what_a_consumer_gets(
    broker: LocalCluster, topic: str
) -> None:
    wanted = committed_records(broker.bootstrap, topic, PARTITIONS)
    assert len(wanted) == 2 * 3 * 5 * PARTITIONS
    brokers = {"kafka.bootstrap.servers": broker.bootstrap}
    assert spark_batch(topic, brokers) == wanted
    both = brokers | {"store": broker.store_url}
    assert spark_batch(topic, both) == wanted
    assert spark_batch(topic, both | {"splitBytes": "5000", "minPartitions": "20"}) == wanted
    everything = spark_batch(topic, both | {"isolation.level": "read_uncommitted"})
    assert len(everything) == 2 * len(wanted) + 2 * 2 * PARTITIONS


def test_a_batch_from_the_bucket_alone_is_what_a_consumer_gets_of_it(broker: LocalCluster, topic: str) -> None:
    found = spark_batch(topic, {"store": broker.store_url})
    ends = {
        partition: max(offset for place, offset, _ in found if place == partition) for partition in range(PARTITIONS)
    }
    consumed = committed_records(broker.bootstrap, topic, PARTITIONS)
    assert found == [each for each in consumed if each[1] <= ends[each[0]]]
    assert len(found) > len(consumed) // 3


def test_a_stream_from_both_tiers_is_what_a_consumer_gets(broker: LocalCluster, topic: str) -> None:
    given = {
        "subscribe": topic,
        "isolation.level": "read_committed",
        "startingOffsets": "earliest",
        "store": broker.store_url,
        "kafka.bootstrap.servers": broker.bootstrap,
    }
    stream = StreamReader(parse_options(given, streaming=True), COLUMNS)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    found: Rows = []
    for split in stream.partitions(start, end):
        for each in stream.read(split):
            found += list(zip(*(column.to_pylist() for column in each.columns), strict=True))
    stream.stop()
    assert sorted(found) == committed_records(broker.bootstrap, topic, PARTITIONS)


def test_jobs_read_committed_records_unless_they_are_told_otherwise() -> None:
    parser = argparse.ArgumentParser()
    source_arguments(parser)
    told = ["--topic", "orders", "--store", "file:///s"]
    assert parsed_options(parser.parse_args(told)).isolation is Isolation.READ_COMMITTED
    otherwise = parser.parse_args([*told, "--isolation", "read_uncommitted"])
    assert parsed_options(otherwise).isolation is Isolation.READ_UNCOMMITTED


def test_a_batch_of_the_hot_tail_that_nobody_can_decode_ends_the_read_by_name_or_is_stepped_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster(data=tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for value in ("before", "bad", "behind"):
            producer.produce("undecodable", value, partition=0)
            assert producer.flush(30) == 0
        (log_file,) = (file for file in tmp_path.rglob("*.log") if b"before" in file.read_bytes())
        break_stored(log_file, 1)
        given = {"kafka.bootstrap.servers": broker.bootstrap}
        with pytest.raises(TieredError, match=r"offsets 1 to 1 cannot be decoded.* failOnBadBatch=false"):
            spark_batch("undecodable", given)
        rows = spark_batch("undecodable", {**given, "failOnBadBatch": "false"})
    assert [(offset, value) for _, offset, value in rows] == [(0, b"before"), (2, b"behind")]
    (warning,) = [message for message in caplog.messages if "stepped over" in message]
    assert "partition undecodable-0: stepped over offsets 1 to 1" in warning


def test_the_jobs_flag_is_the_readers_option() -> None:
    parser = argparse.ArgumentParser()
    source_arguments(parser)
    words = ["--store", "file:///s", "--topic", "t"]
    assert parsed_options(parser.parse_args([*words, "--skip-bad-batches"])).fail_on_bad_batch is False
    assert parsed_options(parser.parse_args(words)).fail_on_bad_batch is True
