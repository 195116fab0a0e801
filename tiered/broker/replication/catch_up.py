"""Repairs the log of a follower that cannot go on from its end: truncates it, or begins it anew.

Owns the order of those steps, all of them in a thread while rows of the partition wait. Must never cut by a high
watermark, only where epochs diverge (rule 6).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.role import Role
from tiered.cold.chunks.reader import ColdReader
from tiered.errors import Corrupt, LogDirFailed
from tiered.formats.producer_snapshot import ProducerEntry, decode_producers
from tiered.peer.answers import CorruptAnswer
from tiered.rules.partition.producer_state import without_transactions
from tiered.rules.replication import divergence
from tiered.rules.replication.divergence import Divergence

log = logging.getLogger(__name__)


class CatchUp:
    """The repairs of one broker. `rows_applied` is called for a partition whose rows had to wait meanwhile."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        cold_reader: ColdReader,
        rows_applied: Callable[[Iterable[Partition]], None],
    ) -> None:
        self._context = context
        self._cold_reader = cold_reader
        self._rows_applied = rows_applied

    async def truncate(self, partition: Partition, found: Divergence) -> None:
        """Cuts the log where it leaves the leader's, or a step towards that. Raises LogDirFailed, and CorruptAnswer for
        a divergence that cannot be: outside the log."""
        log_ = partition.log
        before = log_.log_end_offset
        offset = divergence.truncation_offset(log_.leader_epochs, before, found)
        if not 0 <= offset < before:
            raise CorruptAnswer(
                f"{partition.name}: the leader says that the log leaves its own at {found.end_offset}, after epoch "
                f"{found.epoch}, where it ends at {before}; nothing was cut"
            )
        log.warning(
            "%s: the log leaves that of the leader after epoch %d; it is cut from %d to %d",
            partition.name, found.epoch, before, offset,
        )  # fmt: skip

        def cut() -> Sequence[ProducerEntry]:
            log_.truncate_to(offset)
            try:
                return log_.producers_at_end()
            except (OSError, Corrupt) as error:
                raise LogDirFailed(
                    log_.fail(f"the producers are not known after a cut to {offset}: {error}")
                ) from error

        self._context.counters.replica_truncations += 1
        await self._in_thread(partition, cut)

    async def begin_after_cold(self, partition: Partition) -> bool:
        """Begins anew where the object store ends, with the producers and epochs of its newest object. The leader holds
        everything from there on. False when the log is as far already.

        Raises LogDirFailed, CorruptObject, StoreUnavailable.
        """
        end_offset = partition.cold_end_offset
        if end_offset <= partition.log.log_end_offset:
            return False
        segment = partition.committed_segment_at(end_offset - 1)
        if segment is None:
            return await self.begin_at_log_start(partition, partition.log_start_offset)
        leader_epoch, log_end_offset = partition.leader_epoch, partition.log.log_end_offset
        # First the object: a log that is emptied has nothing that a failure could go back to.
        tail = await self._cold_reader.tail(partition.place_of(segment))
        producers = without_transactions(decode_producers(tail.producer_snapshot))
        log_ = partition.log
        if partition.role is not Role.FOLLOWER or (partition.leader_epoch, log_.log_end_offset) != (
            leader_epoch,
            log_end_offset,
        ):
            return True  # Another leader came while the store was asked: it may hold what follows.

        def begin() -> Sequence[ProducerEntry]:
            log_.truncate_fully_and_start_at(end_offset, leader_epochs=tail.leader_epochs, producers=producers)
            return producers

        # A new replica, or one that a restore has planned, loses nothing by it.
        level = logging.WARNING if log_.size_bytes else logging.INFO
        log.log(
            level, "%s: the leader holds nothing below %d: beginning where the store ends", partition.name, end_offset
        )
        await self._in_thread(partition, begin)
        return True

    async def begin_at_log_start(self, partition: Partition, log_start_offset: int) -> bool:
        """Begins anew at the leader's log start: everything below is deleted. False when the log is there already, or
        nobody knows where that is. Raises LogDirFailed."""
        start_offset = max(log_start_offset, partition.log_start_offset)
        if start_offset <= partition.log.log_end_offset:
            return False
        log_ = partition.log

        def begin() -> Sequence[ProducerEntry]:
            log_.truncate_fully_and_start_at(start_offset)
            return ()

        level = logging.WARNING if log_.size_bytes else logging.INFO
        log.log(level, "%s: the leader's log begins at %d: beginning there", partition.name, start_offset)
        await self._in_thread(partition, begin)
        return True

    async def _in_thread(self, partition: Partition, change: Callable[[], Sequence[ProducerEntry]]) -> None:
        """Carries `change` out to its end, also when the waiter is cancelled: nobody may use the log meanwhile."""
        partition.begin_truncation()
        producers: Sequence[ProducerEntry] | None = None
        try:
            producers = await _to_the_end(asyncio.ensure_future(self._context.disk.run(_carried_out, change)))
        finally:
            partition.log_truncated(producers)
            self._rows_applied([partition])  # A row that waited may have given the partition another leader.


def _carried_out(change: Callable[[], Sequence[ProducerEntry]]) -> Sequence[ProducerEntry]:
    try:
        return change()
    except (OSError, Corrupt) as error:
        raise LogDirFailed(f"a replica's log could not be changed: {error}") from error


async def _to_the_end(running: "asyncio.Future[Sequence[ProducerEntry]]") -> Sequence[ProducerEntry]:
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()
        raise cancelled
    return running.result()
