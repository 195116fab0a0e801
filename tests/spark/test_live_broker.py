"""The whole way with a real broker: produced, tiered, deleted locally, and read by Spark without anyone noticing."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from pyspark_tiered.brokers import Brokers
from tests.broker_process import BrokerProcess
from tests.spark.live_topics import create
from tests.spark.stream_job import Job

pytestmark = pytest.mark.spark

SETTINGS = {
    "log.segment.bytes": 65_536,
    "log.local.retention.bytes": 65_536,
    "log.retention.ms": -1,  # The records are of 2023.
    "log.retention.check.interval.ms": 200,
    "tiered.checkpoint.interval.ms": 200,
    "tiered.upload.interval.ms": 100,
}
VALUE_BYTES = 500


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker", settings=SETTINGS).start()
    yield process
    process.ensure_stopped()


def value_of(offset: int) -> bytes:
    return f"{offset}-".encode().ljust(VALUE_BYTES, b".")


def produce(broker: BrokerProcess, topic: str, first: int, count: int, *, partition: int = 0) -> None:
    # Small batches, so that some of them stay in the open segment: the tail.
    config = {
        "bootstrap.servers": broker.bootstrap,
        "batch.num.messages": 20,
        "enable.idempotence": True,
        "log_level": 0,
    }
    producer = Producer(config)
    for offset in range(first, first + count):
        producer.produce(topic, partition=partition, value=value_of(offset), timestamp=1_700_000_000_000 + offset)
        producer.poll(0)
    assert producer.flush(30) == 0


def cold_end(broker: BrokerProcess, topic: str, *, at_least: int) -> int:
    """The cold end once it has come so far, and once the checkpoint in the bucket knows it too."""
    broker.wait_cold(topic, end_offset=at_least)
    found = int(broker.segments(topic)["cold_end_offset"])
    with Brokers(broker.bootstrap) as client:
        assert found < client.list_offsets({(topic, 0): -1})[topic, 0], "something is left for the tail"
    return found


def offsets(frame: DataFrame) -> list[int]:
    found = sorted((row["offset"], bytes(row["value"])) for row in frame.select("offset", "value").collect())
    assert all(value == value_of(offset) for offset, value in found)
    return [offset for offset, _ in found]


def is_prefix(found: list[int], *, at_least: int) -> bool:
    """Uploads go on meanwhile: there may be more than at the last look, and never a hole."""
    return found == list(range(len(found))) and len(found) >= at_least


def until(reader: DataFrameReader, at_least: int) -> list[int]:
    """The offsets once the checkpoint holds so many: it is written a moment after the commit.

    A frame is planned once, whatever the bucket has later, so each look has one of its own.
    """
    deadline = time.monotonic() + 30
    while True:
        found = offsets(reader.load())
        if len(found) >= at_least or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def test_cold_data_is_read_while_the_broker_is_down_and_the_tail_when_it_is_up(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    create(broker, "orders")
    produce(broker, "orders", 0, 1000)
    cold = cold_end(broker, "orders", at_least=500)
    store = f"file://{broker.data}/objects"

    def reader() -> DataFrameReader:
        return spark.read.format("tiered").option("subscribe", "orders")

    from_bucket = reader().option("store", store)
    assert is_prefix(until(from_bucket, cold), at_least=cold)
    from_brokers = reader().option("kafka.bootstrap.servers", broker.bootstrap)
    assert offsets(from_brokers.load()) == list(range(1000))
    both = reader().option("store", store).option("kafka.bootstrap.servers", broker.bootstrap)
    assert offsets(both.load()) == list(range(1000))
    at = both.option("startingTimestamp", str(1_700_000_000_000 + 321))
    assert offsets(at.load()) == list(range(321, 1000))
    cold_at = offsets(from_bucket.option("startingTimestamp", str(1_700_000_000_000 + 321)).load())
    assert cold_at == list(range(321, 321 + len(cold_at)))
    assert len(cold_at) >= cold - 321
    broker.kill()
    assert is_prefix(offsets(reader().option("store", store).load()), at_least=cold)


def test_a_stream_from_the_first_cold_record_to_the_tail(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    create(broker, "orders")
    produce(broker, "orders", 0, 600)
    cold_end(broker, "orders", at_least=300)
    stream = Job(
        spark,
        tmp_path,
        store=f"file://{broker.data}/objects",
        subscribe="orders",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=500,
        **{"kafka.bootstrap.servers": broker.bootstrap},
    )
    assert stream.run() == [500, 100]
    produce(broker, "orders", 600, 300)
    cold_end(broker, "orders", at_least=700)
    assert stream.run() == [300]
    assert stream.offsets() == list(range(900))


def test_records_below_the_log_start_are_not_read_though_the_bucket_holds_them(
    spark: SparkSession, broker: BrokerProcess
) -> None:

    create(broker, "orders")
    produce(broker, "orders", 0, 600)
    cold_end(broker, "orders", at_least=300)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for deleted in admin.delete_records([TopicPartition("orders", 0, 250)]).values():
        deleted.result(20)
    reader = spark.read.format("tiered").option("subscribe", "orders").option("store", f"file://{broker.data}/objects")
    both = reader.option("kafka.bootstrap.servers", broker.bootstrap)
    assert offsets(both.load()) == list(range(250, 600))
    gone = both.option("startingOffsets", '{"orders":{"0":100}}')
    with pytest.raises(Exception, match="offsets 100 to 249 are gone"):
        gone.load().collect()
    assert offsets(gone.option("failOnDataLoss", "false").load()) == list(range(250, 600))
