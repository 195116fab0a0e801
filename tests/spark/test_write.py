"""`df.write.format("tiered")` and `writeStream`: each row one record, where its columns say, and errors before harm."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from pyspark_tiered.brokers import Brokers
from pyspark_tiered.client_options import ClientOptions
from pyspark_tiered.write import MAX_GATHERED_BYTES, write_rows
from pyspark_tiered.write_options import WriteOptions, parse_write_options
from tests.spark.bucket import Bucket, batches_of
from tests.spark.bucket import records as rows_of
from tests.spark.written_batches import batch
from tiered.errors import InvalidConfig, InvalidRequest
from tiered.formats.record_batch import Record, records, whole_batches
from tiered.rules.partition.partitioner import partition_for_key
from tiered.testing import LocalCluster, cluster

pytestmark = pytest.mark.spark

EMPTY: Mapping[str, str] = {}


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalCluster]:
    with cluster(topics={"few": 1, "keyed": 3, "streamed": 1, "big": 2}) as running:
        yield running


def stored(broker: LocalCluster, topic: str, partition: int = 0) -> list[Record]:
    """What the partition holds, by the brokers."""
    found: list[Record] = []
    with Brokers(broker.bootstrap) as brokers:
        end = brokers.list_offsets({(topic, partition): -1})[topic, partition]
        while len(found) < end:
            data = brokers.fetch(topic, partition, len(found)).result().records
            for position, _ in whole_batches(data, 0, len(data)):
                found += records(data, position)
    assert [each.offset for each in found] == list(range(end))
    return found


def write(frame: DataFrame, broker: LocalCluster, **options: str) -> None:
    writer = frame.write.format("tiered").mode("append").option("kafka.bootstrap.servers", broker.bootstrap)
    writer.options(**options).save()


def refused(frame: DataFrame, broker: LocalCluster, **options: str) -> str:
    with pytest.raises(Exception) as caught:
        write(frame, broker, **options)
    return str(caught.value)


def test_each_row_is_one_record_where_its_columns_say(spark: SparkSession, broker: LocalCluster) -> None:
    rows = [
        ("keyed", 0, b"k", b"v", [("trace", b"1"), ("none", None)], "ignored"),
        ("keyed", None, b"a-key", b"", None, "ignored"),
        ("few", None, None, None, [], "ignored"),
    ]
    schema = (
        "topic string, partition int, key binary, value binary, headers array<struct<key:string,value:binary>>, "
        "extra string"
    )
    write(spark.createDataFrame(rows, schema), broker, **{"kafka.compression.type": "zstd"})
    assert [(each.key, each.value, each.headers) for each in stored(broker, "few")] == [(None, None, ())]
    by_key = partition_for_key(b"a-key", 3)
    assert by_key != 0
    assert [(each.key, each.value) for each in stored(broker, "keyed", by_key)] == [(b"a-key", b"")]
    (named,) = stored(broker, "keyed", 0)
    assert (named.key, named.value, named.headers) == (b"k", b"v", (("trace", b"1"), ("none", None)))
    assert named.timestamp_ms > 1_700_000_000_000


def test_a_write_whose_tasks_are_many_and_large_stores_each_row_once(spark: SparkSession, broker: LocalCluster) -> None:
    frame = spark.range(0, 3000, numPartitions=3).select(
        f.col("id").cast("string").alias("key"), f.lpad(f.col("id").cast("string"), 2000, ".").alias("value")
    )
    write(frame, broker, topic="big")
    found = [each for partition in (0, 1) for each in stored(broker, "big", partition)]
    assert sorted(int(each.key or b"") for each in found) == list(range(3000))
    assert all((each.value or b"").lstrip(b".") == each.key and len(each.value or b"") == 2000 for each in found)


def test_a_stream_from_the_bucket_is_written_to_a_topic(
    spark: SparkSession, broker: LocalCluster, bucket: Bucket, tmp_path: Path
) -> None:
    wanted = rows_of(0, 60)
    bucket.add_segment("orders", 0, batches_of(wanted))
    bucket.publish()
    for _ in range(2):  # The second start finds nothing new.
        frame = (
            spark.readStream.format("tiered")
            .option("store", bucket.url)
            .option("subscribe", "orders")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "25")
            .option("includeHeaders", "true")
            .load()
        )
        query = (
            frame.drop("topic")
            .writeStream.format("tiered")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("topic", "streamed")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)
    found = sorted(stored(broker, "streamed"), key=lambda each: each.offset)
    assert sorted((each.key or b"", each.value or b"", each.headers) for each in found) == sorted(
        (each.key or b"", each.value or b"", each.headers) for each in wanted
    )


def test_a_write_that_can_not_be_is_refused_on_the_driver(spark: SparkSession, broker: LocalCluster) -> None:
    frame = spark.createDataFrame([("v", "t")], "value string, topic string")
    assert "unknown option 'topics': did you mean topic?" in refused(frame, broker, topics="x")
    with pytest.raises(Exception, match="records are only appended"):
        frame.write.format("tiered").mode("overwrite").option("kafka.bootstrap.servers", "h:1").save()


def schema_of(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


@pytest.mark.parametrize(
    ("ddl", "options", "says"),
    [
        ("value string", {}, "give option kafka.bootstrap.servers"),
        ("value string", {"kafka.bootstrap.servers": "h:1"}, "no topic to write to"),
        ("key string, topic string", {"kafka.bootstrap.servers": "h:1"}, "no column value"),
        ("value int", {"kafka.bootstrap.servers": "h:1", "topic": "t"}, "column value is int; it must be binary or"),
        ("value string, partition bigint", {"kafka.bootstrap.servers": "h:1", "topic": "t"}, "partition is bigint"),
        ("value string, headers string", {"kafka.bootstrap.servers": "h:1", "topic": "t"}, "headers is string"),
        ("value string", {"kafka.bootstrap.servers": "h:1", "topic": "a b"}, "no topic name"),
        ("value string", {"kafka.bootstrap.servers": "h:1", "topic": "t", "path": "/x"}, "take no path"),
        ("value string", {"kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.acks": "0"}, "use all or 1"),
        ("value string", {"kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.ack": "1"}, "did you mean kafka.acks"),
        ("value string", {"kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.transactional.id": "x"}, "idempot"),
        ("value string", {"kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.fetch.max.bytes": "5"}, "to reads"),
        ("value string", {"kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.batch.size": "x"}, "give a number"),
    ],
)
def test_an_option_or_column_that_is_wrong_is_named(
    spark: SparkSession, ddl: str, options: dict[str, str], says: str
) -> None:
    with pytest.raises(InvalidConfig, match=says):
        parse_write_options(options, schema_of(ddl))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"topic": [None], "value": ["v"]}, "a row has no topic"),
        ({"topic": ["few"], "value": ["v"], "partition": [1]}, "topic few has partitions 0 to 0"),
        ({"topic": ["few"], "value": ["v"], "headers": [[{"key": None, "value": b""}]]}, "a header without a key"),
        ({"topic": ["few"], "value": ["v" * (2 << 20)]}, "raise the topic's max.message.bytes"),
    ],
)
def test_a_row_that_can_be_no_record_ends_the_task(
    broker: LocalCluster, columns: dict[str, Sequence[object]], says: str
) -> None:
    options = WriteOptions(bootstrap_servers=broker.bootstrap, topic=None, columns=tuple(columns))
    with pytest.raises(InvalidRequest, match=says):
        write_rows(options, iter([batch(**columns)]))


def test_a_task_holds_no_more_than_its_bound_though_its_batches_are_not_full(broker: LocalCluster) -> None:
    broker.create_topic("wide", configs={"max.message.bytes": 32 << 20})
    client = ClientOptions(batch_bytes=30 << 20)
    options = WriteOptions(bootstrap_servers=broker.bootstrap, topic="wide", columns=("value",), client=client)
    waiting: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(80):
            with Brokers(broker.bootstrap) as brokers:
                waiting.append(number - brokers.list_offsets({("wide", 0): -1})["wide", 0])
            yield batch(value=[b"x" * (1 << 20)])

    assert write_rows(options, batches()).records == 80
    # What is gathered, and as much again on its way.
    assert max(waiting) <= 2 * (MAX_GATHERED_BYTES >> 20) + 2
