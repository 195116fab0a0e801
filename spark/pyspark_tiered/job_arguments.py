"""Shared by jobs that read a topic: which topic, from where to where, and how it becomes a DataFrame.

Owns those arguments, and how they become options of `format("tiered")`. Must never give an option a meaning that the
source does not give it.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_tiered.batch import TaskOptions
from pyspark_tiered.columns import ddl
from pyspark_tiered.options import Isolation, Options, parse_options
from pyspark_tiered.plan import OffsetRange, Split
from tiered.errors import InvalidConfig
from tiered.formats.arrow import ALL_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

SPLITS_DDL = "number int"


def source_arguments(parser: argparse.ArgumentParser, *, with_start: bool = True) -> None:
    """Adds the source and the range to a job's parser."""
    source = parser.add_argument_group("what to read")
    source.add_argument("--store", metavar="URL", help="the object store: s3://bucket/prefix or file:///path")
    source.add_argument(
        "--bootstrap", metavar="HOST:PORT,…", help="brokers, for the tail; without --store for all of it"
    )
    source.add_argument(
        "--catalog", metavar="URL,…", help="brokers' HTTP addresses: pins hold what is read until the job ends"
    )
    source.add_argument("--topic", required=True, help="the topic to read")
    source.add_argument("--partitions", metavar="N,N", help="these partitions alone")
    if with_start:
        source.add_argument(
            "--from", dest="start", metavar="WHERE", default="earliest",
            help="earliest, a time (2026-01-31T12:00Z, or milliseconds since 1970) or offsets ({\"0\":23,\"1\":-2})",
        )  # fmt: skip
    source.add_argument("--to", dest="end", metavar="WHERE", default="latest", help="latest, a time, or offsets")
    source.add_argument(
        "--isolation", choices=[each.value for each in Isolation], default=Isolation.READ_COMMITTED.value,
        help="read_committed (the default) leaves out aborted transactions, and ends where one is open",
    )  # fmt: skip
    source.add_argument(
        "--allow-data-loss", action="store_true", help="go on without records that retention took; else an error"
    )
    source.add_argument(
        "--skip-bad-batches",
        action="store_true",
        help="go on without batches that nobody can decode, and warn of their offsets; else an error",
    )


def source_options(arguments: argparse.Namespace, **more: str) -> dict[str, str]:
    """The options of `format("tiered")` that the arguments mean. Raises `InvalidConfig`."""
    options = dict(more)
    topic = str(arguments.topic)
    if arguments.store:
        options["store"] = arguments.store
    if arguments.bootstrap:
        options["kafka.bootstrap.servers"] = arguments.bootstrap
    if arguments.catalog:
        options["catalog"] = arguments.catalog
    if arguments.partitions:
        try:
            numbers = [int(each) for each in str(arguments.partitions).split(",")]
        except ValueError:
            raise InvalidConfig(
                f"--partitions {arguments.partitions} are no numbers with commas, such as 0,3"
            ) from None
        options["assign"] = json.dumps({topic: numbers})
    else:
        options["subscribe"] = topic
    options |= _position(topic, getattr(arguments, "start", "earliest"), "starting", "--from")
    options |= _position(topic, arguments.end, "ending", "--to")
    if "startingTimestamp" in options:
        options["startingOffsetsByTimestampStrategy"] = "latest"
    options["isolation.level"] = arguments.isolation
    if arguments.allow_data_loss:
        options["failOnDataLoss"] = "false"
    if arguments.skip_bad_batches:
        options["failOnBadBatch"] = "false"
    return options


def _position(topic: str, text: str, which: str, argument: str) -> dict[str, str]:
    if text in ("earliest", "latest"):
        return {f"{which}Offsets": text}
    if text.startswith("{"):
        return {f"{which}Offsets": json.dumps({topic: _offsets(text, argument)})}
    if text.isascii() and text.isdigit():
        return {f"{which}Timestamp": text}
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidConfig(
            f'{argument} {text} is neither a word, a time such as 2026-01-31T12:00Z, nor offsets such as {{"0":23}}'
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return {f"{which}Timestamp": str(int(time.timestamp() * 1000))}


def _offsets(text: str, argument: str) -> dict[str, int]:
    try:
        found = json.loads(text)
        return {str(int(partition)): int(offset) for partition, offset in found.items()}
    except (ValueError, TypeError, AttributeError):
        raise InvalidConfig(f'{argument} {text} are no offsets by partition, such as {{"0":23,"1":-2}}') from None


def parsed_options(arguments: argparse.Namespace, **more: str) -> Options:
    """The same as values, for a job that plans by itself. Raises `InvalidConfig`."""
    return parse_options(source_options(arguments, **more), streaming=False)


def frame_of(
    spark: SparkSession, options: Options, tasks: Sequence[Sequence[Split]], columns: Sequence[str] = ALL_COLUMNS
) -> DataFrame:
    """The rows of the splits, with one task for each sequence, which reads its splits one after the other."""
    context = spark.sparkContext
    numbered = context.parallelize([(number,) for number in range(len(tasks))], max(1, len(tasks)))
    everything = [list(each) for each in tasks]
    task_options = TaskOptions(options=options, columns=tuple(columns))

    def read(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for split in everything[number]:
                    yield from task_options.read(split)

    every = dict(each.split(" ", 1) for each in ddl(headers=True).split(", "))
    schema = ", ".join(f"{name} {every[name]}" for name in columns)
    return spark.createDataFrame(numbered, SPLITS_DDL).mapInArrow(read, schema)


def as_json(ranges: Iterable[OffsetRange]) -> list[dict[str, Any]]:
    """The ranges for a job's summary, offsets as they were resolved."""
    return [
        {
            "topic": each.view.topic,
            "partition": each.view.partition,
            "start_offset": each.start_offset,
            "end_offset": each.end_offset,
        }
        for each in ranges
    ]
