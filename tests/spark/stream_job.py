"""A streaming query that ends when its test does."""

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_tiered.stream import TOPIC_IDS


class Job:
    """A stream into a folder, with a checkpoint: it can be run again and again."""

    def __init__(self, spark: SparkSession, folder: Path, **options: object) -> None:
        self._spark = spark
        self._out, self._checkpoint = str(folder / "out"), str(folder / "checkpoint")
        self._options = {name: str(value) for name, value in options.items()}

    def start(self, **more: object) -> StreamingQuery:
        reader = self._spark.readStream.format("tiered")
        for name, value in (self._options | {name: str(value) for name, value in more.items()}).items():
            reader = reader.option(name, value)
        writer = reader.load().select("topic", "partition", "offset", "value").writeStream.format("parquet")
        return (
            writer.option("path", self._out)
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )

    def run(self, **more: object) -> list[int]:
        """Runs until everything that is there now is read; the rows of each micro-batch."""
        query = self.start(**more)
        assert query.awaitTermination(100), "the stream does not end"
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def offsets(self, topic: str = "orders", partition: int = 0) -> list[int]:
        frame: DataFrame = self._spark.read.parquet(self._out)
        found = frame.where(f"topic = '{topic}' and partition = {partition}").select("offset").collect()
        return sorted(row["offset"] for row in found)

    def planned(self) -> list[dict[str, dict[str, int]]]:
        """The offsets of each micro-batch, as Spark's checkpoint keeps them beside the topics' ids."""
        files = sorted(Path(self._checkpoint, "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
        found = [json.loads(file.read_text().splitlines()[2]) for file in files]
        return [{topic: offsets for topic, offsets in each.items() if topic != TOPIC_IDS} for each in found]
