"""Total retention of the partitions that this broker leads: carried out in rounds, and explained beforehand.

Owns the rounds and the watch on the clock. `rules.segments.retention` decides what goes, from values that are gathered
in one place for both: so an explanation is what the next round does, if nothing changes until then. Must never delete
by age while the clock is not trusted, nor anything at all while SQL cannot say what is pinned.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from sqlalchemy import Connection

from tiered.broker.context import BrokerContext
from tiered.broker.one_by_one import OneByOne
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.tiering import tier_plan
from tiered.broker.tiering.clock_watch import ClockWatch
from tiered.broker.tiering.segment_lifecycle import SegmentLifecycle
from tiered.config import TopicConfig
from tiered.errors import TieredError
from tiered.ids import TopicPartition
from tiered.meta import pins, segments
from tiered.meta.pins import HeldRanges
from tiered.meta.segments import RetiredObject
from tiered.rules.segments.clock_watch import Judgement
from tiered.rules.segments.retention import Pin, Retention, RetentionReason, Verdict, furthest_ahead, runs_of
from tiered.runtime import in_turns

__all__ = ["Explanation", "RetentionRounds", "RetiredObject"]

log = logging.getLogger(__name__)

MAX_RETIRED_TOLD = 1_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FUTURE_WARNED_FROM_MS = HOUR_MS
"""Times this far ahead of the broker's clock are worth a warning: the default of message.timestamp.after.max.ms."""
FUTURE_WARNINGS = 10
"""Partitions warned about in one round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What the next round would do to one partition, and why. `local` is about this broker's own copies. `retired` are
    objects that retention gave up and the store still holds, the next to go first, at most 1,000."""

    now_ms: int
    clock: Judgement
    pins: tuple[Pin, ...]
    decided: Retention
    local: Retention
    retired: tuple[RetiredObject, ...]


