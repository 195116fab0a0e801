"""`spark.read.format("tiered")`: rows equal to what was written, row for row, and errors that name the way out."""

import functools
import json
import operator
from itertools import product
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.spark.bucket import Bucket, batches_of, expected, records
from tests.spark.frames import rows
from tiered.formats.record_batch import Compression, encode_batch
from tiered.formats.segment_object import AbortedIndexEntry

pytestmark = pytest.mark.spark


def read(spark: SparkSession, bucket: Bucket, **options: object) -> DataFrame:
    reader = spark.read.format("tiered").option("store", bucket.url).option("subscribe", "orders")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def fill(bucket: Bucket, *, topics: tuple[str, ...] = ("orders",), partitions: int = 2) -> None:
    """Each partition: offsets 0 to 299 in three objects, codecs in turn."""
    for topic, partition in product(topics, range(partitions)):
        for first in (0, 100, 200):
            bucket.add_segment(topic, partition, batches_of(records(first, 100), codecs=tuple(Compression)))
    bucket.publish()


def failure(frame: DataFrame) -> str:
    with pytest.raises(Exception) as caught:
        frame.collect()
    return str(caught.value)


def test_every_row_comes_back_as_it_was_written(spark: SparkSession, bucket: Bucket) -> None:
    fill(bucket)
    everything = [row for partition in (0, 1) for row in expected("orders", partition, records(0, 300))]
    assert rows(read(spark, bucket, includeHeaders="true")) == everything
    without_headers = [{name: row[name] for name in row if name != "headers"} for row in everything]
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        assert rows(read(spark, bucket)) == without_headers
        logged = [(row["level"], row["msg"].split(",")[0]) for row in spark.tvf.python_worker_logs().collect()]
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    assert logged == [("WARNING", "Topic orders is read from the store alone")], "without brokers a user is warned"


def test_the_pure_decoder_gives_the_same_rows(
    spark: SparkSession, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark_tiered.batch import plan_batch
    from pyspark_tiered.cold_read import read_cold
    from pyspark_tiered.log_source import open_log_source
    from pyspark_tiered.options import parse_options
    from pyspark_tiered.plan import ColdSplit

    fill(bucket)
    options = parse_options({"store": bucket.url, "subscribe": "orders"}, streaming=False)
    with open_log_source(options) as source:
        planned = plan_batch(source, options)
    for split in planned:
        assert isinstance(split, ColdSplit)
        native = [batch.to_pylist() for batch in read_cold(bucket.store, split, columns=("offset", "value"))]
        pure = [batch.to_pylist() for batch in read_cold(bucket.store, split, columns=("offset", "value"), pure=True)]
        assert functools.reduce(operator.iadd, native, []) == functools.reduce(operator.iadd, pure, [])


def test_rows_come_back_from_s3(spark: SparkSession, s3_bucket: Bucket) -> None:
    fill(s3_bucket, partitions=1)
    assert rows(read(spark, s3_bucket, includeHeaders="true")) == expected("orders", 0, records(0, 300))


def test_the_schema_is_sparks_kafka_schema(spark: SparkSession, bucket: Bucket) -> None:
    fill(bucket)
    assert read(spark, bucket, includeHeaders="true").schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )


def test_a_schema_of_some_columns_reads_only_them(spark: SparkSession, bucket: Bucket) -> None:
    fill(bucket, partitions=1)
    frame = (
        spark.read.format("tiered")
        .schema("offset bigint, key binary")
        .option("store", bucket.url)
        .option("subscribe", "orders")
        .load()
    )
    assert rows(frame) == [{"offset": row.offset, "key": row.key} for row in records(0, 300)]


def test_ranges_of_offsets(spark: SparkSession, bucket: Bucket) -> None:
    fill(bucket)
    frame = read(
        spark,
        bucket,
        startingOffsets=json.dumps({"orders": {"0": 95, "1": -2}}),
        endingOffsets=json.dumps({"orders": {"0": 205, "1": 3}}),
    )
    assert [(row["partition"], row["offset"]) for row in rows(frame)] == [
        *((0, offset) for offset in range(95, 205)),
        *((1, offset) for offset in range(3)),
    ]


