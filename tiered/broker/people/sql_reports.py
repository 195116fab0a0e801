"""This broker's reports to SQL, for people to SELECT: local segments and positions.

Owns the rhythm. Every broker reports the segments on its disk; only its leader reports a partition's position. Nothing
here is ever read to decide anything, so a lost report does no harm.
"""

from collections.abc import Iterable

from sqlalchemy import Connection

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.tiering.tier_plan import disk_only_since_ms
from tiered.ids import TopicPartition
from tiered.meta import broker_reports
from tiered.meta.broker_reports import LocalSegmentRow, PartitionPosition


class SqlReports:
    """Writes the hot tier's segments and each partition's end to SQL, when they have changed."""

    def __init__(self, *, context: BrokerContext, topics: Topics) -> None:
        self._context = context
        self._topics = topics
        self._reported: dict[TopicPartition, tuple[object, ...]] = {}
        self._noted: set[TopicPartition] = set()
        """Those that may be other than reported."""
        self._first = True

    def note(self, partitions: Iterable[Partition]) -> None:
        """Something happened to them, or they are here no more."""
        self._noted.update(each.topic_partition for each in partitions)

    async def write_all(self) -> None:
        """As `write`, whether or not anybody noted what has happened."""
        self.note(self._topics.partitions())
        await self.write()

    async def write(self) -> None:
        """Reports the noted partitions, if they are other than reported. Raises MetadataUnavailable."""
        if self._first:
            self.note(self._topics.partitions())
        if not (self._noted or self._first):
            return
        now_ms = self._context.clock.now_ms()
        noted, self._noted = self._noted, set()
        hosted = {key: self._topics.hosted(key) for key in noted}
        changed = {
            key: (partition, state)
            for key, partition in hosted.items()
            if partition is not None and self._reported.get(key) != (state := _state(partition))
        }
        gone = [key for key, partition in hosted.items() if partition is None and key in self._reported]
        if not (changed or gone or self._first):
            return
        segments = [each for partition, _ in changed.values() for each in _segments(partition)]
        positions = [
            PartitionPosition(
                topic_id=key.topic_id,
                partition=key.partition,
                high_watermark=partition.high_watermark,
                log_end_offset=partition.log.log_end_offset,
                disk_only_since_ms=disk_only_since_ms(partition),
            )
            for key, (partition, _) in changed.items()
            if partition.leadership is not None
        ]
        scope = None if self._first else [(key.topic_id, key.partition) for key in (*changed, *gone)]

        def write(conn: Connection) -> None:
            broker_reports.replace_local_segments(
                conn, broker_id=self._context.broker_id, of_partitions=scope, segments=segments, now_ms=now_ms
            )
            broker_reports.report_positions(conn, positions, now_ms=now_ms)

        try:
            await self._context.database.run(write)
        except BaseException:
            self._noted |= noted
            raise
        self._first = False
        self._reported.update({key: state for key, (_, state) in changed.items()})
        for key in gone:
            del self._reported[key]


def _state(partition: Partition) -> tuple[object, ...]:
    log = partition.log
    leads = partition.leadership is not None
    since_ms = disk_only_since_ms(partition) if leads else None
    return log.local_log_start_offset, log.log_end_offset, len(log.segments), partition.high_watermark, leads, since_ms


def _segments(partition: Partition) -> list[LocalSegmentRow]:
    return [
        LocalSegmentRow(
            topic_id=partition.topic_partition.topic_id,
            partition=partition.topic_partition.partition,
            base_offset=segment.base_offset,
            end_offset=segment.end_offset,
            size_bytes=segment.size_bytes,
            closed=segment.closed,
            max_timestamp_ms=segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else None,
        )
        for segment in partition.log.segments
        if segment.end_offset > segment.base_offset
    ]
