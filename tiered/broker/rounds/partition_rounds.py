"""Periodic work on the partitions of this broker: rolling, flushing, uploads, producers.

Owns the rounds, and when a partition has its next turn: what is left undone, or will be due, is due again, and nothing
else is looked at. Rules and partitions decide what is due. Must never skip a partition because another failed.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial
from operator import attrgetter

from tiered.broker.context import BrokerContext
from tiered.broker.one_by_one import OneByOne
from tiered.broker.partitions.agenda import AT_ONCE, PartitionAgenda
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.people.sql_reports import SqlReports
from tiered.broker.tiering.upload_pipeline import UploadPipeline
from tiered.config.topic import UNLIMITED
from tiered.errors import LogDirFailed, TieredError
from tiered.rules.pacing.early_closes import EarlyClosesState
from tiered.rules.partition.producer_state import most_each
from tiered.rules.partition.rolling import NEVER_MS
from tiered.runtime import in_turns

log = logging.getLogger(__name__)

MAX_WAITING_FOR_UPLOAD = 10
"""While so many closed segments wait, to close another would bring nothing into the store any sooner."""
QUIET_DISK_MS = 1_000
"""The disk is looked at so often while nothing happens to any partition: only others can fill it then."""


class PartitionRounds:
    """Rounds over the partitions of one broker."""

    def __init__(
        self,
        *,
        agenda: PartitionAgenda,
        context: BrokerContext,
        disk_failed: Callable[[Partition], None],
        reports: SqlReports,
        topics: Topics,
        upload_pipeline: UploadPipeline,
    ) -> None:
        self._agenda = agenda
        self._context = context
        self._disk_failed = disk_failed
        self._reports = reports
        self._topics = topics
        self._upload_pipeline = upload_pipeline
        self._disk_looked_at_ms = float("-inf")
        self._looking = OneByOne("looking at partitions", counters=context.counters)
        self._early = EarlyClosesState()
        """Partitions whose active segment has been on disks alone for too long."""
        self._may_have_producers = True
        """Something was looked at since the producers were counted."""

    async def look(self) -> None:
        """Rolls what is due, begins uploads, gives up replicas whose disk failed, flushes."""
        now_ms = self._context.clock.now_ms()
        if not self._agenda.is_empty(now_ms) or self._is_disk_due():
            await self._context.disk.run(self._context.reserve.look)
            self._disk_looked_at_ms = self._context.clock.monotonic_ms()
        taken = self._agenda.take(now_ms)
        partitions = [each for each in taken if self._topics.hosts(each)]
        try:
            await self._looking.run(partitions, partial(self._look_at, now_ms=now_ms), name=attrgetter("name"))
            self._upload_pipeline.begin()
            await self._context.flusher.flush_due([partition.log for partition in partitions])
            for partition in partitions:
                await self._flush_held_back(partition)
        finally:
            self._may_have_producers = self._may_have_producers or bool(taken)
            self._reports.note(taken)
            for partition in taken:
                self._agenda.look_again(partition, self._next_look_ms(partition))

    async def _look_at(self, partition: Partition, *, now_ms: int) -> None:
        self._roll(partition, now_ms)
        if self._early_ms(partition, now_ms) <= now_ms:
            self._close_early(partition, now_ms)
        if partition.leadership is not None:
            self._upload_pipeline.look(partition, now_ms)
        if partition.log.failed is not None:
            self._disk_failed(partition)

    def _is_disk_due(self) -> bool:
        return self._context.clock.monotonic_ms() - self._disk_looked_at_ms >= QUIET_DISK_MS

    def _next_look_ms(self, partition: Partition) -> int:
        """When there will be something to do, if nothing happens to the partition until then."""
        log_, leads = partition.log, partition.leadership is not None
        if partition.closed:
            self._early.give_back(partition)
            return NEVER_MS
        if not self._topics.hosts(partition):
            return AT_ONCE  # It is about to be here.
        if log_.failed is not None:
            return AT_ONCE  # Perhaps since it was looked at, and nobody has been told.
        if partition.high_watermark < log_.log_end_offset:
            return AT_ONCE
        if leads and partition.config.uploads and partition.cold_end_offset < log_.active_base_offset:
            return AT_ONCE
        now_ms = self._context.clock.now_ms()
        return min(log_.due_ms(may_roll=leads), self._early_ms(partition, now_ms))

    async def _flush_held_back(self, partition: Partition) -> None:
        """`flush.messages` holds records back that no producer waits for: acks=0, or a producer that went away."""
        end_offset = partition.log.log_end_offset
        if partition.high_watermark >= end_offset or partition.log.failed is not None:
            return
        if partition.needs_flush:
            try:
                await self._context.flusher.flushed(partition.log, end_offset)
            except TieredError as error:
                log.error("%s: %s", partition.name, error)
                return
        # Also where nothing is left to flush: a flush for another reason tells nobody that the records may be read.
        partition.advance_high_watermark()

    def _roll(self, partition: Partition, now_ms: int) -> None:
        try:
            partition.roll_if_due(now_ms)
        except LogDirFailed as error:
            self._not_begun(partition, error)

    def _not_begun(self, partition: Partition, error: LogDirFailed) -> None:
        self._context.counters.disk_errors += 1
        log.warning("%s: cannot begin a new segment: %s", partition.name, error)
        partition.changed()  # It may be too large rather than too old: no time tells when to try again.

    def _early_ms(self, partition: Partition, now_ms: int) -> int:
        """When its active segment is closed for `tiered.disk.only.max.ms`, by the clock on the wall; NEVER_MS where it
        need not be. Once that is now, or past, it has a place among those of other partitions."""
        config, since_ms = partition.config, partition.log.active_since_ms
        limit_ms = config.tiered_disk_only_max_ms
        is_wanted = partition.leadership is not None and config.uploads and limit_ms != UNLIMITED
        if not is_wanted or since_ms is None or partition.log.failed is not None:
            self._early.give_back(partition)
            return NEVER_MS
        if now_ms < since_ms + limit_ms:
            self._early.give_back(partition)
            return since_ms + limit_ms
        monotonic_ms = self._context.clock.monotonic_ms()
        per_hour = self._context.settings.tiering.tiered_disk_only_closes_per_hour
        place_ms = self._early.place_ms(partition, monotonic_ms, per_hour=per_hour)
        return now_ms + math.ceil(max(0.0, place_ms - monotonic_ms))

    def _close_early(self, partition: Partition, now_ms: int) -> None:
        waiting = sum(segment.end_offset > partition.cold_end_offset for segment in partition.log.segments[:-1])
        if waiting >= MAX_WAITING_FOR_UPLOAD:
            return  # It keeps its place, and has another look in each round while uploads wait.
        try:
            partition.changed()
            partition.log.roll(now_ms)
            self._early.give_back(partition)
        except LogDirFailed as error:
            self._not_begun(partition, error)

    async def expire_producers(self) -> None:
        """Forgets producers that have written nothing for long."""
        now_ms = self._context.clock.now_ms()
        async for partition in in_turns(self._topics.partitions()):
            partition.producers.expire(now_ms, self._context.settings.log.producer_id_expiration_ms)

    async def bound_producers(self) -> None:
        """Keeps the producers of all partitions together within `tiered.max.producers`."""
        if not self._may_have_producers:
            return
        self._may_have_producers = False
        partitions = list(self._topics.partitions())
        limit = self._context.settings.limits.tiered_max_producers
        counts = [len(partition.producers) async for partition in in_turns(partitions)]
        if sum(counts) <= limit:
            return
        most = most_each(counts, limit)
        for partition in partitions:
            if len(partition.producers) > most:
                count = partition.producers.forget(most)
                log.warning("%s: %d idempotent producers were forgotten (tiered.max.producers)", partition.name, count)
                await asyncio.sleep(0)
