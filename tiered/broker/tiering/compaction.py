"""Compaction of the replicas that this broker holds, one partition at a time and no faster than it is allowed.

Owns when a log is compacted and how much of the machine that takes. `rules.segments.compaction` decides what is due,
and `hot.compaction` makes a pass. Each replica compacts its own log, as in Kafka, and does not ask what the leader has
removed; but tombstones and markers stay everywhere until each replica has them. Must never touch what is not committed,
not flushed, or still written.
"""

import asyncio
import logging

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.view.image import ClusterImage
from tiered.errors import TieredError
from tiered.hot.compaction import CompactionPass, PassReport
from tiered.ids import TopicPartition
from tiered.rules.segments import compaction
from tiered.rules.segments.compaction import Due
from tiered.runtime import BlockingPool, in_turns

log = logging.getLogger(__name__)

REST_MS = 60_000
"""So long nobody tries again to compact a log whose pass has failed."""
MAX_PASSES_A_ROUND = 100
REST_SHARE = 2.0
"""A pass rests for so many times as long as it works, whatever its bytes allow: its thread and the event loop share
one interpreter, and small batches take more of it than their bytes say."""


class CompactionRounds:
    """Compaction of one broker."""

    def __init__(self, *, context: BrokerContext, topics: Topics, image: ClusterImage) -> None:
        self._context = context
        self._image = image
        self._topics = topics
        self._pool = BlockingPool("compaction", threads=1)
        self._rest_until_ms: dict[TopicPartition, float] = {}
        self._had_pass: set[TopicPartition] = set()
        """Since the last time when every partition that was due had one."""
        self.max_dirty_ratio = 0.0
        """The largest share of a compacted topic's log that was not compacted yet, at the last look."""

    def close(self, *, wait: bool = True) -> None:
        """Nothing is begun after this."""
        self._pool.close(wait=wait)

    async def round(self) -> None:
        """Compacts what is due until nothing is: one pass of each partition, the most urgent first, then the next of
        each. Bounded: another round comes."""
        for _ in range(MAX_PASSES_A_ROUND):
            if not self._context.settings.log.log_cleaner_enable or self._context.reserve.is_low:
                return
            chosen = await self._most_urgent()
            if chosen is None:
                return
            await self._compact(*chosen)

    def due(self, partition: Partition) -> Due:
        """The dirty part of the partition's local log, and whether it is compacted now."""
        config = partition.config
        return compaction.due(
            partition.log.segments,
            partition.log.compacted,
            log_start_offset=partition.log_start_offset,
            # An older record must not go because of a newer one that a power loss could take.
            high_watermark=min(partition.high_watermark, partition.log.flushed_offset),
            last_stable_offset=partition.last_stable_offset,
            min_dirty_ratio=config.min_cleanable_dirty_ratio,
            min_lag_ms=config.min_compaction_lag_ms,
            max_lag_ms=config.max_compaction_lag_ms,
            keeps_tombstones=self._keeps_tombstones(partition),
            now_ms=self._context.clock.now_ms(),
        )

    async def _most_urgent(self) -> tuple[Partition, Due] | None:
        now_ms = self._context.clock.monotonic_ms()
        found = [
            (partition, self.due(partition))
            async for partition in in_turns(self._compacted())
            if self._may_go_on(partition) and self._rest_until_ms.get(partition.topic_partition, 0.0) <= now_ms
        ]
        self.max_dirty_ratio = max((due.dirty_ratio for _, due in found), default=0.0)
        # One pass of each: a topic that its writer keeps late all the time must not keep all others waiting.
        waiting = [pair for pair in found if pair[1].is_due and pair[0].topic_partition not in self._had_pass]
        if not waiting:
            self._had_pass.clear()
            waiting = found
        chosen = compaction.most_urgent(enumerate(due for _, due in waiting))
        if chosen is None:
            return None
        self._had_pass.add(waiting[chosen][0].topic_partition)
        return waiting[chosen]

    def _compacted(self) -> list[Partition]:
        return [each for topic in self._topics if topic.config.is_compacted for each in topic.partitions]

    def _may_go_on(self, partition: Partition) -> bool:
        """Whether the partition's log is one to compact, as far as it is known now."""
        return (
            partition.config.is_compacted
            and not partition.closed
            and not partition.is_truncating
            and partition.log.failed is None
        )

    async def _compact(self, partition: Partition, due: Due) -> None:
        counters, began_ms = self._context.counters, self._context.clock.monotonic_ms()
        running = CompactionPass(
            partition.log,
            self._context.files,
            due,
            last_batches=compaction.last_batches(partition.producers.entries.values()),
            aborted=partition.aborted_between(partition.log.local_log_start_offset, due.end_offset),
            delete_retention_ms=partition.config.delete_retention_ms,
            keeps_tombstones=self._keeps_tombstones(partition),
            now_ms=self._context.clock.now_ms(),
            max_memory_bytes=self._context.settings.log.log_cleaner_dedupe_buffer_size,
        )
        try:
            await self._drive(partition, running)
        except (TieredError, OSError) as error:
            if self._may_go_on(partition):
                counters.compaction_failures += 1
                log.warning(
                    "%s: compaction failed, it is tried again in %d s: %s", partition.name, REST_MS // 1000, error
                )
        finally:
            partition.changed()
            report = running.report
            counters.compacted_bytes += report.read_bytes
            counters.compaction_removed_bytes += report.removed_bytes
            counters.compaction_removed_records += report.removed_records
        if report.is_whole:
            counters.compactions += 1
            self._rest_until_ms.pop(partition.topic_partition, None)
            self._tell(partition, due, report, began_ms)
        else:
            self._rest_until_ms[partition.topic_partition] = self._context.clock.monotonic_ms() + REST_MS

    def _keeps_tombstones(self, partition: Partition) -> bool:
        """Whether tombstones and markers may be needed after their time.

        The store, which this broker's passes do not reach, may hold what a tombstone deletes. A consumer that reads the
        old value there and goes on in the local log must find the tombstone. It must also be uploaded, or no pass over
        the store would ever learn of the deletion.

        A replica that is not in sync goes on where it was, and what is removed before it got there never comes to it:
        an old value would stay in its log, and a transaction open for ever. One in sync has all that passes look at.
        """
        may_be_stored = partition.config.remote_storage_enable or partition.log_start_offset < partition.cold_end_offset
        row = partition.row
        return may_be_stored or row is None or not set(row.replicas).issubset(self._image.in_sync(row))

    async def _drive(self, partition: Partition, running: CompactionPass) -> None:
        """The pass, step by step in the one thread, with rests that keep it within its bytes and its share of time."""
        clock, steps = self._context.clock, running.steps()
        began_ms = clock.monotonic_ms()
        while (count := await self._pool.run(next, steps, None)) is not None:
            if not self._may_go_on(partition) or self._context.reserve.is_low:
                return
            rate = self._context.settings.log.log_cleaner_io_max_bytes_per_second
            took_ms = clock.monotonic_ms() - began_ms
            await asyncio.sleep(max(count / rate * 1000.0 - took_ms, REST_SHARE * took_ms) / 1000.0)
            began_ms = clock.monotonic_ms()

    def _tell(self, partition: Partition, due: Due, report: PassReport, began_ms: float) -> None:
        for first_offset, last_offset in report.bad_batches:
            log.warning(
                "%s: nobody can decode offsets %d to %d, which stay as they are",
                partition.name,
                first_offset,
                last_offset,
            )
        log.info(
            "%s: compacted below offset %d in %.1f s, because %s: %d records went, and %d bytes of %d segments",
            partition.name,
            report.end_offset,
            (self._context.clock.monotonic_ms() - began_ms) / 1000.0,
            due.why,
            report.removed_records,
            report.removed_bytes,
            report.replaced_segments,
        )
