"""How fast Spark reads a topic from the bucket alone: rows a second into `noop`, brokers stopped.

Owns the Spark session, in a process of its own. Run as `python -m benchmarks.replay STORE TOPIC ROUNDS`;
prints JSON.
"""

import json
import os
import sys
import time

from pyspark.sql import SparkSession


def main(argv: list[str]) -> int:
    store, topic, rounds = argv[0], argv[1], int(argv[2])
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.Builder().master("local[2]").appName("tiered-bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.read.format("tiered").option("store", store).option("subscribe", topic).load()
    counting_started = time.perf_counter()
    rows = frame.count()  # Also warms the workers and the JVM.
    first_seconds = time.perf_counter() - counting_started
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - started)
    splits = frame.rdd.getNumPartitions()
    spark.stop()
    print(json.dumps({"rows": rows, "splits": splits, "first_count_seconds": first_seconds, "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
