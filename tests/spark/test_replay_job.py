"""`spark/jobs/replay.py`: every record of the range once, in order, no faster than asked; and Parquet by time."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from jobs import replay as job
from tests.spark.bucket import Bucket, batches_of, expected, records
from tests.spark.frames import rows
from tiered.runtime import SystemClock
from tiered.testing import cluster

pytestmark = pytest.mark.spark

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
START_MS = 1_700_000_000_000 // DAY_MS * DAY_MS


@pytest.fixture
def filled(bucket: Bucket) -> Bucket:
    """Two partitions of 200 records in four objects each."""
    for partition in (0, 1):
        for first in range(0, 200, 50):
            bucket.add_segment("orders", partition, batches_of(records(first, 50)))
    bucket.publish()
    return bucket


def test_a_topic_gets_every_record_of_the_range_once_and_in_order(
    spark: SparkSession, filled: Bucket, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "WAVE_BYTES", 1)  # Every segment is a wave.
    with cluster() as brokers:
        brokers.create_topic("again", partitions=2)
        into = ["--to-bootstrap", brokers.bootstrap, "--to-topic", "again"]
        source = ["--store", filled.url, "--topic", "orders"]
        assert job.main([*source, *into, "--from", '{"0":30,"1":-2}', "--to", '{"0":180,"1":200}']) == 0
        summary = json.loads(capsys.readouterr().out)
        frame = spark.read.format("tiered").option("kafka.bootstrap.servers", brokers.bootstrap)
        found = rows(frame.option("subscribe", "again").option("includeHeaders", "true").load())
    kept = ("key", "value", "partition", "headers")
    wanted = [row for number, (start, end) in enumerate([(30, 180), (0, 200)])
              for row in expected("again", number, records(start, end - start))]  # fmt: skip
    assert [{name: row[name] for name in kept} for row in found] == [
        {name: row[name] for name in kept} for row in wanted
    ]
    assert (summary["records"], summary["to_topic"]) == (350, "again")
    assert [(each["partition"], each["start_offset"], each["end_offset"]) for each in summary["ranges"]] == [
        (0, 30, 180),
        (1, 0, 200),
    ]


def test_parquet_is_partitioned_by_the_records_time(
    spark: SparkSession, bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, first in enumerate((0, 50, 100)):
        rows_of_an_hour = records(first, 50, start_ms=START_MS + number * HOUR_MS)
        bucket.add_segment("orders", 0, batches_of(rows_of_an_hour))
    bucket.publish()
    folder = tmp_path / "out"
    base = ["--store", bucket.url, "--topic", "orders", "--to-parquet", str(folder)]
    later = ["--from", str(START_MS + HOUR_MS), "--partition-by", "hour"]
    assert job.main([*base, *later]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["records"], summary["partitioned_by"]) == (100, ["date", "hour"])
    assert [(each["start_offset"], each["end_offset"]) for each in summary["ranges"]] == [(50, 150)]
    found = spark.read.parquet(str(folder))
    hours = {row["hour"]: row["count"] for row in found.groupBy("hour").count().collect()}
    assert hours == {1: 50, 2: 50}
    assert [row["offset"] for row in found.select("offset").orderBy("offset").collect()] == list(range(50, 150))
    with_a_value = sum(each.value is not None for each in records(50, 100))
    assert found.select(f.count_distinct("value")).collect()[0][0] == with_a_value
    assert job.main([*base, *later]) == 1
    assert "already exists" in capsys.readouterr().err


def test_pieces_keep_the_rows_and_take_as_long_as_the_throttle_says() -> None:
    batch = pa.record_batch(
        {"key": pa.array([b"k"] * 300, pa.binary()), "value": pa.array([b"x" * 9] * 300, pa.binary())}
    )
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    pieces = list(job.paced([batch, batch], job.RateLimit(records_per_second=1000)))
    # The last piece is given when its turn has come, not when it would be over.
    assert clock.monotonic_ms() - started_ms >= 400
    assert sum(piece.num_rows for piece, _ in pieces) == 600
    assert sum(size_bytes for _, size_bytes in pieces) == 6000
    assert pa.Table.from_batches([piece for piece, _ in pieces]).equals(pa.Table.from_batches([batch, batch]))
    by_bytes = job.RateLimit(bytes_per_second=1000).share(4)
    assert by_bytes.seconds(records=1, size_bytes=500) == 2.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give --to-topic or --to-parquet"),
        (["--to-topic", "orders"], "give --to-bootstrap"),
        (["--to-topic", "orders", "--bootstrap", "127.0.0.1:1"], "needs an end: give --to"),
        (["--to-parquet", "/nowhere", "--bytes-per-second", "5"], "belong to --to-topic"),
        (["--to-parquet", "/nowhere", "--from", "yesterday"], "--from yesterday is neither a word, a time such as"),
        (["--to-parquet", "/nowhere", "--partitions", "one"], "--partitions one are no numbers"),
    ],
)
def test_what_cannot_be_meant_is_told(
    spark: SparkSession, filled: Bucket, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert job.main(["--store", filled.url, "--topic", "orders", *words]) == 2
    assert said in capsys.readouterr().err
