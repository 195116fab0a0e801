"""This broker's reports to SQL, for people to SELECT: local segments and positions.

Owns the rhythm. Every broker reports the segments on its disk; only its leader reports a partition's position. Nothing
here is ever read to decide anything, so a lost report does no harm.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.tiering.tier_plan import disk_only_since_ms
from tiered.ids import TopicPartition
from tiered.meta import broker_reports
from tiered.meta.broker_reports import LocalSegmentRow, PartitionPosition
from tiered.runtime import in_turns

PARTITIONS_AT_ONCE = 100
"""Commits wait while SQLite writes a report: that of 10,000 partitions took 0.4 s."""


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
        noted, self._noted = self._noted, set()
        try:
            await self._write(noted)
        except BaseException:
            self._noted |= noted
            raise
        self._first = False

    async def _write(self, noted: Iterable[TopicPartition]) -> None:
        if self._first:  # Whatever the process before this one has reported.
            await self._send(_Report(), everything=True)
        report = _Report()
        async for key in in_turns(list(noted)):
            partition = self._topics.hosted(key)
            if partition is None:
                if key in self._reported:
                    report.gone.append(key)
            elif self._reported.get(key) != (state := _state(partition)):
                report.states[key] = state
                report.segments += _segments(partition)
                if partition.leadership is not None:
                    report.positions.append(_position(partition))
            if len(report.states) + len(report.gone) >= PARTITIONS_AT_ONCE:
                await self._send(report)
                report = _Report()
        if report.states or report.gone:
            await self._send(report)

    async def _send(self, report: "_Report", *, everything: bool = False) -> None:
        now_ms = self._context.clock.now_ms()
        scope = None if everything else [(key.topic_id, key.partition) for key in (*report.states, *report.gone)]

        def write(conn: Connection) -> None:
            broker_reports.replace_local_segments(
                conn, broker_id=self._context.broker_id, of_partitions=scope, segments=report.segments, now_ms=now_ms
            )
            broker_reports.report_positions(conn, report.positions, now_ms=now_ms)

        await self._context.database.run(write)
        self._reported.update(report.states)
        for key in report.gone:
            del self._reported[key]


@dataclass(slots=True)
class _Report:
    """What one transaction writes."""

    states: dict[TopicPartition, tuple[object, ...]] = field(default_factory=dict)
    gone: list[TopicPartition] = field(default_factory=list)
    segments: list[LocalSegmentRow] = field(default_factory=list)
    positions: list[PartitionPosition] = field(default_factory=list)


def _position(partition: Partition) -> PartitionPosition:
    return PartitionPosition(
        topic_id=partition.topic_partition.topic_id,
        partition=partition.topic_partition.partition,
        high_watermark=partition.high_watermark,
        log_end_offset=partition.log.log_end_offset,
        disk_only_since_ms=disk_only_since_ms(partition),
    )


def _state(partition: Partition) -> tuple[object, ...]:
    log = partition.log
    leads = partition.leadership is not None
    since_ms = disk_only_since_ms(partition) if leads else None
    return log.local_log_start_offset, log.log_end_offset, log.segment_count, partition.high_watermark, leads, since_ms


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
