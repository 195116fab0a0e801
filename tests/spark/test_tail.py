"""The tail from brokers, alone and behind the bucket: every record once, each from where it belongs.

The brokers are librdkafka's mock cluster, which lives in this process and speaks the protocol over loopback.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from pyspark_tiered.brokers import Brokers
from pyspark_tiered.client_options import ClientOptions
from pyspark_tiered.options import Subscribe, parse_options
from pyspark_tiered.plan import TailSplit
from pyspark_tiered.tail_read import read_tail_split
from tests.spark.bucket import Bucket, batches_of, records
from tests.spark.stream_job import Job
from tiered.errors import OffsetOutOfRange, Retriable
from tiered.formats.record_batch import Record

pytestmark = pytest.mark.spark


class MockBrokers:
    """Two mock brokers and a producer to them."""

    def __init__(self) -> None:
        self.producer = Producer(
            {"bootstrap.servers": "ignored", "test.mock.num.brokers": 2, "linger.ms": 5, "log_level": 0}
        )
        brokers = self.producer.list_topics(timeout=30).brokers.values()
        self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def produce(self, topic: str, partition: int, rows: list[Record], *, codec: str = "none") -> None:
        producer = self.producer
        if codec != "none":
            producer = Producer(
                {"bootstrap.servers": self.bootstrap, "compression.type": codec, "linger.ms": 5, "log_level": 0}
            )
        for row in rows:
            producer.produce(
                topic,
                partition=partition,
                key=row.key,
                value=row.value,
                timestamp=row.timestamp_ms,
                headers=list(row.headers),
            )
        assert producer.flush(20) == 0


@pytest.fixture
def brokers() -> Iterator[MockBrokers]:
    mock = MockBrokers()
    yield mock
    mock.producer.flush(30)


def told(frame: DataFrame) -> list[tuple[int, int, str]]:
    """(partition, offset, value) of every row, in order."""
    return sorted((row["partition"], row["offset"], bytes(row["value"]).decode()) for row in frame.collect())


def said_by(who: str, first: int, count: int) -> list[Record]:
    return [
        Record(offset=offset, timestamp_ms=1_700_000_000_000 + offset, key=None, value=f"{who}-{offset}".encode())
        for offset in range(first, first + count)
    ]


def topic_of(brokers: MockBrokers, bucket: Bucket, topic: str = "orders") -> None:
    """The bucket's topic is the brokers' topic: it has the same id."""
    with Brokers(brokers.bootstrap) as client:
        topic_id = client.topics(Subscribe(topics=(topic,)))[topic].topic_id
    assert topic_id is not None
    bucket.topic_ids[topic] = topic_id


def test_waiting_for_brokers_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("pyspark_tiered.brokers.SILENT_SECONDS", 0.01)
    client = ClientOptions(timeout_ms=500)
    with Brokers("127.0.0.1:1", client=client) as away, pytest.raises(Retriable):
        away.topics(Subscribe(topics=("orders",)))
    assert "still waiting for an answer of the brokers at 127.0.0.1:1: check that they run" in caplog.text


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_tail_split_gives_exactly_its_records(brokers: MockBrokers, codec: str) -> None:
    rows = list(records(0, 3000, value_bytes=300))
    brokers.produce("orders", 1, rows, codec=codec)
    options = parse_options({"kafka.bootstrap.servers": brokers.bootstrap, "subscribe": "orders"}, streaming=False)
    split = TailSplit(topic="orders", topic_id=None, partition=1, start_offset=7, end_offset=2990)
    columns = ("offset", "key", "value", "headers")
    for pure in (False, True):
        found = [
            row for batch in read_tail_split(options, split, columns=columns, pure=pure) for row in batch.to_pylist()
        ]
        assert [(row["offset"], row["key"], row["value"]) for row in found] == [
            (row.offset, row.key, row.value) for row in rows[7:2990]
        ]
        assert [row["headers"] for row in found] == [
            [{"key": name, "value": value} for name, value in row.headers] or None for row in rows[7:2990]
        ]


def test_offsets_that_the_log_never_had_are_an_error(brokers: MockBrokers) -> None:
    brokers.produce("orders", 0, said_by("broker", 0, 10))
    options = parse_options({"kafka.bootstrap.servers": brokers.bootstrap, "subscribe": "orders"}, streaming=False)
    split = TailSplit(topic="orders", topic_id=None, partition=0, start_offset=500, end_offset=600)
    with pytest.raises(OffsetOutOfRange, match="partition orders-0: offset 500 was there when"):
        list(read_tail_split(options, split, columns=("offset",)))


def test_without_a_store_everything_comes_from_the_brokers(spark: SparkSession, brokers: MockBrokers) -> None:
    for partition in (0, 1):
        brokers.produce("orders", partition, said_by("broker", 0, 100))
    reader = spark.read.format("tiered").option("kafka.bootstrap.servers", brokers.bootstrap)
    frame = reader.option("assign", '{"orders":[0,1]}').option("minPartitions", "5").load()
    assert told(frame) == [(partition, offset, f"broker-{offset}") for partition in (0, 1) for offset in range(100)]


def test_below_the_cold_end_from_the_bucket_and_above_from_the_brokers(
    spark: SparkSession, brokers: MockBrokers, bucket: Bucket
) -> None:
    brokers.produce("orders", 0, said_by("broker", 0, 100))
    topic_of(brokers, bucket)
    bucket.add_segment("orders", 0, batches_of(said_by("bucket", 0, 60)))
    bucket.partitions["orders", 0].log_start_offset = 5
    bucket.publish()
    reader = spark.read.format("tiered").option("kafka.bootstrap.servers", brokers.bootstrap)
    frame = reader.option("store", bucket.url).option("assign", '{"orders":[0]}').load()
    assert told(frame) == [
        *((0, offset, f"bucket-{offset}") for offset in range(5, 60)),
        *((0, offset, f"broker-{offset}") for offset in range(60, 100)),
    ]
    across = {"startingOffsets": '{"orders":{"0":58}}', "endingOffsets": '{"orders":{"0":62}}'}
    assert [offset for _, offset, _ in told(reader.options(**across).load())] == [58, 59, 60, 61]


def test_a_topic_that_was_recreated_is_not_mixed_with_its_predecessor(
    spark: SparkSession, brokers: MockBrokers, bucket: Bucket
) -> None:
    brokers.produce("orders", 0, said_by("broker", 0, 10))
    bucket.add_segment("orders", 0, batches_of(said_by("bucket", 0, 60)))
    bucket.publish()
    reader = spark.read.format("tiered").option("kafka.bootstrap.servers", brokers.bootstrap)
    frame = reader.option("store", bucket.url).option("assign", '{"orders":[0]}').load()
    assert told(frame) == [(0, offset, f"broker-{offset}") for offset in range(10)]


def test_a_stream_crosses_the_seam_while_it_moves(
    spark: SparkSession, brokers: MockBrokers, bucket: Bucket, tmp_path: Path
) -> None:
    brokers.produce("orders", 0, said_by("broker", 0, 100))
    topic_of(brokers, bucket)
    bucket.add_segment("orders", 0, batches_of(said_by("bucket", 0, 60)))
    bucket.publish()
    stream = Job(
        spark,
        tmp_path,
        store=bucket.url,
        assign='{"orders":[0]}',
        startingOffsets="earliest",
        maxOffsetsPerTrigger=40,
        **{"kafka.bootstrap.servers": brokers.bootstrap},
    )
    assert stream.run() == [40, 40, 20]
    # The seam moves over offsets that were read, and beyond.
    brokers.produce("orders", 0, said_by("broker", 100, 50))
    bucket.add_segment("orders", 0, batches_of(said_by("bucket", 60, 70)))
    bucket.publish()
    assert stream.run() == [40, 10]
    assert stream.offsets() == list(range(150))
    assert stream.planned()[-1] == {"orders": {"0": 150}}
