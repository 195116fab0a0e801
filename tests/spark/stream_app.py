"""A Spark application that follows a topic into parquet files: what the test of a long stream starts and kills.

Usage: stream_app.py OUT CHECKPOINT forever|once OPTION=VALUE...
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def main(arguments: list[str]) -> None:
    out, checkpoint, how, *given = arguments
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("long-stream")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.readStream.format("tiered").options(**dict(each.split("=", 1) for each in given)).load()
    # What a value says about its own place, so that a row in the wrong place is seen.
    told = f.substring_index(f.col("value").cast("string"), "-", 1).cast("long").alias("told")
    writer = frame.select("partition", "offset", told).writeStream.format("parquet")
    writer = writer.option("path", out).option("checkpointLocation", checkpoint)
    query = (writer.trigger(availableNow=True) if how == "once" else writer).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