def test_timestamps_become_offsets(spark: SparkSession, bucket: Bucket) -> None:
    fill(bucket, partitions=1)
    start_ms = 1_700_000_000_000
    frame = read(spark, bucket, startingTimestamp=start_ms + 150, endingTimestamp=start_ms + 201)
    assert [row["offset"] for row in rows(frame)] == list(range(150, 201))
    by_partition = json.dumps({"orders": {"0": start_ms + 299}})
    assert [row["offset"] for row in rows(read(spark, bucket, startingOffsetsByTimestamp=by_partition))] == [299]
    late = {"startingTimestamp": start_ms + 300}
    assert "has no record at or after timestamp" in failure(read(spark, bucket, **late))
    assert rows(read(spark, bucket, startingOffsetsByTimestampStrategy="latest", **late)) == []


def test_topics_by_pattern_and_partitions_by_assignment(spark: SparkSession, bucket: Bucket) -> None:
    fill(bucket, topics=("orders", "orders-eu", "payments"))
    reader = spark.read.format("tiered").option("store", bucket.url)
    by_pattern = reader.option("subscribePattern", "orders.*").load()
    counted = {(row["topic"], row["count"]) for row in by_pattern.groupBy("topic").count().collect()}
    assert counted == {("orders", 600), ("orders-eu", 600)}
    reader = spark.read.format("tiered").option("store", bucket.url)
    assigned = reader.option("assign", '{"payments":[1]}').load()
    assert [row.asDict() for row in assigned.groupBy("topic", "partition").count().collect()] == [
        {"topic": "payments", "partition": 1, "count": 300}
    ]


def test_small_objects_become_several_tasks_and_min_partitions_is_kept(spark: SparkSession, bucket: Bucket) -> None:
    for first in range(0, 128, 2):
        bucket.add_segment("orders", 0, batches_of(records(first, 2)))
    bucket.publish()
    assert read(spark, bucket).rdd.getNumPartitions() == 64 * 4 // 128
    assert read(spark, bucket, openCostInBytes=0).rdd.getNumPartitions() == 1
    frame = read(spark, bucket, minPartitions=100)
    counts = [row["count"] for row in frame.groupBy(f.spark_partition_id()).count().collect()]
    assert len(counts) == 100, "each task has rows, though there are fewer objects"
    assert [row["offset"] for row in rows(frame)] == list(range(128))


def test_max_records_makes_more_tasks(spark: SparkSession, bucket: Bucket) -> None:
    fill(bucket, partitions=1)
    frame = read(spark, bucket, maxRecordsPerPartition=40)
    sizes = [row["count"] for row in frame.groupBy(f.spark_partition_id()).count().collect()]
    assert len(sizes) == 8
    assert max(sizes) <= 40
    assert [row["offset"] for row in rows(frame)] == list(range(300))


def test_an_empty_range_gives_no_rows(spark: SparkSession, bucket: Bucket) -> None:
    fill(bucket, partitions=1)
    same = json.dumps({"orders": {"0": 7}})
    assert rows(read(spark, bucket, startingOffsets=same, endingOffsets=same)) == []


def test_the_log_start_is_respected(spark: SparkSession, bucket: Bucket) -> None:
    fill(bucket, partitions=1)
    bucket.partitions["orders", 0].log_start_offset = 42
    bucket.publish()
    assert [row["offset"] for row in rows(read(spark, bucket))] == list(range(42, 300))
    before = json.dumps({"orders": {"0": 10}})
    said = failure(read(spark, bucket, startingOffsets=before))
    assert "partition orders-0: offsets 10 to 41 are gone, the log begins at 42" in said
    assert "failOnDataLoss=false" in said
    left = read(spark, bucket, startingOffsets=before, failOnDataLoss="false")
    assert [row["offset"] for row in rows(left)] == list(range(42, 300))


