"""Sums over all partitions that a broker holds: its health, its backlog of uploads and their metrics are made of them.

Owns the one walk over the partitions, with pauses in which others are served: 10,000 partitions take a tenth of a
second. Changes nothing. What partitions say between two pauses is of one moment, the sums are of the time of the walk.
"""

from dataclasses import dataclass, field

from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.tiering import tier_plan
from tiered.runtime import in_turns

LONG_TRANSACTION_MS = 3_000
"""Most transactions are shorter."""
MAX_NAMES = 100


@dataclass(slots=True, kw_only=True)
class PartitionTotals:
    """The sums. Ages are in milliseconds, and 0 where there is nothing that has one."""

    replicas: int = 0
    local_bytes: int = 0
    led_cold_bytes: int = 0
    unusable: int = 0
    """Replicas whose log cannot be opened or failed, and halted ones."""
    failed_names: list[str] = field(default_factory=list)
    """The first hundred replicas whose log failed, by name."""
    halted_names: list[str] = field(default_factory=list)
    """The first hundred halted replicas, by name."""
    upload_backlog_bytes: int = 0
    """Closed segments of partitions led here that wait for their upload."""
    upload_backlog_age_ms: int = 0
    disk_only_age_ms: int = 0
    """Age of the oldest record led here that is on disks alone."""
    held_back_partitions: int = 0
    """Partitions led here in which an open transaction keeps readers of committed records waiting for longer than
    transactions usually take."""
    held_back_ms: int = 0
    """The longest of these waits."""
    unstable_partitions: int = 0
    """Partitions led here whose last stable offset lies below the high watermark."""
    max_unstable_records: int = 0
    """Records between the two where that is most."""
    replica_lag: int = 0
    """Records that the slowest follower of a partition led here lacks."""

    def add(self, partition: Partition, now_ms: int) -> None:
        self.replicas += 1
        self.local_bytes += partition.log.size_bytes
        has_failed, is_halted = bool(partition.log.failed), partition.halted is not None
        self.unusable += has_failed or is_halted
        if has_failed and len(self.failed_names) < MAX_NAMES:
            self.failed_names.append(partition.name)
        if is_halted and len(self.halted_names) < MAX_NAMES:
            self.halted_names.append(partition.name)
        if partition.leadership is not None:
            self._add_led(partition, now_ms)

    def _add_led(self, partition: Partition, now_ms: int) -> None:
        self.led_cold_bytes += partition.cold_bytes
        self.upload_backlog_bytes += tier_plan.overdue_bytes(partition, now_ms)
        waiting_since_ms = tier_plan.oldest_waiting_ms(partition)
        disk_only_since_ms = tier_plan.disk_only_since_ms(partition)
        if waiting_since_ms is not None:
            self.upload_backlog_age_ms = max(self.upload_backlog_age_ms, now_ms - waiting_since_ms)
        if disk_only_since_ms is not None:
            self.disk_only_age_ms = max(self.disk_only_age_ms, now_ms - disk_only_since_ms)
        unstable_records = partition.high_watermark - partition.last_stable_offset
        if unstable_records > 0:
            self.unstable_partitions += 1
            self.max_unstable_records = max(self.max_unstable_records, unstable_records)
        if partition.transactions.is_any_open:
            holder = partition.transactions.holder(partition.high_watermark, partition.log_start_offset)
            if holder is not None and holder.since_ms is not None and now_ms - holder.since_ms > LONG_TRANSACTION_MS:
                self.held_back_partitions += 1
                self.held_back_ms = max(self.held_back_ms, now_ms - holder.since_ms)
        self.replica_lag = max(self.replica_lag, _lag_of(partition))


async def partition_totals(topics: Topics, now_ms: int) -> PartitionTotals:
    """The sums over the partitions that `topics` has."""
    totals = PartitionTotals(unusable=len(topics.unopened_names()))
    async for partition in in_turns(topics.partitions()):
        totals.add(partition, now_ms)
    return totals


def _lag_of(partition: Partition) -> int:
    leadership = partition.leadership
    if leadership is None or len(leadership.replicas) < 2:
        return 0
    end = partition.log.log_end_offset
    slowest = end
    for broker_id in leadership.replicas:
        if broker_id != leadership.me.broker_id:
            fetched = leadership.fetched_by(broker_id)
            slowest = min(slowest, partition.log_start_offset if fetched is None else fetched.offset)
    return max(0, end - slowest)
