"""The work that never ends: rolling, flushing, uploading, retention, compaction, sweeping, reporting.

Owns when each of it happens; what happens is decided by rules and done by `upload_pipeline`, `segment_lifecycle`,
`retention`, `compaction`, `checkpoints` and the partitions. Must never skip a partition because another failed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from tiered.broker.partition import Partition
from tiered.errors import LogDirFailed, TieredError
from tiered.rules.producer_bounds import most_each
from tiered.runtime import every

if TYPE_CHECKING:
    from tiered.broker.broker import Broker

log = logging.getLogger(__name__)

REPORT_INTERVAL_MS = 5_000
SETTLE_INTERVAL_MS = 1_000
RESIGN_INTERVAL_MS = 500
FORGET_INTERVAL_MS = 3_600_000
# As fast as anybody can append, they take some 50 MiB more until then.
PRODUCERS_INTERVAL_MS = 5_000
STALL_PROBE_MS = 100
YIELD_EVERY_PARTITIONS = 500


class Housekeeping:
    """Periodic work of one broker, as tasks of its TaskGroup."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        self._failing: set[str] = set()
        self._swept = False
        self._forgot_ms: float | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        settings = self._broker.settings
        self._broker.upload_pipeline.start(group)
        plan: list[tuple[float | Callable[[], float], Callable[[], Awaitable[None]], str]] = [
            (settings.tiered_upload_interval_ms, self._tick, "rolling and uploads"),
            (settings.tiered_checkpoint_interval_ms, self._broker.checkpoints.write_stale, "checkpoints"),
            (settings.tiered_group_checkpoint_interval_ms, self._broker.group_checkpoints.tick, "group checkpoints"),
            (settings.tiered_group_checkpoint_interval_ms, self._broker.checkpoints.look_at_pins, "looking for pins"),
            (settings.log_retention_check_interval_ms, self._broker.retention.round, "retention"),
            (lambda: self._broker.settings.log_cleaner_backoff_ms, self._broker.compaction.round, "compaction"),
            (settings.tiered_sweep_interval_ms, self._sweep, "sweeping the object store"),
            (settings.tiered_sweep_interval_ms, self._sweep_for_all, "sweeping for all brokers"),
            (SETTLE_INTERVAL_MS, self._broker.changes.settle, "settling unknown outcomes"),
            (RESIGN_INTERVAL_MS, self._broker.failed_replicas.resign, "giving up failed replicas"),
            (settings.producer_id_expiration_check_interval_ms, self._expire_producers, "producer expiry"),
            (PRODUCERS_INTERVAL_MS, self._bound_producers, "bounding producers"),
            (REPORT_INTERVAL_MS, self._broker.reports.write, "reports"),
            (settings.tiered_lag_sample_interval_ms, self._broker.lag.sample, "sampling the groups' lag"),
        ]
        for interval, tick, name in plan:
            self._tasks.append(group.create_task(every(interval, partial(self._quietly, tick, name), name=name)))
        self._tasks.append(group.create_task(self._probe_stalls()))

    async def _quietly(self, tick: Callable[[], Awaitable[None]], name: str) -> None:
        """SQL or the store being away is no bug: one line when it begins, one when it ends."""
        try:
            await tick()
        except (TieredError, OSError) as error:
            self._broker.counters.housekeeping_failures += 1
            if name not in self._failing:
                self._failing.add(name)
                log.warning("%s failed and is tried again and again: %s", name, error)
            return
        if name in self._failing:
            self._failing.discard(name)
            log.warning("%s: works again", name)

    async def stop(self) -> None:
        """Begins nothing new; uploads in progress are left to the sweep of the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, self._broker.upload_pipeline.stop(), return_exceptions=True)

    # Rolling, flushing, uploading

    async def _tick(self) -> None:
        await self._broker.disk.run(self._broker.reserve.look)
        now_ms = self._broker.clock.now_ms()
        partitions = list(self._broker.topics.partitions())
        for number, partition in enumerate(partitions):
            if number % YIELD_EVERY_PARTITIONS == YIELD_EVERY_PARTITIONS - 1:
                await asyncio.sleep(0)
            self._roll(partition, now_ms)
            if self._broker.leads(partition):
                self._broker.upload_pipeline.look(partition, now_ms)
            if partition.log.failed is not None:
                self._broker.disk_failed(partition)
        self._broker.upload_pipeline.begin()
        await self._broker.flusher.flush_due([partition.log for partition in partitions])
        for partition in partitions:
            await self._flush_held_back(partition)

    async def _flush_held_back(self, partition: Partition) -> None:
        """`flush.messages` holds records back that no producer waits for: acks=0, or a producer that went away."""
        end_offset = partition.log.log_end_offset
        if partition.high_watermark < end_offset and partition.needs_flush and partition.log.failed is None:
            try:
                await self._broker.flusher.flushed(partition.log, end_offset)
            except TieredError as error:
                log.error("%s: %s", partition.name, error)
                return
            partition.advance_high_watermark()

    def _roll(self, partition: Partition, now_ms: int) -> None:
        try:
            partition.roll_if_due(now_ms)
        except LogDirFailed as error:
            self._broker.counters.disk_errors += 1
            log.warning("%s: cannot begin a new segment: %s", partition.name, error)

    # Sweeping

    async def _sweep(self) -> None:
        """The first round takes everything that an earlier process left; it does not hold up the start."""
        await self._broker.lifecycle.sweep(at_start=not self._swept)
        self._swept = True

    async def _sweep_for_all(self) -> None:
        """What one broker does for all: the controller."""
        if not self._broker.controller.is_leading:
            return
        await self._broker.lifecycle.forget_deleted_topics()
        await self._broker.lifecycle.sweep_of_the_dead()
        now_ms = self._broker.clock.monotonic_ms()
        if self._forgot_ms is None or now_ms - self._forgot_ms >= FORGET_INTERVAL_MS:
            self._forgot_ms = now_ms
            await self._broker.lifecycle.forget_purged()
            await self._broker.lifecycle.abort_abandoned_uploads()

    async def _expire_producers(self) -> None:
        now_ms = self._broker.clock.now_ms()
        for partition in list(self._broker.topics.partitions()):
            partition.expire_producers(now_ms, self._broker.settings.producer_id_expiration_ms)

    async def _bound_producers(self) -> None:
        partitions = list(self._broker.topics.partitions())
        limit = self._broker.settings.tiered_max_producers
        if sum(len(each.producers) for each in partitions) <= limit:
            return
        most = most_each([len(each.producers) for each in partitions], limit)
        for partition in partitions:
            if len(partition.producers) > most:
                count = partition.forget_producers(most)
                log.warning("%s: %d idempotent producers were forgotten (tiered.max.producers)", partition.name, count)
                await asyncio.sleep(0)

    async def _probe_stalls(self) -> None:
        """Measures how late the event loop wakes: the one number that tells whether something blocks it."""
        loop = asyncio.get_running_loop()
        counters = self._broker.counters
        while True:
            before = loop.time()
            await asyncio.sleep(STALL_PROBE_MS / 1000.0)
            counters.event_loop_stall_ms = max(0.0, (loop.time() - before) * 1000.0 - STALL_PROBE_MS)
            counters.event_loop_stalls.observe(counters.event_loop_stall_ms)
            counters.event_loop_max_stall_ms = max(counters.event_loop_max_stall_ms, counters.event_loop_stall_ms)