def test_offsets_beyond_the_cold_end_are_an_error_without_brokers(spark: SparkSession, bucket: Bucket) -> None:
    fill(bucket, partitions=1)
    said = failure(read(spark, bucket, endingOffsets=json.dumps({"orders": {"0": 1000}})))
    assert "what can be read ends at 300" in said


def test_a_hole_in_the_checkpoint_is_named(spark: SparkSession, bucket: Bucket) -> None:
    fill(bucket, partitions=1)
    del bucket.partitions["orders", 0].segments[1]
    bucket.publish()
    assert "partition orders-0: offsets 100 to 199 are in no segment" in failure(read(spark, bucket))
    left = rows(read(spark, bucket, failOnDataLoss="false"))
    assert [row["offset"] for row in left] == [*range(100), *range(200, 300)]


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_filters_give_the_same_rows_with_pushdown_and_without(
    spark: SparkSession, bucket: Bucket, pushdown: str
) -> None:
    fill(bucket)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        frame = read(spark, bucket).where("partition = 1 and offset >= 150 and offset < 160")
        assert [(row["partition"], row["offset"]) for row in rows(frame)] == [(1, each) for each in range(150, 160)]
        frame = read(spark, bucket).where(f.col("timestamp") >= f.timestamp_millis(f.lit(1_700_000_000_290)))
        assert [row["offset"] for row in rows(frame)] == [*range(290, 300)] * 2
        assert read(spark, bucket).where("partition = 7").count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_with_pushdown_a_load_for_each_filter_gives_all_rows(spark: SparkSession, bucket: Bucket) -> None:
    """Spark reuses the filtered reader of a DataFrame for its next query: see docs/spark.md."""
    fill(bucket)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        some = read(spark, bucket).where("partition = 1 and offset >= 250")
        others = read(spark, bucket).where("partition = 0 and offset < 50")
        assert some.union(others).union(read(spark, bucket)).count() == 50 + 50 + 600
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_pushdown_prunes_what_is_fetched(spark: SparkSession, bucket: Bucket) -> None:
    fill(bucket)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark, bucket).where("partition = 1 and offset >= 250")
        assert frame.rdd.getNumPartitions() == 1
        # The objects of everything else may be gone: nobody looks at them.
        for (_, partition), state in bucket.partitions.items():
            for one in state.segments:
                if partition == 0 or one.end_offset <= 250:
                    bucket.store.delete(one.object_key)
        assert [row["offset"] for row in rows(frame)] == list(range(250, 300))
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_older_segments_are_found_in_sealed_pages(spark: SparkSession, bucket: Bucket) -> None:
    bucket.page_entries = 2
    for first in range(0, 70, 10):
        bucket.add_segment("orders", 0, batches_of(records(first, 10)))
    bucket.publish()
    pages = [key for key, _ in bucket.store.list("checkpoints/partitions/") if "/pages/" in key]
    assert len(pages) == 3
    contents = {key: bucket.store.get(key, max_bytes=1 << 20)[0] for key in pages}
    for key in pages:
        bucket.store.delete(key)
    late = read(spark, bucket, startingOffsets=json.dumps({"orders": {"0": 60}}))
    assert [row["offset"] for row in rows(late)] == list(range(60, 70)), "what is new needs no page"
    assert "ObjectMissing" in failure(read(spark, bucket))
    for key, content in contents.items():
        bucket.store.put(key, content)
    assert [row["offset"] for row in rows(read(spark, bucket))] == list(range(70))


def test_aborted_transactions_are_left_out_when_only_committed_is_read(spark: SparkSession, bucket: Bucket) -> None:
    def transactional(first: int, *, control: bool = False) -> bytes:
        return encode_batch(
            records(first, 1 if control else 5),
            base_offset=first,
            producer_id=9,
            producer_epoch=0,
            base_sequence=-1 if control else 0,
            transactional=True,
            control=control,
        )

    aborted = AbortedIndexEntry(producer_id=9, first_offset=5, last_offset=10, last_stable_offset=11)
    batches = [
        *batches_of(records(0, 5)),
        transactional(5),
        transactional(10, control=True),
        *batches_of(records(11, 5)),
    ]
    bucket.add_segment("orders", 0, batches, aborted=[aborted])
    bucket.publish()
    uncommitted = [*range(10), *range(11, 16)]
    assert [row["offset"] for row in rows(read(spark, bucket))] == uncommitted
    committed = [*range(5), *range(11, 16)]
    assert [row["offset"] for row in rows(read(spark, bucket, isolation="read_committed"))] == committed


