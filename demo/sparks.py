"""What the demo asks of Spark: a batch read, and a stream that is interrupted and goes on from its checkpoint.

Owns the session and its options. A user's job looks the same.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from demo.checksum import Checksum, checksum_of


def require_java() -> None:
    """Spark is the only part that needs Java; says so before anything is started."""
    found = shutil.which("java")
    if found is None or subprocess.run([found, "-version"], capture_output=True).returncode != 0:
        raise SystemExit("Spark needs Java 17: install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)")


def session(folder: Path) -> SparkSession:
    """A local Spark with two cores and 1 GiB, which leaves its files under `folder`."""
    # Spark's workers are this Python, and its own ports are on loopback like everything else here.
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.Builder().master("local[2]").appName("tiered-demo")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "spark"),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def from_bucket(spark: SparkSession, *, store: str, topic: str) -> DataFrame:
    """Everything of a topic that the bucket holds. Asks no broker, so none need run."""
    return spark.read.format("tiered").option("store", store).option("subscribe", topic).load()


def across_both_tiers(spark: SparkSession, *, store: str, bootstrap: str, topic: str) -> DataFrame:
    """Everything of a topic: the cold past from the bucket, the hot tail from the brokers, each record once."""
    reader = spark.read.format("tiered").option("store", store).option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).load()


@dataclass(slots=True)
class Followed:
    """A stream over both tiers that remembers each micro-batch's checksum under its number.

    A micro-batch that is run again after an interruption replaces what it left the first time, as an
    idempotent sink would.
    """

    spark: SparkSession
    store: str
    topic: str
    checkpoint: Path
    batches: dict[int, Checksum] = field(default_factory=dict)

    def start(self, bootstrap: str, *, records_per_batch: int, until_caught_up: bool) -> StreamingQuery:
        """Starts where the checkpoint says, or at the beginning. `until_caught_up` stops at today's end."""
        stream = (
            self.spark.readStream.format("tiered")
            .option("store", self.store)
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(records_per_batch))
            .load()
        )
        writer = stream.writeStream.foreachBatch(self._remember).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(availableNow=True).start() if until_caught_up else writer.start()

    @property
    def checksum(self) -> Checksum:
        return sum(list(self.batches.values()), Checksum())

    def _remember(self, frame: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = checksum_of(frame)


def wait_for(query: StreamingQuery, holds: Callable[[], bool], *, timeout_seconds: float) -> bool:
    """True as soon as `holds()` does; False when the time is up. Raises what ended the query, if it failed."""
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if (failure := query.exception()) is not None:
            raise failure
        if holds():
            return True
        time.sleep(0.2)
    return False
