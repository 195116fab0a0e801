"""Exports a topic into an Iceberg table, from where the last export ended: every record once.

    spark-submit spark/jobs/export.py --store s3://logs/prod --topic orders --meta postgresql://tiered@db/tiered \\
        --warehouse s3://tables/prod --table shop.orders --format json --schema orders.schema.json

Owns the order of the work: a wave of splits is written to files by tasks, then committed with its offsets, then the
next one begins. Bad rows go to a second table, which is committed first and knows its own offsets, so that a job that
dies between the two commits, and is run again, writes none of them a second time.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_tiered import iceberg_table
from pyspark_tiered.batch import TaskOptions
from pyspark_tiered.iceberg_table import BAD_SUFFIX, Exported
from pyspark_tiered.job_arguments import as_json, parsed_options, source_arguments
from pyspark_tiered.job_run import job_session, watched
from pyspark_tiered.job_waves import WAVE_BYTES, Wave, held_ranges, waves_of
from pyspark_tiered.log_source import open_log_source
from pyspark_tiered.plan import OffsetRange, Split
from pyspark_tiered.value_schema import ValueFormat, ValueSchema
from tiered.cli.arguments import Parser
from tiered.cli.failure import EXIT_OK, CommandFailed, UsageError
from tiered.cli.main import ended
from tiered.cli.meta_password import meta_url, password_argument
from tiered.cli.output import counted, print_json
from tiered.cli.progress import long_work
from tiered.runtime import SystemClock

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

_IDENTIFIER = re.compile(r"[A-Za-z0-9_]+\.[A-Za-z0-9_]+\Z")
_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTable:
    """The facts about a table that a task needs."""

    metadata: str
    properties: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The files that one task wrote."""

    files: "tuple[DataFile, ...]"
    bad_files: "tuple[DataFile, ...]"
    rows: int
    bad_rows: int


