"""A Spark application that copies a topic in transactions; one task of each micro-batch meets a fate as it writes.

Usage: transactional_app.py FOLDER MASTER BOOTSTRAP CATALOG SOURCE TARGET

FOLDER gets the checkpoint, and in `met` an empty file for each fate that a task has met.
"""

import random
import sys
import time
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import psutil  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from pyspark_tiered import DefaultSource
from pyspark_tiered.stream_write import StreamWriter
from pyspark_tiered.transactional_write import WrittenRecords
from pyspark_tiered.write_options import WriteOptions, parse_write_options

if TYPE_CHECKING:
    import pyarrow as pa

TASKS = 2
TRANSACTION_TIMEOUT_MS = 600_000
_LONGEST_S = 60.0


class TaskFate(Enum):
    FAILS = "fails"
    LOSES_EXECUTOR = "loses-executor"
    """The executor is killed; the attempt itself may go on to its end, and nobody hears of it."""
    OVERTAKEN = "overtaken"
    """It waits until Spark has begun the task a second time beside it, and that one is as far; then both end."""


def fate_in(batch: int) -> tuple[int, TaskFate]:
    """Which task of the micro-batch meets a fate at its first attempt, and which."""
    random_ = random.Random(batch)
    return random_.randrange(TASKS), random_.choices(list(TaskFate), weights=(2, 1, 4))[0]


def failing_first(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    context = TaskContext.get()
    assert context is not None
    yield from batches
    if context.partitionId() == 0 and context.attemptNumber() == 0:
        raise RuntimeError("the first attempt fails after its rows")


class FatedWriter(StreamWriter):
    """Writes as the sink does; a task's fate comes when some of its rows are sent, and others not yet."""

    def __init__(self, options: WriteOptions, met: Path, run: str) -> None:
        super().__init__(options)
        self._met = met
        self._run = run

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WrittenRecords:
        return super().write(self._fated(iterator))

    def _fated(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        yield from batches
        context = TaskContext.get()
        assert context is not None
        batch, task = int(context.getLocalProperty("streaming.sql.batchId") or ""), context.partitionId()
        again = self._met / f"again-{self._run}-{batch}-{task}"
        if context.attemptNumber() > 0:
            again.touch()
            return
        fated, fate = fate_in(batch)
        if task != fated:
            return
        if fate is TaskFate.OVERTAKEN:
            deadline = time.monotonic() + _LONGEST_S
            while not again.exists():
                if time.monotonic() > deadline:
                    return
                time.sleep(0.01)
        (self._met / f"{fate.value}-{self._run}-{batch}").touch()
        if fate is TaskFate.LOSES_EXECUTOR:
            executor = psutil.Process().parents()[1]
            assert any("ExecutorBackend" in each for each in executor.cmdline()), executor
            executor.kill()
        elif fate is TaskFate.FAILS:
            raise RuntimeError("the first attempt fails after its rows")


class FatedSource(DefaultSource):
    @classmethod
    def name(cls) -> str:
        return "fated"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        told = dict(self.options)
        met, run = Path(told.pop("met")), told.pop("run")
        return FatedWriter(parse_write_options(told, schema), met, run)


def main(folder: str, master: str, bootstrap: str, catalog: str, source: str, target: str) -> None:
    met = Path(folder, "met")
    met.mkdir(exist_ok=True)
    lean = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    spark = (
        SparkSession.builder.master(master)
        .appName("transactional-write")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", lean)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", lean)
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "50ms")
        .config("spark.speculation.multiplier", "1")
        .config("spark.speculation.quantile", "0.5")
        .config("spark.speculation.efficiency.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(FatedSource)
    query = (
        spark.readStream.format("tiered")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100")
        .option("isolation.level", "read_committed")
        .load()
        .select("value")
        .writeStream.format("fated")
        .option("met", str(met))
        .option("run", uuid4().hex)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.batch.size", "100")
        .option("topic", target)
        .option("transactionalIdPrefix", "copy")
        .option("catalog", catalog)
        .option("kafka.transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS))
        .option("checkpointLocation", str(Path(folder, "checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
