"""A stream: micro-batches that begin years back in the bucket and reach the tail without a seam.

Owns offsets per micro-batch; Spark's checkpoint keeps them, in the JSON of Spark's Kafka source, with the topics' ids.
Must keep nothing else between micro-batches: a query restarts from two vectors of offsets alone.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_tiered.batch import SplitPartition, TaskOptions, plan_ranges, report_loss
from pyspark_tiered.holding import StreamHold
from pyspark_tiered.log_source import open_log_source
from pyspark_tiered.options import Options
from pyspark_tiered.plan import OffsetRange, OffsetVector, PartitionView, TopicAndPartition, fit, limited
from pyspark_tiered.store_end import report_store_end
from tiered.errors import OffsetOutOfRange
from tiered.runtime import SystemClock

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_tiered.log_source import LogSource

OffsetJson = dict[str, dict[str, Any]]

TOPIC_IDS = "topic ids"
"""Where the checkpoint keeps them, beside the topics: no topic can have this name. By its id a topic that was deleted
and created again is known for another, also after a restart."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark asks this for offsets on the driver, and for rows in tasks (there a copy of it)."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self._task = TaskOptions(options=options, columns=columns)
        self._source: LogSource | None = None
        self._target: dict[TopicAndPartition, int] | None = None
        self._latest: dict[TopicAndPartition, int] = {}
        self._triggered_ms: float | None = None
        self._hold: StreamHold | None = None
        self._reported: set[str] = set()

    def __getstate__(self) -> dict[str, object]:
        # A task reads what its split says: connections and the state of the query stay on the driver.
        return {
            "_task": self._task,
            "_source": None,
            "_target": None,
            "_latest": {},
            "_triggered_ms": None,
            "_hold": None,
            "_reported": set(),
        }

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    def initialOffset(self) -> OffsetJson:  # noqa: N802 - Spark's name
        options = self._task.options
        views = self._views()
        starts = self._opened().resolve(
            options.starting, views, option="startingOffsets", no_match=options.no_timestamp_match
        )
        return to_json(starts, _ids_in(views))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._task.options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {key: view.end_offset for key, view in self._views().items()}

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802
        starts = from_json(start)
        views = self._views()
        self._complain_of_vanished(starts, views)
        starts = self._without_recreated(starts, ids_of(start), views)
        self._keep(starts, views)
        self._latest = {key: view.end_offset for key, view in views.items()}
        ends, lost = dict(starts), []
        for key, since in starts.items():
            view = views.get(key)
            if view is None:
                continue
            if view.end_offset < since:
                lost.append(f"partition {view}: the stream is at offset {since}, the log ends at {view.end_offset}")
            ends[key] = max(since, min(view.end_offset, (self._target or {}).get(key, view.end_offset)))
        report_loss(lost, fail=self._task.options.fail_on_data_loss)
        if self._target is None and self._waits(sum(ends[key] - starts[key] for key in starts)):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = limited(starts, ends, limit.max_rows)
        for key in views.keys() - starts.keys():
            # A new partition enters with its earliest offset and without rows, so that the checkpoint knows where
            # it began; the next micro-batch reads it.
            if self._target is None or key in self._target:
                ends[key] = views[key].log_start_offset
        return to_json(ends, ids_of(start) | _ids_in(views))

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802
        return to_json(self._latest) if self._latest else None

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        starts, ends = from_json(start), from_json(end)
        source = self._opened()
        views = self._views()
        self._complain_of_vanished(ends, views)
        ends = self._without_recreated(ends, ids_of(end), views)
        starts = {key: offset for key, offset in starts.items() if key in ends}
        self._keep(ends | starts, views)
        ranges: list[OffsetRange] = []
        lost: list[str] = []
        for key, until in ends.items():
            view, since = views.get(key), starts.get(key, until)
            if view is None or since >= until:
                continue
            fitted, missing = fit(view, since, until)
            lost += missing
            if fitted.start_offset < fitted.end_offset:
                ranges.append(fitted)
        report_loss(lost, fail=self._task.options.fail_on_data_loss)
        return [SplitPartition(split) for split in plan_ranges(source, self._task.options, ranges)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return self._task.read(partition.split) if isinstance(partition, SplitPartition) else iter(())

    def stop(self) -> None:
        if self._hold is not None:
            self._hold.close()
            self._hold = None
        if self._source is not None:
            self._source.close()
            self._source = None

    def _keep(self, positions: OffsetVector, views: dict[TopicAndPartition, PartitionView]) -> None:
        """Holds what the stream has not read, where it has a metadata store."""
        if not self._task.options.catalog:
            return
        if self._hold is None:
            self._hold = StreamHold(self._task.options.catalog, self._task.options.client.security)
        self._hold.keep(positions, views)

    def _waits(self, offsets: int) -> bool:
        """Whether a micro-batch of so few offsets is left for later: `minOffsetsPerTrigger`."""
        options = self._task.options
        least, now_ms = options.min_offsets_per_trigger, SystemClock().monotonic_ms()
        is_late = self._triggered_ms is None or now_ms - self._triggered_ms >= options.max_trigger_delay_ms
        if least is not None and offsets < least and not is_late:
            return True
        self._triggered_ms = now_ms
        return False

    def _views(self) -> dict[TopicAndPartition, PartitionView]:
        """The partitions as they are now. The first time, says what the store alone leaves out of their topics."""
        views = self._opened().views()
        new = [view for view in views.values() if view.topic not in self._reported]
        report_store_end(new, fail=self._task.options.fail_on_incomplete_store)
        self._reported.update(view.topic for view in new)
        return views

    def _opened(self) -> "LogSource":
        if self._source is None:
            self._source = open_log_source(self._task.options)
        return self._source

    def _complain_of_vanished(self, known: OffsetVector, views: dict[TopicAndPartition, PartitionView]) -> None:
        gone = sorted(f"{topic}-{partition}" for topic, partition in known if (topic, partition) not in views)
        if gone:
            self._lost(f"{', '.join(gone)} of this stream's checkpoint are not there any more: was the topic deleted?")

    def _without_recreated(
        self, known: dict[TopicAndPartition, int], ids: Mapping[str, str], views: dict[TopicAndPartition, PartitionView]
    ) -> dict[TopicAndPartition, int]:
        """The position of topics that are still the same: a recreated topic begins like one that was never seen."""
        now = _ids_in(views)
        others = sorted(topic for topic, topic_id in ids.items() if now.get(topic, topic_id) != topic_id)
        for topic in others:
            self._lost(f"topic {topic} was deleted and created again: the stream's offsets are those of the old one")
        return {key: offset for key, offset in known.items() if key[0] not in others}

    def _lost(self, sentence: str) -> None:
        report_loss([sentence], fail=self._task.options.fail_on_data_loss)


def to_json(offsets: OffsetVector, ids: Mapping[str, str] | None = None) -> OffsetJson:
    """`{"topic": {"0": 23}}` and the topics' ids, sorted, so that equal vectors are equal texts."""
    found: OffsetJson = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    kept = {topic: topic_id for topic, topic_id in sorted((ids or {}).items()) if topic in found}
    return found | {TOPIC_IDS: kept} if kept else found


def ids_of(offsets: OffsetJson) -> dict[str, str]:
    """The ids that `to_json` wrote; none in a checkpoint of an older version, or of Spark's Kafka source."""
    ids = offsets.get(TOPIC_IDS)
    return {str(topic): str(topic_id) for topic, topic_id in ids.items()} if isinstance(ids, dict) else {}


def _ids_in(views: Mapping[TopicAndPartition, PartitionView]) -> dict[str, str]:
    return {topic: str(view.topic_id) for (topic, _), view in views.items() if view.topic_id is not None}


def from_json(offsets: OffsetJson) -> dict[TopicAndPartition, int]:
    """The vector that `to_json` wrote. Raises `OffsetOutOfRange` when it is no such thing."""
    try:
        return {
            (topic, int(partition)): int(offset)
            for topic, partitions in offsets.items()
            if topic != TOPIC_IDS
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise OffsetOutOfRange(
            f"this is no offset of a tiered stream: {offsets!r}; use another checkpoint location"
        ) from error