def build_parser() -> Parser:
    parser = Parser(
        prog="export.py",
        description="Add to an Iceberg table what a topic has got since the last export, each record once, whatever "
        "stops the job on its way. The summary is one JSON object on stdout. Exit code 0 when all is committed, "
        "1 when it is not (run it again: it goes on), 2 usage.",
    )
    source_arguments(parser)
    table = parser.add_argument_group("where to")
    table.add_argument("--meta", metavar="URL", required=True, help="the metadata store, as for `tiered serve --meta`")
    password_argument(table)
    table.add_argument("--warehouse", metavar="URL", required=True, help="where new tables go: s3://… or file:///…")
    table.add_argument("--catalog-name", metavar="NAME", default="tiered", help="the Iceberg catalogue's name (tiered)")
    table.add_argument("--table", metavar="SPACE.NAME", required=True, help=f"bad rows go to SPACE.NAME{BAD_SUFFIX}")
    table.add_argument(
        "--partition-by", choices=("hour", "day", "month", "none"), default="day", help="for a new table (day)"
    )
    values = parser.add_argument_group("what the values are")
    values.add_argument("--format", choices=[each.value for each in ValueFormat], default="raw", help="(raw)")
    values.add_argument("--schema", metavar="FILE", help="a JSON Schema or an Avro schema; its fields become columns")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and gives its exit code."""
    arguments = build_parser().parse_args(argv)
    return ended("export.py", lambda: run(arguments))


def run(arguments: argparse.Namespace) -> int:
    if not _IDENTIFIER.match(arguments.table):
        raise UsageError(f"--table {arguments.table} is no SPACE.NAME of letters, digits and _")
    schema = _schema_of(arguments)
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    catalog = iceberg_table.open_catalog(meta_url(arguments), arguments.warehouse, name=arguments.catalog_name)
    period = None if arguments.partition_by == "none" else arguments.partition_by
    table = iceberg_table.open_table(catalog, arguments.table, fields_of(schema), period=period)
    bad = None
    if schema.format is not ValueFormat.RAW:
        bad = iceberg_table.open_table(catalog, arguments.table + BAD_SUFFIX, bad_fields(), period=None)
    spark = job_session("tiered-export")
    job = Export(spark, arguments, schema, table, bad)
    try:
        summary = job.run()
    except PySparkException as error:
        raise CommandFailed(f"Spark gave up, and what was committed stays: {str(error).splitlines()[0]}") from error
    print_json(summary | {"seconds": round((clock.monotonic_ms() - started_ms) / 1000, 3)})
    return EXIT_OK


def _schema_of(arguments: argparse.Namespace) -> ValueSchema:
    form = ValueFormat(arguments.format)
    if (form is ValueFormat.RAW) != (arguments.schema is None):
        raise UsageError("--schema belongs to --format json, avro and confluent-avro, which need it")
    if arguments.schema is None:
        return ValueSchema(format=form)
    try:
        return ValueSchema(format=form, text=Path(arguments.schema).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--schema {arguments.schema} cannot be read: {error.strerror}") from error


class Export:
    """One run. `bad` is the table for bad rows, where values are decoded at all."""

    def __init__(
        self,
        spark: SparkSession,
        arguments: argparse.Namespace,
        schema: ValueSchema,
        table: "Table",
        bad: "Table | None",
    ) -> None:
        self._spark = spark
        self._arguments = arguments
        self._options = parsed_options(arguments, includeHeaders="true")
        self._schema = schema
        self._table = table
        self._bad = bad
        self._properties = iceberg_table.file_properties(arguments.warehouse)[1]
        self._rows = self._bad_rows = self._files = self._commits = 0

    def run(self) -> dict[str, Any]:
        """The summary, when everything up to the end is committed. Raises `LostRace`, and what stores raise."""
        before = iceberg_table.exported(self._table)
        begun = {} if before is None else {(before.topic, number): end for number, end in before.offsets.items()}
        with (
            open_log_source(self._options) as source,
            held_ranges(source, self._options, begun) as ranges,
        ):
            self._check_topic(before, ranges)
            reached = dict(before.offsets) if before is not None else {}
            total = sum(each.end_offset - each.start_offset for each in ranges)
            done = 0
            with long_work(total, counted(total, "offset"), in_bytes=False) as show:
                for wave in waves_of(source, self._options, ranges, wave_bytes=WAVE_BYTES):
                    words = f"{self._rows:,} rows in {counted(self._commits, 'commit')}"
                    parts = watched(
                        lambda wave=wave: self._write(wave),  # type: ignore[misc]
                        lambda at=done, words=words: show(at, words),  # type: ignore[misc]
                    )
                    reached |= {each.view.partition: each.end_offset for each in wave.ranges}
                    self._commit(parts, Exported(topic=self._topic, topic_id=_topic_id(ranges), offsets=dict(reached)))
                    done += sum(each.end_offset - each.start_offset for each in wave.ranges)
        return {
            "topic": self._topic,
            "table": self._arguments.table,
            "bad_table": None if self._bad is None else self._arguments.table + BAD_SUFFIX,
            "ranges": as_json(ranges),
            "rows": self._rows,
            "bad_rows": self._bad_rows,
            "files": self._files,
            "commits": self._commits,
        }

    @property
    def _topic(self) -> str:
        return str(self._arguments.topic)

    def _check_topic(self, before: Exported | None, ranges: Sequence[OffsetRange]) -> None:
        topic_id = _topic_id(ranges)
        for each in (before, None if self._bad is None else iceberg_table.exported(self._bad)):
            if each is None:
                continue
            if each.topic != self._topic:
                raise UsageError(f"table {self._arguments.table} holds topic {each.topic}: export into another table")
            if None not in (each.topic_id, topic_id) and each.topic_id != topic_id:
                raise UsageError(
                    f"topic {self._topic} was deleted and created again since the last export, and its offsets began "
                    "anew: export into another table"
                )

    def _write(self, wave: Wave) -> list[Part]:
        """Runs the wave's tasks. Nothing of what they wrote is seen before it is committed."""
        aside = None if self._bad is None else iceberg_table.exported(self._bad)
        known = {} if aside is None else dict(aside.offsets)
        schema = self._schema
        options = TaskOptions(options=self._options, columns=_COLUMNS)
        good = TargetTable(metadata=iceberg_table.metadata_of(self._table), properties=self._properties)
        bad = None
        if self._bad is not None:
            bad = TargetTable(metadata=iceberg_table.metadata_of(self._bad), properties=self._properties)

        def write(splits: Iterable[Split]) -> Iterator[Part]:
            for split in splits:
                yield write_split(options, split, schema, good, bad, bad_from=known.get(split.partition, 0))

        context = self._spark.sparkContext
        return context.parallelize(wave.splits, max(1, len(wave.splits))).mapPartitions(write).collect()

    def _commit(self, parts: Sequence[Part], now: Exported) -> None:
        bad_files = [file for part in parts for file in part.bad_files]
        if self._bad is not None and bad_files:
            self._bad = iceberg_table.commit(self._bad, bad_files, now)
        files = [file for part in parts for file in part.files]
        self._table = iceberg_table.commit(self._table, files, now)
        self._rows += sum(each.rows for each in parts)
        self._bad_rows += sum(each.bad_rows for each in parts)
        self._files += len(files)
        self._commits += 1


