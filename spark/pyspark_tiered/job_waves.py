"""The work of a job's run: everything from start to end, cut into waves, each done before the next begins.

Owns where waves end: at segments' ends below the cold end, after so many offsets above it. A job that stops between two
waves knows by offsets how far it came. Must never cut within a segment: a split may be cut by bytes there, and bytes
have no offsets before they are read.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark_tiered.batch import plan_ranges, report_loss
from pyspark_tiered.holding import BatchHold
from pyspark_tiered.log_source import LogSource
from pyspark_tiered.options import Options
from pyspark_tiered.plan import TAIL_SPLIT_RECORDS, OffsetRange, OffsetVector, Split, TopicAndPartition, fit, parts
from pyspark_tiered.store_end import read_to_the_end, report_store_end

WAVE_BYTES = 512 << 20
"""Of each partition, before another wave begins; a larger segment is a wave of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Neighbouring offsets of each partition that has some left. `splits` keep a partition's order."""

    ranges: tuple[OffsetRange, ...]
    splits: tuple[Split, ...]

    def by_partition(self) -> list[list[Split]]:
        """The splits of each partition, in order of offsets."""
        found: dict[TopicAndPartition, list[Split]] = {}
        for split in self.splits:
            found.setdefault((split.topic, split.partition), []).append(split)
        return list(found.values())


@contextmanager
def held_ranges(source: LogSource, options: Options, begun: OffsetVector | None = None) -> Iterator[list[OffsetRange]]:
    """The work to do: from the options' start, or from where `begun` has a partition, to the options' end.

    Where the options name a metadata store, retention leaves all of it until the block ends. Raises `InvalidConfig`,
    `OffsetOutOfRange` (data loss), store errors, and what `PinDoor` raises.
    """
    hold = BatchHold(options.catalog, options.client.security)
    try:
        ranges = _ranges(source, options, begun or {}, hold)
        with hold.keep(ranges).renewed():
            yield ranges
    finally:
        hold.give_up()


def _ranges(source: LogSource, options: Options, begun: OffsetVector, hold: BatchHold) -> list[OffsetRange]:
    views = hold.take_all(source.views())
    starts = source.resolve(options.starting, views, option="startingOffsets", no_match=options.no_timestamp_match)
    ends = source.resolve(options.ending, views, option="endingOffsets", no_match="latest")
    ranges: list[OffsetRange] = []
    lost: list[str] = []
    for key, view in views.items():
        start = begun.get(key, starts[key])
        fitted, missing = fit(view, start, max(start, ends[key]))
        ranges.append(fitted)
        lost += missing
    report_loss(lost, fail=options.fail_on_data_loss)
    report_store_end(
        read_to_the_end(views, ends, options.ending),
        fail=options.fail_on_incomplete_store,
        brokers_option="--bootstrap",
    )
    return ranges


def waves_of(
    source: LogSource, options: Options, ranges: Sequence[OffsetRange], *, wave_bytes: int = WAVE_BYTES
) -> Iterator[Wave]:
    """The ranges in waves; planned one after the other, so that the next is planned when the last is done."""
    left = [each for each in ranges if each.start_offset < each.end_offset]
    while left:
        now = [_first_part(source, each, wave_bytes) for each in left]
        yield Wave(ranges=tuple(now), splits=tuple(plan_ranges(source, options, now)))
        left = [
            OffsetRange(view=whole.view, start_offset=part.end_offset, end_offset=whole.end_offset)
            for whole, part in zip(left, now, strict=True)
            if part.end_offset < whole.end_offset
        ]


def _first_part(source: LogSource, whole: OffsetRange, wave_bytes: int) -> OffsetRange:
    below, above = parts(whole)
    size_bytes = 0
    for segment in source.segments(below) if below is not None else ():
        if size_bytes and size_bytes + segment.log_bytes > wave_bytes:
            return OffsetRange(view=whole.view, start_offset=whole.start_offset, end_offset=segment.base_offset)
        size_bytes += segment.log_bytes
    end_offset = whole.end_offset
    if above is not None:
        end_offset = min(end_offset, above.start_offset + TAIL_SPLIT_RECORDS)
    return OffsetRange(view=whole.view, start_offset=whole.start_offset, end_offset=end_offset)
