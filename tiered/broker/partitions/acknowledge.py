"""When a producer may be told that its batch is stored: on disk where the topic demands it, committed for acks=all.

Owns the wait and what its end means for the producer. Must never let anybody wait on a leadership that is not the
one under which the batch was appended: its offset may hold another record by then.
"""

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import ALL, Appended, Partition
from tiered.errors import NotEnoughReplicasAfterAppend, RequestTimedOut, TieredError

NO_ACKS = 0


def is_acknowledged(partition: Partition, appended: Appended, acks: int) -> bool:
    """True when there is nothing to wait for: what one broker with default settings always answers."""
    if acks == NO_ACKS or partition.acknowledgements.is_committed(appended.end_offset, appended.leader_epoch):
        return True
    return acks != ALL and not partition.needs_flush


async def acknowledged(
    context: BrokerContext, partition: Partition, appended: Appended, *, acks: int, timeout_ms: float
) -> None:
    """Returns when the batch is as safe as the producer has asked for. Cancelling the wait takes nothing back.

    The disk has no deadline: it answers or fails. Followers have `timeout_ms`. Raises LogDirFailed, NotLeader when
    leadership went, NotEnoughReplicasAfterAppend when too few in-sync replicas were left to answer in time, and
    RequestTimedOut. After any of these the batch may be stored or not.
    """
    deadline_ms = context.clock.monotonic_ms() + timeout_ms
    if partition.needs_flush:
        await context.flusher.flushed(partition.log, appended.end_offset)
        partition.advance_high_watermark()
    if acks != ALL:
        return
    left_ms = deadline_ms - context.clock.monotonic_ms()
    if not await partition.acknowledgements.reached(appended.end_offset, appended.leader_epoch, left_ms):
        raise not_in_time(partition, timeout_ms)


def not_in_time(partition: Partition, timeout_ms: float) -> TieredError:
    """The error for a producer whose batch the followers did not fetch within `timeout_ms`. It may commit later."""
    if partition.is_under_min_isr:
        return NotEnoughReplicasAfterAppend(
            f"{partition.name}: fewer in-sync replicas are left than min.insync.replicas="
            f"{partition.config.min_insync_replicas}; the batch may be committed later: retry"
        )
    return RequestTimedOut(f"{partition.name}: the in-sync replicas did not take the batch in {timeout_ms:g} ms; retry")
