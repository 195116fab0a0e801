"""Records with all kinds of times, written by every client: Spark with and without push-down, an export and a restored
cluster give exactly those that a model says.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit, timestamp_millis

from jobs import export
from pyspark_tiered import register
from tests.clients.raw import RawConnection
from tests.clients.timed_topics import DAY_MS, MINUTE_MS, TimedTopic, Writers, check_times, some_topics, stored_records
from tiered.cli import main
from tiered.formats.record_batch import Record
from tiered.testing import LocalCluster, cluster

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.timeout(900)]

CLIENTS = ("librdkafka", "kafka-python", "sarama 1.45.0", "franz-go", "Java")
COUNT = 25
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@dataclass(frozen=True, slots=True)
class Door:
    kafka_port: int


def door_of(c: LocalCluster) -> Door:
    return Door(int(c.bootstrap.rpartition(":")[2]))


@dataclass(frozen=True, slots=True)
class Bucket:
    """All records of the topics are in it; whoever wrote them is gone."""

    url: str
    now_ms: int
    records: dict[str, list[Record]]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    folder = tmp_path_factory.mktemp("timed")
    now_ms = int(time.time() * 1000)
    topics: list[TimedTopic] = some_topics(CLIENTS, range(1000, 1000 + COUNT), now_ms)
    with cluster(store=f"file://{folder}/bucket", data=folder / "first") as c:
        for topic in topics:
            c.create_topic(topic.name, partitions=1, configs={"retention.ms": -1, "segment.bytes": 1000})
        Writers(c.bootstrap, folder / "programs").write(topics)
        for topic in topics:
            c.tier(topic.name, keep_local=False, timeout_s=60)
        with RawConnection(door_of(c)) as connection:
            records = {topic.name: stored_records(connection, topic.name) for topic in topics}
        url = c.store_url
    return Bucket(url, now_ms, records)


def offsets_since(bucket: Bucket, ms: int) -> list[tuple[str, int]]:
    return sorted(
        (name, record.offset) for name, some in bucket.records.items() for record in some if record.timestamp_ms >= ms
    )


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_spark_gives_the_rows_since_a_time(spark: SparkSession, bucket: Bucket, pushed: str) -> None:
    register(spark)
    spark.conf.set(PUSHDOWN, pushed)
    try:
        rows = spark.read.format("tiered").option("store", bucket.url).option("subscribe", ",".join(bucket.records))
        for ms in (-5, 5, bucket.now_ms - 5 * DAY_MS, bucket.now_ms - 30 * MINUTE_MS, bucket.now_ms + 10 * MINUTE_MS):
            since = rows.load().where(col("timestamp") >= timestamp_millis(lit(ms)))
            found = sorted((row["topic"], row["offset"]) for row in since.select("topic", "offset").collect())
            assert found == offsets_since(bucket, ms), ms
    finally:
        spark.conf.unset(PUSHDOWN)


def test_an_export_has_every_record_with_its_time(spark: SparkSession, bucket: Bucket, tmp_path: Path) -> None:
    for number, name in enumerate(list(bucket.records)[:5]):
        meta, tables = f"sqlite:///{tmp_path}/tables.db", f"file://{tmp_path}/tables"
        words = ["--store", bucket.url, "--topic", name, "--table", f"times.t{number}", "--meta", meta]
        assert export.main([*words, "--warehouse", tables]) == 0
        table = SqlCatalog("tiered", uri=meta, warehouse=tables).load_table(f"times.t{number}").scan().to_arrow()
        found = sorted((row["_offset"], row["_timestamp"]) for row in table.to_pylist())
        assert found == [(record.offset, moment(record.timestamp_ms)) for record in bucket.records[name]], name


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def test_a_restored_cluster_has_every_record_and_finds_it_by_its_time(bucket: Bucket, tmp_path: Path) -> None:
    sql = f"sqlite:///{tmp_path}/restored.db"
    assert main(["restore", "--from", bucket.url, "--meta", sql, "--apply", "--brokers", "1"]) == 0
    with cluster(store=bucket.url, sql=sql, data=tmp_path / "second") as c, RawConnection(door_of(c)) as connection:
        assert {name: stored_records(connection, name) for name in bucket.records} == bucket.records
        check_times(connection, {name: ((name, 0), some) for name, some in bucket.records.items()}, "restored")