class RetentionRounds:
    """Retention of one broker."""

    def __init__(
        self, *, context: BrokerContext, topics: Topics, lifecycle: SegmentLifecycle, clock_watch: ClockWatch
    ) -> None:
        self._context = context
        self._lifecycle = lifecycle
        self._topics = topics
        self._clock_watch = clock_watch
        self._retiring = OneByOne("retention", counters=context.counters)
        self._deleting = OneByOne("local retention", counters=context.counters)
        self._future_warned: dict[TopicPartition, int] = {}
        """Per partition, the end offset up to which segments with records of the future were warned about."""

    # Rounds

    async def round(self) -> None:
        """Retires what every partition led here has too much of, then deletes local segments that may go."""
        partitions = list(self._topics.partitions())
        try:
            due = await self._due(partitions)
            if due:
                await self._retire(due)
        finally:
            await self._deleting.run(partitions, self._lifecycle.delete_local, name=attrgetter("name"))

    async def _due(self, partitions: Sequence[Partition]) -> list[Partition]:
        """Partitions that would lose offsets if nothing were pinned: mostly none, so SQL need not be asked."""
        due = []
        warnings = 0
        warned = self._future_warned.items()
        self._future_warned = {where: end for where, end in warned if self._topics.hosted(where) is not None}
        clock = self._clock_watch.look()
        async for partition in in_turns(partitions):
            if partition.leadership is None or not tier_plan.has_retention(partition):
                continue
            now_ms = self._clock_watch.age_now_ms()
            try:
                if clock.is_trusted:
                    tier_plan.roll_if_expired(partition, now_ms)
            except (TieredError, OSError) as error:
                _failed(partition, error)
                continue
            decided = self._decide(partition, (), clock, now_ms)
            if decided.delete_before_offset > partition.log_start_offset:
                due.append(partition)
            future = furthest_ahead(decided.verdicts, now_ms + FUTURE_WARNED_FROM_MS)
            if clock.is_trusted and future is not None and warnings < FUTURE_WARNINGS:
                warnings += self._warn_of_future(partition, future, now_ms)
        return due

    def _warn_of_future(self, partition: Partition, segment: Verdict, now_ms: int) -> bool:
        """Warns once about each segment. Whether it did."""
        where = partition.topic_partition
        if segment.end_offset <= self._future_warned.get(where, 0):
            return False
        self._future_warned[where] = segment.end_offset
        log.warning(
            "%s: offsets %d to %d have a record whose time is %.1f days ahead of this broker's clock. Retention by "
            "time keeps them, and everything behind them, until that time plus retention.ms. Delete them with "
            "`tiered topics delete-records`, or limit the topic by retention.bytes. message.timestamp.after.max.ms "
            "refuses such records",
            partition.name,
            segment.base_offset,
            segment.end_offset - 1,
            (segment.newest_ms - now_ms) / DAY_MS,
        )
        return True

    async def _retire(self, due: Sequence[Partition]) -> None:
        """Raises MetadataUnavailable when SQL does not say what is pinned; then nothing was retired."""
        topic_ids = {partition.topic_partition.topic_id for partition in due}
        held = await self._context.database.read(lambda conn: pins.held(conn, topic_ids))
        clock = self._clock_watch.look(held.at_ms)

        async def retire(partition: Partition) -> None:
            now_ms = self._clock_watch.age_now_ms()
            decided = self._decide(partition, pins_of(partition, held, now_ms), clock, now_ms)
            wanted = decided.delete_before_offset
            if wanted <= partition.log_start_offset or partition.leadership is None:
                return
            log.info(
                "%s: retention moves the log start from %d to %d: %d offsets go, %s",
                partition.name,
                partition.log_start_offset,
                wanted,
                wanted - partition.log_start_offset,
                _what_goes(decided, partition.config, now_ms),
            )
            # Asks once more what is pinned, in the transaction that retires.
            await self._lifecycle.move_log_start(partition, wanted)

        await self._retiring.run(due, retire, name=attrgetter("name"))

    def _decide(self, partition: Partition, held: Sequence[Pin], clock: Judgement, now_ms: int) -> Retention:
        return tier_plan.total_retention(
            partition,
            now_ms,
            pins=held,
            clock_is_trusted=clock.is_trusted,
            max_segments=self._context.settings.tiering.tiered_retention_max_segments,
        )

    # Explaining

    async def explain(self, partition: Partition) -> Explanation:
        """What the next round would do to a partition that this broker leads. Changes nothing.

        The active segment is not closed for it, which a round does once it is too old as a whole. Raises
        MetadataUnavailable.
        """
        where = partition.topic_partition

        def ask(conn: Connection) -> tuple[HeldRanges, tuple[RetiredObject, ...]]:
            found = segments.list_retired(conn, where.topic_id, where.partition, limit=MAX_RETIRED_TOLD)
            return pins.held(conn, [where.topic_id]), found

        held, gone = await self._context.database.read(ask)
        clock, now_ms = self._clock_watch.look(held.at_ms), self._clock_watch.age_now_ms()
        found = pins_of(partition, held, now_ms)
        decided = self._decide(partition, found, clock, now_ms)
        local = tier_plan.local_retention(partition, now_ms)
        return Explanation(now_ms=now_ms, clock=clock, pins=found, decided=decided, local=local, retired=gone)


def pins_of(partition: Partition, held: HeldRanges, now_ms: int) -> tuple[Pin, ...]:
    """The pins of one partition, whose ends the database's clock tells, as this broker's clock would tell them."""
    where = partition.topic_partition
    return tuple(
        Pin(
            name=each.label,
            start_offset=each.start_offset,
            end_offset=each.end_offset,
            expires_at_ms=None if each.expires_in_ms is None else now_ms + each.expires_in_ms,
        )
        for each in held.ranges.get((where.topic_id, where.partition), ())
    )


def _what_goes(decided: Retention, config: TopicConfig, now_ms: int) -> str:
    """The segments that a round deletes, and the setting that says so."""
    words = []
    for run in runs_of(decided.verdicts):
        what = f"{run.segments} segment{'' if run.segments == 1 else 's'} of {run.size_bytes} bytes"
        if run.why is RetentionReason.EXPIRED:
            age_h = (now_ms - run.newest_ms) / HOUR_MS
            words.append(f"{what} whose newest record is {age_h:.1f} h old (retention.ms={config.retention_ms})")
        elif run.why is RetentionReason.OVERSIZE:
            words.append(f"{what} beyond the size of the log (retention.bytes={config.retention_bytes})")
    return " and ".join(words)


def _failed(partition: Partition, error: TieredError | OSError) -> None:
    log.warning("%s: retention could not be applied, it is tried again: %s", partition.name, error)