def test_an_altered_object_is_an_error_that_names_it(spark: SparkSession, bucket: Bucket) -> None:
    fill(bucket, partitions=1)
    segment = bucket.partitions["orders", 0].segments[1]
    data, _ = bucket.store.get(segment.object_key, max_bytes=1 << 20)
    altered = bytearray(data)
    altered[70] ^= 1
    bucket.store.delete(segment.object_key)
    bucket.store.put(segment.object_key, bytes(altered))
    said = failure(read(spark, bucket))
    assert "CorruptObject" in said
    assert f"topic orders partition 0 offsets 100 to 199, object {segment.object_key}" in said
    assert "does not match its CRC-64" in said


def test_a_swapped_object_is_an_error_that_names_it(spark: SparkSession, bucket: Bucket) -> None:
    fill(bucket, partitions=1)
    first, second, _ = bucket.partitions["orders", 0].segments
    data, _ = bucket.store.get(first.object_key, max_bytes=1 << 20)
    bucket.store.delete(second.object_key)
    bucket.store.put(second.object_key, data[: second.size_bytes].ljust(second.size_bytes, b"\0"))
    said = failure(read(spark, bucket))
    assert "CorruptObject" in said
    assert second.object_key in said


def test_a_checkpoint_that_names_an_object_of_another_topic_is_refused(spark: SparkSession, bucket: Bucket) -> None:
    """Who may write to the bucket could else show one topic's records to who reads another."""
    bucket.add_segment("secrets", 0, batches_of(records(0, 100)))
    bucket.add_segment("orders", 0, batches_of(records(0, 100)))
    bucket.partitions["orders", 0].segments[:] = bucket.partitions["secrets", 0].segments
    bucket.publish()
    said = failure(read(spark, bucket))
    assert "CorruptObject" in said
    assert "the checkpoint gives it the key of another segment" in said


def test_a_truncated_object_is_an_error_that_names_it(spark: SparkSession, bucket: Bucket) -> None:
    bucket.add_segment("orders", 0, batches_of(records(0, 100)), keep_bytes=500)
    bucket.publish()
    said = failure(read(spark, bucket))
    assert "CorruptObject" in said
    assert bucket.partitions["orders", 0].segments[0].object_key in said


def test_a_missing_object_is_an_error_that_names_it(spark: SparkSession, bucket: Bucket) -> None:
    fill(bucket, partitions=1)
    segment = bucket.partitions["orders", 0].segments[2]
    bucket.store.delete(segment.object_key)
    said = failure(read(spark, bucket))
    assert "ObjectMissing" in said
    assert f"offsets 200 to 299, object {segment.object_key}: the object is missing" in said
    assert "tiered.purge.grace.ms" in said


def test_an_unknown_option_is_an_error_that_names_it(spark: SparkSession, bucket: Bucket) -> None:
    with pytest.raises(Exception, match="unknown option 'startingoffset': did you mean startingOffsets"):
        read(spark, bucket, startingOffset="earliest")


def test_an_unknown_topic_is_an_error_that_names_it(spark: SparkSession, bucket: Bucket) -> None:
    bucket.add_segment("payments", 0, batches_of(records(0, 5)))
    bucket.publish()
    assert "topic orders is not in the store; check option subscribe" in failure(read(spark, bucket))
    bucket.add_segment("orders2", 0, batches_of(records(0, 5)))
    bucket.publish()
    assert "topic orders is not in the store; did you mean orders2?" in failure(read(spark, bucket))


def test_a_store_without_anything_of_ours_is_an_error_that_names_it(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.read.format("tiered").option("store", f"file://{tmp_path}").option("subscribe", "orders").load()
    assert "nothing of Tiered is there" in failure(frame)
