"""Replays a range of a topic: into another topic at a throttle, or into Parquet files partitioned by time.

    spark-submit spark/jobs/replay.py --store s3://logs/prod --topic orders --from 2026-01-01 --to 2026-02-01 \\
        --to-bootstrap broker:9092 --to-topic orders-again --records-per-second 20000

Owns the pace, and that each partition's records are written in order: one task reads a partition's splits one after the
other. Must never write faster than was asked for, in all tasks together.
"""

import argparse
import json
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from pyspark_tiered.job_arguments import as_json, frame_of, parsed_options, source_arguments, source_options
from pyspark_tiered.job_run import job_session, stages, watched
from pyspark_tiered.job_waves import WAVE_BYTES, Wave, held_ranges, waves_of
from pyspark_tiered.log_source import open_log_source
from pyspark_tiered.plan import OffsetRange
from tiered.cli.arguments import Parser
from tiered.cli.failure import EXIT_OK, CommandFailed, UsageError
from tiered.cli.main import ended
from tiered.cli.output import counted, print_json
from tiered.cli.progress import long_work
from tiered.runtime import SystemClock

if TYPE_CHECKING:
    import pyarrow as pa

PERIODS = {"month": ("year", "month"), "day": ("date",), "hour": ("date", "hour")}
_BURST_SECONDS = 1.0
_PIECE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """The rate of all tasks together; None is no limit."""

    records_per_second: float | None = None
    bytes_per_second: float | None = None

    def share(self, tasks: int) -> "RateLimit":
        """The rate of one of so many tasks at a time."""
        records, size = self.records_per_second, self.bytes_per_second
        return RateLimit(
            records_per_second=None if records is None else records / tasks,
            bytes_per_second=None if size is None else size / tasks,
        )

    def seconds(self, records: int, size_bytes: int) -> float:
        """How long so much must take at least."""
        by_records = records / self.records_per_second if self.records_per_second else 0.0
        return max(by_records, size_bytes / self.bytes_per_second if self.bytes_per_second else 0.0)


def build_parser() -> Parser:
    parser = Parser(
        prog="replay.py",
        description="Read a range of a topic again, from the bucket and the brokers, and write it to a topic at a "
        "throttle, or to Parquet files partitioned by time. The summary is one JSON object on stdout. "
        "Exit code 0 when all is written, 1 when it is not, 2 usage.",
    )
    source_arguments(parser)
    topic = parser.add_argument_group("into a topic")
    topic.add_argument("--to-bootstrap", metavar="HOST:PORT,…", help="the brokers to write to (those of --bootstrap)")
    topic.add_argument("--to-topic", metavar="TOPIC", help="the topic to write to, which should exist")
    topic.add_argument(
        "--by-key", action="store_true", help="partitions by the records' keys, and not the same as in the topic read"
    )
    topic.add_argument("--records-per-second", metavar="N", type=_rate, help="at most so many, in all (no limit)")
    topic.add_argument(
        "--bytes-per-second", metavar="N", type=_rate, help="keys and values, at most, in all (no limit)"
    )
    files = parser.add_argument_group("into Parquet")
    files.add_argument("--to-parquet", metavar="FOLDER", help="any path that Spark writes to")
    files.add_argument("--partition-by", choices=PERIODS, default="day", help="folders by the records' time, UTC (day)")
    files.add_argument("--append", action="store_true", help="add to what is there; else that is an error")
    files.add_argument("--headers", action="store_true", help="write the headers as well")
    return parser


