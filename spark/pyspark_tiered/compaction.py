"""Spark's part in compaction of the cold tier: to find the newest offset of each key, and rewrite segments by it.

Owns how both are spread. A scan reads keys and offsets alone; Spark groups them, on disk where there are many. The
groups come back segment by segment, so that a task needs a bit for each offset of the one that it rewrites, and no
keys. Must never ask SQL: orders come from the driver, and results go back there.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_tiered.cold_read import read_cold, store_of
from pyspark_tiered.job_arguments import SPLITS_DDL
from pyspark_tiered.options import DEFAULT_OPEN_COST_BYTES
from pyspark_tiered.plan import ColdSplit
from tiered.cold.bucket.rewrite import RewriteOrder, Rewritten, rewrite
from tiered.errors import Corrupt, CorruptObject, StoreRefused, TieredError
from tiered.formats.segment_check import ExpectedSegment

if TYPE_CHECKING:
    import pyarrow as pa

SCAN_BYTES = 64 << 20
"""What a task of the scan reads: a part of a segment, or several of them. Each counts what opening it costs, too."""
TASKS_A_CORE = 4
"""Of a wave, so that cores that are done with small segments have something left to do."""
LONG_KEY_BYTES = 32
"""A key as long as a SHA-256, or longer, is grouped by that: no shorter key can be taken for one."""
_NO_OFFSET = -1
_KEYS_DDL = "partition int, segment int, key binary, offset long"
_RESULTS_DDL = (
    "segment int, size_bytes long, log_bytes long, min_timestamp_ms long, max_timestamp_ms long, record_count long, "
    "max_timestamp_is_proven boolean, root_sha256 string, removed_records long, error string"
)
_OF_ONE_SEGMENT = (Corrupt, StoreRefused)
"""Errors that say nothing of other segments, and that another try does not mend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedSegment:
    """A segment to look for keys in. `number` goes up with the offsets of a partition, `partition` is any number of its
    own: both are the driver's."""

    number: int
    partition: int
    place: ExpectedSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPiece:
    """A range of one segment's offsets, as a task of the scan reads it."""

    number: int
    partition: int
    split: ColdSplit