def _topic_id(ranges: Sequence[OffsetRange]) -> str | None:
    return next((str(each.view.topic_id) for each in ranges if each.view.topic_id is not None), None)


# Columns


def record_fields() -> "list[pa.Field]":
    """The columns of the record itself, in both tables."""
    import pyarrow as pa

    return [
        pa.field("_topic", pa.string()),
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
        pa.field("_timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("_key", pa.binary()),
    ]


def headers_field() -> "pa.Field":
    import pyarrow as pa

    return pa.field("_headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))


def fields_of(schema: ValueSchema) -> "list[pa.Field]":
    """The columns of the table."""
    return [*record_fields(), headers_field(), *schema.fields()]


def bad_fields() -> "list[pa.Field]":
    """The columns of the table of bad rows."""
    import pyarrow as pa

    return [*record_fields(), headers_field(), pa.field("_value", pa.binary()), pa.field("_reason", pa.string())]


# In a task


def write_split(
    options: TaskOptions,
    split: Split,
    schema: ValueSchema,
    good: TargetTable,
    bad: TargetTable | None,
    *,
    bad_from: int,
) -> Part:
    """Writes the split's rows to files. Bad rows below `bad_from` are in their table already."""
    import pyarrow as pa
    import pyarrow.compute as pc

    counts = {"rows": 0, "bad": 0}
    set_aside: list[pa.RecordBatch] = []

    def rows() -> "Iterator[pa.RecordBatch]":
        for batch in options.read(split):
            taken, left = sorted_out(batch, schema)
            counts["rows"] += taken.num_rows
            if left is not None:
                new = left.filter(pc.greater_equal(left.column("_offset"), bad_from))
                counts["bad"] += left.num_rows
                set_aside.append(new)
            yield taken

    files = tuple(iceberg_table.write_files(good.metadata, good.properties, rows()))
    bad_files: tuple[DataFile, ...] = ()
    if bad is not None:
        bad_files = tuple(iceberg_table.write_files(bad.metadata, bad.properties, set_aside))
    return Part(files=files, bad_files=bad_files, rows=counts["rows"], bad_rows=counts["bad"])


def sorted_out(batch: "pa.RecordBatch", schema: ValueSchema) -> "tuple[pa.RecordBatch, pa.RecordBatch | None]":
    """The batch's rows as the table has them, and the bad ones as theirs has them."""
    import pyarrow as pa

    names = ("topic", "partition", "offset", "timestamp", "key", "headers")
    fields = [*record_fields(), headers_field()]
    of_record = [batch.column(name).cast(field.type) for name, field in zip(names, fields, strict=True)]
    values = batch.column("value")
    if schema.format is ValueFormat.RAW:
        return pa.record_batch([*of_record, values], schema=pa.schema([*fields, *schema.fields()])), None
    taken, columns, left, reasons = _decoded(values, schema)
    whole = pa.record_batch(of_record, schema=pa.schema(fields))
    good = pa.record_batch(
        [*whole.take(pa.array(taken, pa.int64())).columns, *columns], schema=pa.schema(fields_of(schema))
    )
    if not left:
        return good, None
    indices = pa.array(left, pa.int64())
    bad = [*whole.take(indices).columns, values.take(indices), pa.array(reasons, pa.string())]
    return good, pa.record_batch(bad, schema=pa.schema(bad_fields()))


def _decoded(values: "pa.Array", schema: ValueSchema) -> "tuple[list[int], Sequence[pa.Array], list[int], list[str]]":
    """The indices and columns of good values, the indices and reasons of bad ones."""
    import pyarrow as pa

    decode, struct = schema.decoder(), pa.struct(schema.fields())
    taken: list[int] = []
    rows: list[dict[str, Any]] = []
    left: dict[int, str] = {}
    for index, value in enumerate(values.to_pylist()):
        try:
            if value is None:
                raise ValueError("the record has no value: a tombstone")
            rows.append(decode(value))
            taken.append(index)
        except ValueError as error:
            left[index] = str(error)
    does_not_fit = (pa.ArrowException, OverflowError, TypeError, ValueError)
    try:
        columns = pa.array(rows, struct).flatten()
    except does_not_fit:
        # One value that no column takes, such as a decimal with too many digits: find it.
        for index, row in zip(taken, rows, strict=True):
            try:
                pa.array([row], struct)
            except does_not_fit as error:
                left[index] = f"a field does not fit its column: {error}"
        kept = [(index, row) for index, row in zip(taken, rows, strict=True) if index not in left]
        taken = [index for index, _ in kept]
        columns = pa.array([row for _, row in kept], struct).flatten()
    order = sorted(left)
    return taken, columns, order, [left[index] for index in order]


if __name__ == "__main__":
    sys.exit(main())