def _rate(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0.0 < found < 1e15:
        raise argparse.ArgumentTypeError(f"{text} is no rate: give a number above 0")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and gives its exit code."""
    arguments = build_parser().parse_args(argv)
    return ended("replay.py", lambda: run(arguments))


def run(arguments: argparse.Namespace) -> int:
    if (arguments.to_topic is None) == (arguments.to_parquet is None):
        raise UsageError("give --to-topic or --to-parquet, one of them")
    spark = job_session("tiered-replay")
    started_ms = SystemClock().monotonic_ms()
    try:
        summary = _to_topic(spark, arguments) if arguments.to_topic is not None else _to_parquet(spark, arguments)
    except PySparkException as error:
        raise CommandFailed(f"Spark gave up: {str(error).splitlines()[0]}") from error
    print_json(summary | {"seconds": round((SystemClock().monotonic_ms() - started_ms) / 1000, 3)})
    return EXIT_OK


# Into a topic


def _to_topic(spark: SparkSession, arguments: argparse.Namespace) -> dict[str, Any]:
    bootstrap = arguments.to_bootstrap or arguments.bootstrap
    if not bootstrap:
        raise UsageError("give --to-bootstrap, the brokers to write to")
    if arguments.to_topic == arguments.topic and bootstrap == arguments.bootstrap and arguments.end == "latest":
        raise UsageError("a topic that is replayed into itself needs an end: give --to")
    options = parsed_options(arguments, includeHeaders="true")
    throttle = RateLimit(records_per_second=arguments.records_per_second, bytes_per_second=arguments.bytes_per_second)
    records, size_bytes = spark.sparkContext.accumulator(0), spark.sparkContext.accumulator(0)
    with open_log_source(options) as source, held_ranges(source, options) as ranges:
        total = sum(each.end_offset - each.start_offset for each in ranges)
        reached = {each.view.partition: each.start_offset for each in ranges}
        with long_work(total, counted(total, "offset"), in_bytes=False) as show:
            for wave in waves_of(source, options, ranges, wave_bytes=WAVE_BYTES):
                frame = _paced(frame_of(spark, options, wave.by_partition()), throttle, wave, records, size_bytes)
                columns = ["key", "value", "headers", *([] if arguments.by_key else ["partition"])]
                writer = frame.select(*columns).write.format("tiered").mode("append")
                writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", arguments.to_topic)
                done = total - sum(each.end_offset - reached[each.view.partition] for each in ranges)
                try:
                    watched(writer.save, lambda done=done: show(done, f"{records.value:,} records"))  # type: ignore[misc]
                except BaseException:
                    _say_where_to_go_on(reached)
                    raise
                reached |= {each.view.partition: each.end_offset for each in wave.ranges}
    return {
        "topic": arguments.topic,
        "to_topic": arguments.to_topic,
        "ranges": as_json(ranges),
        "records": records.value,
        "bytes": size_bytes.value,
    }


def _say_where_to_go_on(reached: dict[int, int]) -> None:
    words = json.dumps({str(partition): offset for partition, offset in sorted(reached.items())})
    print(f"all records before these offsets are written, and some behind them: --from '{words}'", file=sys.stderr)


def _paced(frame: DataFrame, throttle: RateLimit, wave: Wave, records: Any, size_bytes: Any) -> DataFrame:
    """The frame's rows, counted, and given no faster than the throttle allows to all tasks that run at a time."""
    at_a_time = min(frame.sparkSession.sparkContext.defaultParallelism, len(wave.by_partition()))
    share = throttle.share(max(1, at_a_time))

    def pace(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for batch, batch_bytes in paced(batches, share):
            records.add(batch.num_rows)
            size_bytes.add(batch_bytes)
            yield batch

    return frame.mapInArrow(pace, frame.schema)


def paced(batches: "Iterable[pa.RecordBatch]", throttle: RateLimit) -> "Iterator[tuple[pa.RecordBatch, int]]":
    """The same rows in smaller batches with the bytes of keys and values, each once the throttle has room for it.

    Time that was not used is kept for a second at the most: a slow destination is not made up for in a burst.
    """
    clock, pause = SystemClock(), threading.Event()
    due_ms = clock.monotonic_ms()
    for batch in batches:
        total_bytes = _value_bytes(batch)
        seconds = throttle.seconds(batch.num_rows, total_bytes)
        rows = max(1, int(batch.num_rows * _PIECE_SECONDS / seconds)) if seconds > _PIECE_SECONDS else batch.num_rows
        for start in range(0, batch.num_rows, rows):
            piece = batch.slice(start, rows)
            piece_bytes = _value_bytes(piece) if piece.num_rows < batch.num_rows else total_bytes
            now_ms = clock.monotonic_ms()
            if due_ms > now_ms:
                pause.wait((due_ms - now_ms) / 1000)
            due_ms = max(due_ms, clock.monotonic_ms() - _BURST_SECONDS * 1000)
            due_ms += throttle.seconds(piece.num_rows, piece_bytes) * 1000
            yield piece, piece_bytes


def _value_bytes(batch: "pa.RecordBatch") -> int:
    import pyarrow.compute as pc

    return sum(int(pc.sum(pc.binary_length(batch.column(name))).as_py() or 0) for name in ("key", "value"))


# Into Parquet


def _to_parquet(spark: SparkSession, arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.records_per_second or arguments.bytes_per_second:
        raise UsageError("--records-per-second and --bytes-per-second belong to --to-topic: files need no throttle")
    options = parsed_options(arguments)
    with open_log_source(options) as source, held_ranges(source, options) as ranges:
        observation = _write_parquet(spark, arguments, ranges)
    return {
        "topic": arguments.topic,
        "to_parquet": arguments.to_parquet,
        "partitioned_by": list(PERIODS[arguments.partition_by]),
        "ranges": as_json(ranges),
        "records": int(observation.get["records"]),
        "bytes": int(observation.get["bytes"] or 0),
    }


def _write_parquet(spark: SparkSession, arguments: argparse.Namespace, ranges: Sequence[OffsetRange]) -> Observation:
    """Counts of what was written. The offsets are fixed, so that the summary is of what was read."""
    found = source_options(arguments, includeHeaders=str(arguments.headers).lower())
    # Here the job itself holds what is read.
    fixed = {name: value for name, value in found.items() if not name.startswith(("starting", "ending", "catalog"))}
    for name, which in (("startingOffsets", "start_offset"), ("endingOffsets", "end_offset")):
        fixed[name] = json.dumps({arguments.topic: {str(each.view.partition): getattr(each, which) for each in ranges}})
    observation = Observation()
    frame = spark.read.format("tiered").options(**fixed).load()
    frame = frame.observe(
        observation,
        f.count(f.lit(1)).alias("records"),
        f.sum(f.coalesce(f.length("key"), f.lit(0)) + f.coalesce(f.length("value"), f.lit(0))).alias("bytes"),
    )
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    periods = {
        "year": f.year("timestamp"),
        "month": f.month("timestamp"),
        "date": f.to_date("timestamp"),
        "hour": f.hour("timestamp"),
    }
    names = PERIODS[arguments.partition_by]
    frame = frame.withColumns({name: periods[name] for name in names})
    total = sum(each.end_offset - each.start_offset for each in ranges)
    with long_work(total, counted(total, "offset"), in_bytes=False) as show:
        write = frame.write.partitionBy(*names).mode("append" if arguments.append else "errorifexists")
        watched(lambda: write.parquet(arguments.to_parquet), lambda: show(0, stages(spark)))
    return observation


if __name__ == "__main__":
    sys.exit(main())
