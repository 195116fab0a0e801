"""A read_committed consumer: it passes over what brokers say was aborted, as clients do, and tells the checker.

Owns the client's side of the protocol: the list of aborted transactions in each answer, and where each one ends.
"""

from collections.abc import Iterable

from tests.simulation.clients import READ_BYTES, Consumer, Where
from tiered.broker.broker import Broker
from tiered.errors import OffsetNotAvailable, OffsetOutOfRange
from tiered.formats import record_batch
from tiered.formats.control_record import MarkerType, read_marker
from tiered.formats.segment_object import AbortedIndexEntry
from tiered.rules.partition import read_plan

BEGINS_ANEW = 0.1
"""How often it reads all again: from the store, and what was aborted long ago. Once more when nobody writes."""


class StableReader(Consumer):
    """As Consumer, up to the last stable offset."""

    _reads_for_the_last_time = False

    async def _look_at_the_end(self, where: Where) -> None:
        async def look(broker: Broker) -> None:
            partition = self._partition(broker)
            partition.require_leader()
            partition.check_leader_epoch(where.leader_epoch)
            if partition.is_withheld:
                raise OffsetNotAvailable("the new leader does not know yet")
            checker = self.world.checker
            checker.transactions.was_reported(
                checker.book(self.key), partition.leader_epoch, partition.last_stable_offset
            )

        await self.ask(where.leader, look)

    async def _fetch(self, broker: Broker, where: Where) -> None:
        partition = self._partition(broker)
        partition.require_replica()
        partition.check_leader_epoch(where.leader_epoch)
        begins_anew = self.rng.random() < BEGINS_ANEW
        if self.world.stops_producing:
            begins_anew, self._reads_for_the_last_time = not self._reads_for_the_last_time, True
        if begins_anew:
            self.position = 0
        offset, batches = self.position, None
        match partition.plan_read(offset, committed_only=True):
            case read_plan.Hot():
                batches = partition.read_hot(offset, READ_BYTES, committed_only=True, at_least_one=True)
            case read_plan.Cold():
                batches = await broker.reader.read_cold(partition, offset, READ_BYTES)
                self.world.counts["cold reads of committed records"] += 1
            case read_plan.CaughtUp():
                return
            case read_plan.OutsideLog():
                raise OffsetOutOfRange("not here")
        if batches is not None:
            self.take(batches.records.read(), batches.aborted)

    def take(self, data: bytes, aborted: Iterable[AbortedIndexEntry]) -> None:
        waiting = sorted(aborted, key=lambda each: each.first_offset)
        skipped: set[int] = set()
        checker = self.world.checker
        book = checker.book(self.key)
        for position, header in record_batch.whole_batches(data, 0, len(data)):
            while waiting and waiting[0].first_offset <= header.last_offset:
                skipped.add(waiting.pop(0).producer_id)
            is_given = not (header.is_transactional and header.producer_id in skipped)
            if header.is_control:
                marker = read_marker(memoryview(data), position, header)
                if marker is not None and marker.type is MarkerType.ABORT:
                    skipped.discard(header.producer_id)
            if header.end_offset <= self.position:
                continue
            if header.base_offset > self.position:
                self.world.violate(f"R6: {book.name}: a gap from {self.position} to {header.base_offset}")
            checker.was_read(
                self.key, header.base_offset, header.record_count, (header.partition_leader_epoch, header.crc)
            )
            if not header.is_control:
                checker.transactions.was_read(book, header.base_offset, header.crc, is_given=is_given)
                self.world.counts["batches given as committed" if is_given else "batches passed over"] += 1
            self.position = header.end_offset
