"""A Spark application that copies a topic in transactions; one task of each micro-batch fails at its first attempt.

Usage: transactional_app.py CHECKPOINT BOOTSTRAP CATALOG SOURCE TARGET
"""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    import pyarrow as pa


def failing_first(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    context = TaskContext.get()
    assert context is not None
    yield from batches
    if context.partitionId() == 0 and context.attemptNumber() == 0:
        raise RuntimeError("the first attempt fails after its rows")


def main(checkpoint: str, bootstrap: str, catalog: str, source: str, target: str) -> None:
    spark = (
        SparkSession.builder.master("local[2, 3]")
        .appName("transactional-write")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    query = (
        spark.readStream.format("tiered")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100")
        .option("isolation.level", "read_committed")
        .load()
        .select("value")
        .mapInArrow(failing_first, "value binary")
        .writeStream.format("tiered")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.batch.size", "100")
        .option("topic", target)
        .option("transactionalIdPrefix", "copy")
        .option("catalog", catalog)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
