"""Spark's rows are the broker's records are what was produced, each once, while everything below them moves.

A writer goes on appending, segments roll, uploads move the seam, local copies go, and retention cuts the log's
beginning, all of it within the time of one read.
"""

import json
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pyspark_tiered.brokers import Brokers, BrokerThread
from tests.spark.random_log import random_codec, random_records
from tests.spark.stream_job import Job
from tiered.formats.record_batch import Record, encode_batch, records, whole_batches
from tiered.testing import LocalCluster, cluster

pytestmark = [pytest.mark.spark, pytest.mark.soak]

SETTINGS = {"log.retention.check.interval.ms": 50, "tiered.sweep.interval.ms": 50}
TOPIC = {"local.retention.bytes": 1, "tiered.purge.grace.ms": 1}


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalCluster]:
    with cluster(settings=SETTINGS) as running:
        yield running


@dataclass(slots=True)
class Appended:
    """What was acknowledged, by partition and offset."""

    topic: str
    has_retention: bool
    logs: dict[int, list[Record]] = field(default_factory=dict)

    def ends(self) -> dict[int, int]:
        return {partition: len(rows) for partition, rows in self.logs.items()}


class Appender(threading.Thread):
    """Appends random batches to random partitions until it is told to stop; what it remembers is acknowledged."""

    def __init__(self, broker: LocalCluster, log: Appended, random_: random.Random) -> None:
        super().__init__(name="appender", daemon=True)
        self._log = log
        self._random = random_
        self._over = threading.Event()
        self._thread = BrokerThread(broker.bootstrap, client_id="appender", timeout_ms=30_000)

    def __enter__(self) -> Self:
        for _ in range(40):
            self.append()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        self._thread.close()

    def run(self) -> None:
        while not self._over.wait(self._random.random() / 50):
            self.append()

    def append(self) -> None:
        partition = self._random.choice(list(self._log.logs))
        rows = random_records(self._random, 0, self._random.randrange(1, 60))
        batch = encode_batch(rows, compression=random_codec(self._random))
        produced = self._thread.submit(self._thread.cluster.produce(self._log.topic, partition, batch)).result()
        known = self._log.logs[partition]
        assert produced.base_offset == len(known), "the appender is the partition's only producer"
        known += [
            Record(
                offset=produced.base_offset + row.offset,
                timestamp_ms=row.timestamp_ms,
                key=row.key,
                value=row.value,
                headers=row.headers,
            )
            for row in rows
        ]


def random_topic(broker: LocalCluster, random_: random.Random) -> Appended:
    has_retention = random_.random() < 0.5
    configs = TOPIC | {
        "segment.bytes": random_.choice((2000, 10_000, 40_000)),
        "retention.bytes": random_.choice((20_000, 100_000)) if has_retention else -1,
    }
    count = random_.randrange(1, 4)
    topic = broker.create_topic(partitions=count, configs=configs)
    return Appended(topic=topic, has_retention=has_retention, logs={number: [] for number in range(count)})


def rows_of_spark(spark: SparkSession, options: dict[str, str]) -> dict[int, list[Record]]:
    """Every row by partition, sorted by offset."""
    frame = spark.read.format("tiered").options(**options, includeHeaders="true").load()
    found: dict[int, list[Record]] = {}
    columns = ("partition", "offset", f.unix_millis("timestamp").alias("ms"), "key", "value", "headers")
    for row in frame.select(*columns).collect():
        headers = tuple((each["key"], _bytes(each["value"])) for each in row["headers"] or ())
        record = Record(
            offset=row["offset"],
            timestamp_ms=row["ms"],
            key=_bytes(row["key"]),
            value=_bytes(row["value"]),
            headers=headers,
        )
        found.setdefault(row["partition"], []).append(record)
    return {partition: sorted(rows, key=lambda row: row.offset) for partition, rows in found.items()}


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def rows_of_broker(broker: LocalCluster, topic: str, partition: int, start: int, end: int) -> list[Record]:
    found: list[Record] = []
    with Brokers(broker.bootstrap) as brokers:
        while start < end:
            data = brokers.fetch(topic, partition, start).result().records
            for position, header in whole_batches(data, 0, len(data)):
                found += [each for each in records(data, position) if start <= each.offset < end]
                start = max(start, header.end_offset)
    return found


def log_starts(broker: LocalCluster, log: Appended) -> dict[int, int]:
    with Brokers(broker.bootstrap) as brokers:
        found = brokers.list_offsets({(log.topic, partition): -2 for partition in log.logs})
    return {partition: offset for (_, partition), offset in found.items()}


