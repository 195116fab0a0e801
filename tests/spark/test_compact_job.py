"""`spark/jobs/compact.py`: Spark and a consumer read the newest of each key, at the offsets where they were written."""

import json
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from jobs import compact as job
from pyspark_tiered import compaction
from tests.spark.compacted_rows import WAIT_S, Read, consumed, of_spark, write
from tests.support.checkpointed import segment
from tests.unit.cold.verified_store import verify
from tiered.cold.opening import open_store
from tiered.formats.segment_check import ExpectedSegment
from tiered.testing import LocalCluster, cluster

pytestmark = pytest.mark.spark

# The brokers compact nothing, so that whatever goes went by the job.
SETTINGS = {"log.cleaner.enable": "false", "tiered.sweep.interval.ms": 100}
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": 3_000,
    "tiered.chunk.bytes": 4_096,
    "delete.retention.ms": 0,
    "min.cleanable.dirty.ratio": 0.95,
    "tiered.purge.grace.ms": 0,
    "remote.copy.lag.ms": 0,
}


def run(c: LocalCluster, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert job.main(["--store", c.store_url, "--meta", c.sql_url, *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def write_other(c: LocalCluster) -> None:
    """The same keys in another topic, three times each."""
    producer = Producer({"bootstrap.servers": c.bootstrap, "linger.ms": 1000})
    for number in range(45):
        producer.produce("other", key=b"key-%d" % (number % 15), value=b"v" * 100, partition=0)
        if number % 15 == 14:
            assert producer.flush(WAIT_S) == 0


def eventually(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def keys_of(read: Read) -> dict[bytes, tuple[int, bytes, bytes | None]]:
    return {key: (offset, key, value) for offset, key, value in sorted(read)}


def scanned(number: int, *, log_bytes: int) -> compaction.ScannedSegment:
    row = replace(segment(100 * number, 100 * (number + 1)), log_bytes=log_bytes)
    place = ExpectedSegment(topic="table", topic_id=UUID(int=7), partition=0, segment=row)
    return compaction.ScannedSegment(number=number, partition=0, place=place)


@pytest.mark.parametrize(("log_bytes", "tasks"), [(1_000, 7), (200 << 20, 400)], ids=["small", "large"])
def test_a_scan_counts_objects_and_reads_each_offset_once(log_bytes: int, tasks: int) -> None:
    planned = list(compaction.scan_tasks([scanned(number, log_bytes=log_bytes) for number in range(100)]))
    assert len(planned) == tasks
    pieces = [piece for task in planned for piece in task]
    offsets = [offset for piece in pieces for offset in range(piece.split.start_offset, piece.split.end_offset)]
    assert offsets == list(range(10_000))
    assert all(piece.split.segments[0].base_offset == 100 * piece.number for piece in pieces)


@pytest.mark.slow
def test_spark_and_a_consumer_read_the_newest_of_each_key_and_nothing_older(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(8)
    with cluster(settings=SETTINGS) as c:
        for topic in ("table", "other"):
            c.create_topic(topic, configs=CONFIGS)
        c.create_topic("events")
        written = write(c, chance, 250)
        write_other(c)
        for topic in ("table", "other"):
            c.tier(topic, keep_local=False)
        segments = len(open_store(c.store_url).list("segments/"))
        plan = run(c, capsys, "--plan")["partitions"]
        assert sorted(each["topic"] for each in plan) == ["other", "table"]
        assert all(each["chosen"] and each["dirty_ratio"] == 1.0 for each in plan)
        assert sum(each["segments"] for each in plan) == segments
        assert of_spark(spark, store=c.store_url) == consumed(c) == written

        first = run(c, capsys, "--wave-mib", "1")
        newest = keys_of(written)
        assert (first["keys"], first["looked_at_segments"]) == (len(newest) + 15, segments)
        assert first["removed_records"] == len(written) - len(newest) + 30
        eventually(lambda: c.health()["stale_checkpoints"] == 0 and consumed(c) == sorted(newest.values()))
        assert of_spark(spark, store=c.store_url) == consumed(c)
        other = spark.read.format("tiered").option("subscribe", "other").option("store", c.store_url).load()
        assert sorted(row["offset"] for row in other.select("offset").collect()) == list(range(30, 45))

        # Nothing is due now; asked all the same, tombstones go, which delete.retention.ms kept for one pass.
        assert run(c, capsys)["replaced_segments"] == 0
        run(c, capsys, "--all", "--topic", "table")
        wanted = sorted(each for each in newest.values() if each[2] is not None)
        eventually(lambda: c.health()["stale_checkpoints"] == 0 and consumed(c) == wanted)

        # What comes now is in the tail, above what was compacted: both tiers meet inside one table.
        more = write(c, chance, 40)
        both = {"store": c.store_url, "kafka.bootstrap.servers": c.bootstrap}
        assert of_spark(spark, **both) == consumed(c) == sorted([*wanted, *more])
        eventually(lambda: not verify(open_store(c.store_url)).problems)


def test_an_object_that_cannot_be_read_keeps_no_other_topic_from_being_compacted(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster(settings=SETTINGS) as c:
        for topic in ("table", "other"):
            c.create_topic(topic, configs=CONFIGS)
        write(c, random.Random(8), 100)
        write_other(c)
        for topic in ("table", "other"):
            c.tier(topic, keep_local=False)
        store = open_store(c.store_url)
        damaged = next(key for key, _ in store.list("segments/") if "/other_" in key)
        data, _ = store.get(damaged, max_bytes=1 << 20)
        store.delete(damaged)
        store.put(damaged, data[:80] + bytes([data[80] ^ 1]) + data[81:])
        assert job.main(["--store", c.store_url, "--meta", c.sql_url]) == 1
        found = json.loads(capsys.readouterr().out)
        failed = {partition["topic"]: partition["failed"] for partition in found["partitions"]}
        assert failed["table"] is None
        assert damaged in failed["other"]
        assert found["replaced_segments"] > 0


def test_a_topic_that_is_not_compacted_and_a_foreign_store_are_refused(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster() as c, cluster() as other:
        c.create_topic("events")
        other.create_topic("events")
        eventually(lambda: c.health()["stale_checkpoints"] == other.health()["stale_checkpoints"] == 0)
        assert job.main(["--store", c.store_url, "--meta", c.sql_url, "--topic", "events"]) == 2
        assert "no cleanup.policy=compact" in capsys.readouterr().err
        assert job.main(["--store", other.store_url, "--meta", c.sql_url]) == 2
        assert "give the store and the database that the brokers have" in capsys.readouterr().err
        assert job.main(["--store", c.store_url, "--meta", c.sql_url, "--topic", "none"]) == 1
        assert "topic none is not in the metadata store" in capsys.readouterr().err
