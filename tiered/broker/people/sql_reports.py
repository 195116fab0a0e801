"""This broker's reports to SQL, for people to SELECT: local segments and positions.

Owns the rhythm. Every broker reports the segments on its disk; only its leader reports a partition's position. Nothing
here is ever read to decide anything, so a lost report does no harm.
"""

from uuid import UUID

from sqlalchemy import Connection

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.meta import broker_reports
from tiered.meta.broker_reports import LocalSegmentRow, PartitionPosition


class SqlReports:
    """Writes the hot tier's segments and each partition's end to SQL, when they have changed."""

    def __init__(self, *, context: BrokerContext, topics: Topics) -> None:
        self._context = context
        self._topics = topics
        self._reported: dict[tuple[UUID, int], tuple[object, ...]] = {}
        self._first = True

    async def write(self) -> None:
        """Reports the partitions that changed since the last report. Raises MetadataUnavailable."""
        now_ms = self._context.clock.now_ms()
        changed = {
            key: (partition, state)
            for partition in self._topics.partitions()
            if self._reported.get(key := _key(partition)) != (state := _state(partition))
        }
        known = {_key(partition) for partition in self._topics.partitions()}
        gone = [key for key in self._reported if key not in known]
        if not (changed or gone or self._first):
            return
        segments = [each for partition, _ in changed.values() for each in _segments(partition)]
        positions = [
            PartitionPosition(
                topic_id=topic_id,
                partition=number,
                high_watermark=partition.high_watermark,
                log_end_offset=partition.log.log_end_offset,
            )
            for (topic_id, number), (partition, _) in changed.items()
            if partition.leadership is not None
        ]
        scope = None if self._first else [*changed, *gone]

        def write(conn: Connection) -> None:
            broker_reports.replace_local_segments(
                conn, broker_id=self._context.broker_id, of_partitions=scope, segments=segments, now_ms=now_ms
            )
            broker_reports.report_positions(conn, positions, now_ms=now_ms)

        await self._context.database.run(write)
        self._first = False
        self._reported.update({key: state for key, (_, state) in changed.items()})
        for key in gone:
            del self._reported[key]


def _key(partition: Partition) -> tuple[UUID, int]:
    return partition.topic_partition.topic_id, partition.topic_partition.partition


def _state(partition: Partition) -> tuple[object, ...]:
    log = partition.log
    leads = partition.leadership is not None
    return log.local_log_start_offset, log.log_end_offset, len(log.segments), partition.high_watermark, leads


def _segments(partition: Partition) -> list[LocalSegmentRow]:
    topic_id, number = _key(partition)
    return [
        LocalSegmentRow(
            topic_id=topic_id,
            partition=number,
            base_offset=segment.base_offset,
            end_offset=segment.end_offset,
            size_bytes=segment.size_bytes,
            closed=segment.closed,
            max_timestamp_ms=segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else None,
        )
        for segment in partition.log.segments
        if segment.end_offset > segment.base_offset
    ]