def random_read(broker: LocalCluster, log: Appended, random_: random.Random) -> dict[str, str]:
    """Options without a range: from the bucket with the brokers, mostly, and in splits of any size."""
    options = {"subscribe": log.topic, "splitBytes": str(random_.choice((3000, 30_000, 64 << 20)))}
    if random_.random() < 0.8:
        options["store"] = broker.store_url
    options["kafka.bootstrap.servers"] = broker.bootstrap
    if log.has_retention:
        options["catalog"] = broker.http_url
    if random_.random() < 0.5:
        options["maxRecordsPerPartition"] = str(random_.choice((50, 1000)))
    return options


def check_whole_read(spark: SparkSession, broker: LocalCluster, log: Appended, random_: random.Random) -> None:
    """From earliest to latest, whatever these are when it is planned."""
    least = log.ends()
    found = rows_of_spark(spark, random_read(broker, log, random_))
    most, starts = log.ends(), log_starts(broker, log)
    for partition, known in log.logs.items():
        rows = found.get(partition, [])
        first = rows[0].offset if rows else least[partition]
        assert first <= starts[partition] if log.has_retention else first == 0
        assert least[partition] <= first + len(rows) <= most[partition] + 1000
        deadline = time.monotonic() + 30
        while len(known) < first + len(rows) and time.monotonic() < deadline:
            time.sleep(0.01)  # Stored, and on its way to being remembered.
        assert rows == known[first : first + len(rows)]


def check_range(spark: SparkSession, broker: LocalCluster, log: Appended, random_: random.Random) -> None:
    """Between offsets that were chosen."""
    ends = {partition: random_.randrange(end + 1) for partition, end in log.ends().items()}
    starts = {partition: random_.randrange(end + 1) for partition, end in ends.items()}
    options = random_read(broker, log, random_) | {
        "startingOffsets": json.dumps({log.topic: starts}),
        "endingOffsets": json.dumps({log.topic: ends}),
    }
    found = rows_of_spark(spark, options)
    for partition, known in log.logs.items():
        wanted = known[starts[partition] : ends[partition]]
        assert found.get(partition, []) == wanted
        assert rows_of_broker(broker, log.topic, partition, starts[partition], ends[partition]) == wanted


def check_stream(spark: SparkSession, broker: LocalCluster, log: Appended, folder: Path, parts: Sequence[int]) -> None:
    """From earliest on, started once for each number of micro-batches. How long the log is depends on the machine's
    pace: a limit of offsets would have a slow one read the longest logs in the most pieces."""
    options = {"store": broker.store_url, "kafka.bootstrap.servers": broker.bootstrap, "catalog": broker.http_url}
    stream = Job(spark, folder, **options, subscribe=log.topic, startingOffsets="earliest")
    least = log.ends()
    for count in parts:
        least = log.ends()
        stream.run(maxOffsetsPerTrigger=max(700, sum(least.values()) // count))
    for partition in log.logs:
        found = stream.offsets(log.topic, partition)
        assert found == list(range(found[0], found[0] + len(found)))
        assert found[-1] + 1 >= least[partition]
        assert log.has_retention or found[0] == 0


def check_one(spark: SparkSession, broker: LocalCluster, folder: Path, seed: int, *, reads: int) -> None:
    random_ = random.Random(seed)
    log = random_topic(broker, random_)
    with Appender(broker, log, random.Random(seed + 1)):
        for number in range(reads):
            if not log.has_retention and number % 2:
                check_range(spark, broker, log, random_)
            else:
                check_whole_read(spark, broker, log, random_)
        # Between two runs nobody holds what the stream has not read.
        check_stream(spark, broker, log, folder / str(seed), (12,) if log.has_retention else (12, 3))


@pytest.mark.parametrize("seed", [1, 2])
def test_rows_are_the_records_while_segments_roll_move_and_go(
    spark: SparkSession, broker: LocalCluster, tmp_path: Path, seed: int
) -> None:
    check_one(spark, broker, tmp_path, seed, reads=2)


def test_rows_are_the_records_of_many_logs(spark: SparkSession, broker: LocalCluster, tmp_path: Path) -> None:
    first = int.from_bytes(os.urandom(4), "big")
    for seed in range(first, first + int(os.environ.get("TIERED_LIVE_LOGS", "40"))):
        print(f"seed {seed}", flush=True)
        check_one(spark, broker, tmp_path, seed, reads=6)
