"""`spark.readStream.format("tiered")`: every record once, across restarts, limits, new segments and partitions."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.spark.bucket import Bucket, batches_of, records
from tests.spark.stream_job import Job

pytestmark = pytest.mark.spark


def job(spark: SparkSession, bucket: Bucket, folder: Path, **options: object) -> Job:
    return Job(spark, folder, store=bucket.url, **({"subscribe": "orders", "startingOffsets": "earliest"} | options))


def failure(stream: Job, **more: object) -> str:
    query = stream.start(**more)
    with pytest.raises(Exception) as caught:
        query.awaitTermination(100)
    return str(caught.value)


def test_a_stream_reads_all_and_after_a_restart_only_what_is_new(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    bucket.add_segment("orders", 0, batches_of(records(0, 100)))
    bucket.publish()
    stream = job(spark, bucket, tmp_path)
    assert stream.run() == [100]
    bucket.add_segment("orders", 0, batches_of(records(100, 50)))
    bucket.publish()
    assert stream.run() == [50]
    assert stream.run() == []
    assert stream.offsets() == list(range(150))
    assert stream.planned()[-1] == {"orders": {"0": 150}}


def test_a_rate_limit_cuts_available_now_into_micro_batches(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    for partition in (0, 1):
        bucket.add_segment("orders", partition, batches_of(records(0, 60 if partition else 180)))
    bucket.publish()
    stream = job(spark, bucket, tmp_path, maxOffsetsPerTrigger=80)
    assert stream.run() == [80, 80, 80]
    assert stream.planned()[0] == {"orders": {"0": 60, "1": 20}}
    assert stream.offsets(partition=0) == list(range(180))
    assert stream.offsets(partition=1) == list(range(60))


def test_each_micro_batch_has_min_partitions(spark: SparkSession, bucket: Bucket, tmp_path: Path) -> None:
    for first in range(0, 60, 20):
        bucket.add_segment("orders", 0, batches_of(records(first, 20)))
    bucket.publish()
    stream = job(spark, bucket, tmp_path, minPartitions=8, maxOffsetsPerTrigger=30)
    assert stream.run() == [30, 30]
    files = spark.read.parquet(str(tmp_path / "out")).select(f.input_file_name()).distinct().count()
    assert files == 16, "a task that has rows writes one file"
    assert stream.offsets() == list(range(60))


def test_a_new_partition_is_read_from_its_beginning(spark: SparkSession, bucket: Bucket, tmp_path: Path) -> None:
    bucket.add_segment("orders", 0, batches_of(records(0, 20)))
    bucket.publish()
    stream = job(spark, bucket, tmp_path)
    stream.run()
    bucket.add_segment("orders", 1, batches_of(records(0, 30)))
    bucket.publish()
    stream.run()
    assert stream.offsets(partition=0) == list(range(20))
    assert stream.offsets(partition=1) == list(range(30))


def test_a_new_topic_of_the_pattern_is_read_from_its_beginning(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    bucket.add_segment("orders-eu", 0, batches_of(records(0, 20)))
    bucket.publish()
    stream = Job(spark, tmp_path, store=bucket.url, subscribePattern="orders-.*", startingOffsets="earliest")
    stream.run()
    bucket.add_segment("orders-us", 0, batches_of(records(0, 30)))
    bucket.add_segment("payments", 0, batches_of(records(0, 30)))
    bucket.publish()
    stream.run()
    assert stream.offsets("orders-us") == list(range(30))
    assert stream.offsets("payments") == []


def test_a_stream_begins_at_the_latest_offsets_unless_told_otherwise(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    bucket.add_segment("orders", 0, batches_of(records(0, 20)))
    bucket.publish()
    assert Job(spark, tmp_path, store=bucket.url, subscribe="orders").run() == []


def test_a_stream_begins_at_given_offsets(spark: SparkSession, bucket: Bucket, tmp_path: Path) -> None:
    bucket.add_segment("orders", 0, batches_of(records(0, 20)))
    bucket.publish()
    stream = job(spark, bucket, tmp_path, startingOffsets='{"orders":{"0":15}}')
    stream.run()
    assert stream.offsets() == list(range(15, 20))


def test_records_that_retention_took_are_an_error_or_a_warning(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    bucket.add_segment("orders", 0, batches_of(records(0, 20)))
    bucket.publish()
    stream = job(spark, bucket, tmp_path)
    stream.run()
    bucket.add_segment("orders", 0, batches_of(records(20, 20)))
    bucket.partitions["orders", 0].log_start_offset = 30
    bucket.publish()
    assert "offsets 20 to 29 are gone" in failure(stream)
    stream.run(failOnDataLoss="false")
    assert stream.offsets() == [*range(20), *range(30, 40)]


def test_a_log_that_ends_before_the_stream_is_an_error(spark: SparkSession, bucket: Bucket, tmp_path: Path) -> None:
    bucket.add_segment("orders", 0, batches_of(records(0, 20)))
    bucket.publish()
    stream = job(spark, bucket, tmp_path)
    stream.run()
    bucket.partitions.clear()
    bucket.add_segment("orders", 0, batches_of(records(0, 5)))
    bucket.publish()
    assert "the stream is at offset 20, the log ends at 5" in failure(stream)


def test_a_micro_batch_that_failed_is_read_again_with_the_same_offsets(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    first = bucket.add_segment("orders", 0, batches_of(records(0, 20)))
    bucket.publish()
    stream = job(spark, bucket, tmp_path)
    data, _ = bucket.store.get(first.object_key, max_bytes=1 << 20)
    bucket.store.delete(first.object_key)
    assert "the object is missing" in failure(stream)
    bucket.store.put(first.object_key, data)
    bucket.add_segment("orders", 0, batches_of(records(20, 20)))
    bucket.publish()
    assert stream.run() == [20, 20]
    assert stream.planned()[0] == {"orders": {"0": 20}}
    assert stream.offsets() == list(range(40))


def test_an_option_of_reads_alone_is_refused(spark: SparkSession, bucket: Bucket, tmp_path: Path) -> None:
    bucket.add_segment("orders", 0, batches_of(records(0, 20)))
    bucket.publish()
    assert "a stream has no end" in failure(job(spark, bucket, tmp_path, endingOffsets="latest"))
