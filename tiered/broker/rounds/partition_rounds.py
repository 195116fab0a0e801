"""Periodic work on every partition of this broker: rolling, flushing, uploads, producers.

Owns the rounds over all partitions. Rules and partitions decide what is due. Must never skip a partition because
another failed.
"""

import asyncio
import logging
from collections.abc import Callable

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.tiering.upload_pipeline import UploadPipeline
from tiered.errors import LogDirFailed, TieredError
from tiered.rules.partition.producer_state import most_each
from tiered.runtime import in_turns

log = logging.getLogger(__name__)


class PartitionRounds:
    """Rounds over the partitions of one broker."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        disk_failed: Callable[[Partition], None],
        topics: Topics,
        upload_pipeline: UploadPipeline,
    ) -> None:
        self._context = context
        self._disk_failed = disk_failed
        self._topics = topics
        self._upload_pipeline = upload_pipeline

    async def look(self) -> None:
        """Rolls what is due, begins uploads, gives up replicas whose disk failed, flushes."""
        await self._context.disk.run(self._context.reserve.look)
        now_ms = self._context.clock.now_ms()
        partitions = list(self._topics.partitions())
        async for partition in in_turns(partitions):
            self._roll(partition, now_ms)
            if partition.leadership is not None:
                self._upload_pipeline.look(partition, now_ms)
            if partition.log.failed is not None:
                self._disk_failed(partition)
        self._upload_pipeline.begin()
        await self._context.flusher.flush_due([partition.log for partition in partitions])
        for partition in partitions:
            await self._flush_held_back(partition)

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
            self._context.counters.disk_errors += 1
            log.warning("%s: cannot begin a new segment: %s", partition.name, error)

    async def expire_producers(self) -> None:
        """Forgets producers that have written nothing for long."""
        now_ms = self._context.clock.now_ms()
        for partition in list(self._topics.partitions()):
            partition.producers.expire(now_ms, self._context.settings.log.producer_id_expiration_ms)

    async def bound_producers(self) -> None:
        """Keeps the producers of all partitions together within `tiered.max.producers`."""
        partitions = list(self._topics.partitions())
        limit = self._context.settings.limits.tiered_max_producers
        if sum(len(each.producers) for each in partitions) <= limit:
            return
        most = most_each([len(each.producers) for each in partitions], limit)
        for partition in partitions:
            if len(partition.producers) > most:
                count = partition.producers.forget(most)
                log.warning("%s: %d idempotent producers were forgotten (tiered.max.producers)", partition.name, count)
                await asyncio.sleep(0)