def newest_offsets(spark: SparkSession, store_url: str, scanned: Sequence[ScannedSegment]) -> DataFrame:
    """Columns `segment` and `offset`: where each key of each partition was seen last. Aborted transactions count for
    nothing, and neither do records without a key. Kept on the executors' disks: what replaces the segments makes it
    impossible to find out again. A segment that cannot be read ends nothing: see `unreadable`."""
    tasks = list(scan_tasks(scanned))
    numbered = spark.sparkContext.parallelize([(number,) for number in range(len(tasks))], max(1, len(tasks)))

    def scan(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in tasks[number]:
                    try:
                        yield from _keys_of(store_url, piece)
                    except _OF_ONE_SEGMENT:
                        yield _unreadable(piece)

    keys = spark.createDataFrame(numbered, SPLITS_DDL).mapInArrow(scan, _KEYS_DDL)
    key = f.when(f.length("key") < LONG_KEY_BYTES, f.col("key")).otherwise(f.unhex(f.sha2("key", 256)))
    newest = keys.groupBy("partition", key.alias("key")).agg(
        # Segments' numbers go up with offsets, so that the two greatest belong together.
        f.max("segment").alias("segment"),
        f.max("offset").alias("offset"),
    )
    return newest.select("segment", "offset").persist(StorageLevel.DISK_ONLY)


def unreadable(newest: DataFrame) -> set[int]:
    """Numbers of segments that could not be read, one of each partition that has any."""
    return {row["segment"] for row in newest.where(f.col("offset") == _NO_OFFSET).select("segment").collect()}


def rewritten(
    spark: SparkSession, store_url: str, newest: DataFrame, orders: Mapping[int, RewriteOrder]
) -> dict[int, Rewritten | TieredError | None]:
    """The results of the orders, by segment number; None where nothing changed. A task takes one, or several where
    there are many."""
    by_number = dict(orders)

    def write(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        rows = (row for batch in batches for row in zip(*(each.to_pylist() for each in batch.columns), strict=True))
        for number, some in groupby(rows, key=itemgetter(0)):
            if number in by_number:
                offsets = (offset for _, offset in some if offset != _NO_OFFSET)
                try:
                    with tempfile.TemporaryFile(prefix="tiered-compact-") as scratch:
                        done = rewrite(store_of(store_url), by_number[number], offsets, scratch)
                except _OF_ONE_SEGMENT as error:
                    yield _result(number, None, str(error))
                else:
                    yield _result(number, done)

    # A segment of which nothing stays is to be rewritten too.
    all_of_them = spark.createDataFrame([(number, _NO_OFFSET) for number in by_number], "segment int, offset long")
    wanted = newest.where(f.col("segment").between(min(by_number), max(by_number))).union(all_of_them)
    tasks = min(len(by_number), TASKS_A_CORE * spark.sparkContext.defaultParallelism)
    frame = wanted.repartition(tasks, "segment").sortWithinPartitions("segment", "offset")
    return {row["segment"]: _outcome(row.asDict()) for row in frame.mapInArrow(write, _RESULTS_DDL).collect()}


def _outcome(row: dict[str, Any]) -> Rewritten | TieredError | None:
    error = row.pop("error")
    if error is not None:
        return CorruptObject(error)
    return None if row["root_sha256"] is None else Rewritten(**{name: row[name] for name in row if name != "segment"})


def scan_tasks(scanned: Sequence[ScannedSegment]) -> Iterator[list[ScanPiece]]:
    """What each task of the scan reads: neighbours that cost `SCAN_BYTES` together, large ones in several pieces."""
    task: list[ScanPiece] = []
    cost_bytes = 0
    for segment in scanned:
        row = segment.place.segment
        offset_count = row.end_offset - row.base_offset
        count = min(-(-row.log_bytes // SCAN_BYTES), offset_count)
        piece_bytes = row.log_bytes // count + DEFAULT_OPEN_COST_BYTES
        for number in range(count):
            if task and cost_bytes + piece_bytes > SCAN_BYTES:
                yield task
                task, cost_bytes = [], 0
            split = _split(
                segment.place,
                row.base_offset + offset_count * number // count,
                row.base_offset + offset_count * (number + 1) // count,
            )
            task.append(ScanPiece(number=segment.number, partition=segment.partition, split=split))
            cost_bytes += piece_bytes
    if task:
        yield task


def _split(place: ExpectedSegment, start_offset: int, end_offset: int) -> ColdSplit:
    return ColdSplit(
        topic=place.topic,
        topic_id=place.topic_id,
        partition=place.partition,
        start_offset=start_offset,
        end_offset=end_offset,
        segments=(place.segment,),
    )


def _keys_of(store_url: str, piece: ScanPiece) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    schema = pa.schema(
        [("partition", pa.int32()), ("segment", pa.int32()), ("key", pa.binary()), ("offset", pa.int64())]
    )
    for batch in read_cold(
        store_of(store_url), piece.split, columns=("key", "offset"), read_committed=True, skip_bad_batches=True
    ):
        keyed = batch.filter(batch.column(0).is_valid())
        count = keyed.num_rows
        constants = [pa.repeat(pa.scalar(each, pa.int32()), count) for each in (piece.partition, piece.number)]
        if count:
            yield pa.RecordBatch.from_arrays([*constants, *keyed.columns], schema=schema)


def _unreadable(piece: ScanPiece) -> "pa.RecordBatch":
    import pyarrow as pa

    names = ["partition", "segment", "key", "offset"]
    columns = [
        pa.array([piece.partition], pa.int32()),
        pa.array([piece.number], pa.int32()),
        pa.array([None], pa.binary()),
        pa.array([_NO_OFFSET], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _result(number: int, done: Rewritten | None, error: str | None = None) -> "pa.RecordBatch":
    import pyarrow as pa

    integers = ("size_bytes", "log_bytes", "min_timestamp_ms", "max_timestamp_ms", "record_count")
    columns = [pa.array([number], pa.int32())]
    columns += [pa.array([None if done is None else getattr(done, name)], pa.int64()) for name in integers]
    columns.append(pa.array([None if done is None else done.max_timestamp_is_proven], pa.bool_()))
    columns.append(pa.array([None if done is None else done.root_sha256], pa.string()))
    columns.append(pa.array([None if done is None else done.removed_records], pa.int64()))
    columns.append(pa.array([error], pa.string()))
    names = ["segment", *integers, "max_timestamp_is_proven", "root_sha256", "removed_records", "error"]
    return pa.RecordBatch.from_arrays(columns, names=names)
