"""One batch read: from options to splits on the driver, from a split to rows in a task.

Owns the order of planning (offsets first, then splits) and what happens when something is missing. Must never
plan in a task: a split carries all it needs.
"""

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_tiered.holding import NOTHING_HELD, BatchHold, HeldPins, with_snapshot
from pyspark_tiered.log_source import LogSource, open_log_source
from pyspark_tiered.options import Isolation, Options
from pyspark_tiered.plan import (
    NO_BOUNDS,
    ColdSplit,
    FilterBounds,
    OffsetRange,
    Split,
    SplitSizes,
    bounded,
    fit,
    parts,
    splits,
    uncovered,
)
from pyspark_tiered.store_end import read_to_the_end, report_store_end
from pyspark_tiered.worker import acknowledge_at_once, keep_freed_memory, settle
from tiered.errors import OffsetOutOfRange
from tiered.formats.checkpoint import CommittedSegment

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

log = logging.getLogger(__name__)

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class SplitPartition(InputPartition):
    """A split on its way to a task."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The options that a task needs."""

    options: Options
    columns: tuple[str, ...]
    held: HeldPins = NOTHING_HELD

    def read(self, split: Split) -> Iterator["pa.RecordBatch"]:
        """The rows of one split; what is held for the query is renewed meanwhile."""
        is_worker = TaskContext.get() is not None
        if is_worker:
            keep_freed_memory()
        with self.held.renewed():
            yield from self._read(split)
        if is_worker:
            settle()
            acknowledge_at_once()

    def _read(self, split: Split) -> Iterator["pa.RecordBatch"]:
        pure = os.environ.get("TIERED_PURE") == "1"
        read_committed = self.options.isolation is Isolation.READ_COMMITTED
        if isinstance(split, ColdSplit):
            from pyspark_tiered.cold_read import read_cold, store_of

            assert self.options.store is not None, "a cold split comes from a store"
            store = store_of(self.options.store)
            return read_cold(
                store,
                split,
                columns=self.columns,
                read_committed=read_committed,
                pure=pure,
                skip_bad_batches=not self.options.fail_on_bad_batch,
            )
        from pyspark_tiered.tail_read import read_tail_split

        return read_tail_split(self.options, split, columns=self.columns, pure=pure)


class BatchReader(DataSourceReader):
    """Spark plans and reads with this. Pickled to the tasks after `partitions`."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self._task = TaskOptions(options=options, columns=columns)
        self._bounds = NO_BOUNDS

    def partitions(self) -> list[InputPartition]:
        options = with_snapshot(self._task.options)
        hold = BatchHold(options.catalog, options.client.security)
        with open_log_source(options) as source:
            try:
                ranges = batch_ranges(source, options, self._bounds, hold)
                planned = plan_ranges(source, options, ranges, self._bounds)
                self._task = replace(self._task, held=hold.keep(ranges))
            except BaseException:
                hold.give_up()
                raise
        return [SplitPartition(split) for split in planned]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        # Spark replaces an empty plan by one partition without a value.
        return self._task.read(partition.split) if isinstance(partition, SplitPartition) else iter(())


class PushdownReader(BatchReader):
    """A reader that takes filters as bounds, for sessions that allow it: Spark 4.1 and newer."""

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802 - Spark's name
        # Spark 4.0 has no filters to import, and asks for none.
        from pyspark_tiered.filters import bounds_of

        self._bounds = bounds_of(filters)
        return filters


def reader_for(options: Options, columns: tuple[str, ...]) -> BatchReader:
    """The reader for this session.

    With `spark.sql.python.filterPushdown.enabled=false`, the default, Spark refuses a reader that overrides
    `pushFilters`, and it tells nobody the setting. But only where it is true does it start the worker that asks
    for filters, so that worker's presence in this process is the answer.
    """
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    asked = _PUSHDOWN_WORKER in sys.modules or getattr(spec, "name", None) == _PUSHDOWN_WORKER
    return (PushdownReader if asked else BatchReader)(options, columns)


def plan_batch(source: LogSource, options: Options, bounds: FilterBounds = NO_BOUNDS) -> list[Split]:
    """The splits of a whole batch query. Raises `InvalidConfig`, `OffsetOutOfRange` (data loss) and store errors."""
    return plan_ranges(source, options, batch_ranges(source, options, bounds), bounds)


def batch_ranges(
    source: LogSource, options: Options, bounds: FilterBounds = NO_BOUNDS, hold: BatchHold | None = None
) -> list[OffsetRange]:
    """The range of each partition that a batch query reads. Raises as `plan_batch` and `hold`."""
    views = source.views()
    if hold is not None:
        views = hold.take_all(views)
    starts = source.resolve(options.starting, views, option="startingOffsets", no_match=options.no_timestamp_match)
    ends = source.resolve(options.ending, views, option="endingOffsets", no_match="latest")
    ranges: list[OffsetRange] = []
    lost: list[str] = []
    for key, view in views.items():
        fitted, missing = fit(view, starts[key], max(starts[key], ends[key]))
        ranges.append(fitted)
        lost += missing
    report_loss(lost, fail=options.fail_on_data_loss)
    report_store_end(read_to_the_end(views, ends, options.ending, bounds=bounds), fail=options.fail_on_incomplete_store)
    return bounded(ranges, bounds)


def plan_ranges(
    source: LogSource, options: Options, ranges: Sequence[OffsetRange], bounds: FilterBounds = NO_BOUNDS
) -> list[Split]:
    """The splits of ranges that are known to exist. Raises `OffsetOutOfRange` where the checkpoints have a hole."""
    cold: list[tuple[OffsetRange, Sequence[CommittedSegment]]] = []
    tail: list[OffsetRange] = []
    lost: list[str] = []
    for each in ranges:
        below, above = parts(each)
        if below is not None:
            segments = source.segments(below)
            lost += [
                f"partition {each.view}: offsets {start} to {end - 1} are in no segment of the store's checkpoint"
                for start, end in uncovered(segments, below.start_offset, below.end_offset)
            ]
            cold.append((below, segments))
        if above is not None:
            tail.append(above)
    report_loss(lost, fail=options.fail_on_data_loss)
    sizes = SplitSizes(
        split_bytes=options.split_bytes,
        open_cost_bytes=options.open_cost_bytes,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    return splits(cold, tail, sizes, bounds)


def report_loss(lost: Sequence[str], *, fail: bool) -> None:
    """Nothing when nothing is missing; otherwise `OffsetOutOfRange`, or one warning each where a job goes on anyway."""
    if not lost:
        return
    if fail:
        raise OffsetOutOfRange("; ".join(lost) + ". Choose other offsets, or set failOnDataLoss=false to read the rest")
    for sentence in lost:
        log.warning("%s; reading the rest, because failOnDataLoss is false", sentence)
