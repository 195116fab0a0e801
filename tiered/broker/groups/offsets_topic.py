"""`__consumer_offsets` as others read it: a view of the offsets in SQL, for lag exporters that know nothing else.

Owns a log in memory for each partition that somebody reads, which its coordinator keeps up with SQL. Must never be on
the way of a commit: it is told which slots changed, and reads them on a tick of its own. Of several commits between two
ticks the log has the last, as a compacted log would.

Offsets never go back: a log begins at 2**32 times its slot's tenure, which grows whenever the slot gets a holder. A
reader with an offset of an earlier tenure goes on with the first record of this one, which tells all anew.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from uuid import UUID

from sqlalchemy import Connection

from tiered.broker.context import BrokerContext
from tiered.broker.groups.memory import GroupMemory
from tiered.broker.groups.offset_log import LoggedValue, OffsetLog, cost
from tiered.broker.groups.slots import HeldSlots
from tiered.broker.partitions.fetch_wait import Waiters
from tiered.broker.partitions.topics import Topics
from tiered.errors import NotLeader, OffsetNotAvailable, OffsetOutOfRange, TieredError, UnknownTopicOrPartition
from tiered.formats.offset_records import encode_offset_key, encode_offset_value
from tiered.meta import slot_offsets

log = logging.getLogger(__name__)

TICK_INTERVAL_MS = 1_000
"""So long it takes at most until readers hear of a commit."""
REST_FACTOR = 9
"""Reading SQL for readers takes a tenth of the time at most."""
LOOK_ANYWAY_MS = 60_000
"""Offsets also go with their topics, of which nobody tells the coordinator."""
FORGET_AFTER_MS = 300_000
READ_DEADLINE_MS = 5_000
MAX_OFFSETS = 100_000
"""Of one partition. Groups beyond them are left out, and the log says so."""
TENURE_SHIFT = 32
APPENDED_AT_ONCE = 2_000
MEMORY_SHARE = 0.5
"""Of what groups may take: the rest is left to their members, whoever reads their offsets."""


class OffsetsPartition:
    """One partition for as long as this broker holds its slot and somebody reads it."""

    def __init__(self, index: int, start_offset: int, now_ms: float) -> None:
        self.index = index
        self.waiters = Waiters()
        self.log = OffsetLog(start_offset)
        self.is_stale = True
        self.looked_at_ms: float | None = None
        """When SQL was read last; None before that."""
        self.failure: TieredError | None = None
        """Why it could not be read, where it never could."""
        self.asked_at_ms = now_ms
        self.turn = asyncio.Lock()
        self.taken_bytes = 0

    @property
    def needs_loading(self) -> bool:
        return self.looked_at_ms is None and self.failure is None

    @property
    def high_watermark(self) -> int:
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        return self.log.end_offset

    @property
    def log_start_offset(self) -> int:
        return self.log.start_offset

    def loaded(self) -> OffsetLog:
        """The log. Raises OffsetNotAvailable while SQL could not be read yet."""
        if self.looked_at_ms is None:
            raise OffsetNotAvailable(f"__consumer_offsets-{self.index} cannot be read now; ask again: {self.failure}")
        return self.log

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes:
        """A batch, or nothing at the end. Raises OffsetOutOfRange above it, OffsetNotAvailable."""
        found = self.loaded()
        if offset > found.end_offset:
            raise OffsetOutOfRange(f"__consumer_offsets-{self.index} ends at {found.end_offset}, before {offset}")
        return found.read(offset, max_bytes, at_least_one=at_least_one)


class OffsetsTopic:
    """Part of the group coordinator, and started and stopped by it."""

    def __init__(self, *, context: BrokerContext, topics: Topics, slots: HeldSlots, memory: GroupMemory) -> None:
        self._context = context
        self._topics = topics
        self._slots = slots
        self._memory = memory
        self._read: dict[int, OffsetsPartition] = {}
        self._ends: dict[int, int] = {}
        self._is_closed = False

    def led(self, index: int) -> int:
        """The tenure under which this broker leads the partition. Raises NotLeader where another one holds the slot,
        and UnknownTopicOrPartition."""
        if not 0 <= index < self._context.settings.groups.offsets_topic_num_partitions:
            raise UnknownTopicOrPartition(f"__consumer_offsets has no partition {index}; refresh metadata")
        tenure = self._slots.tenure(index)
        if tenure is None or self._is_closed:
            raise NotLeader(f"slot {index} of the groups is coordinated elsewhere; refresh metadata")
        return tenure

    def partition(self, index: int) -> OffsetsPartition:
        """The partition; it may need loading. Raises as `led`."""
        tenure = self.led(index)
        now_ms = self._context.clock.monotonic_ms()
        found = self._read.get(index)
        if found is None:
            start_offset = max(self._ends.get(index, 0), tenure << TENURE_SHIFT)
            found = self._read[index] = OffsetsPartition(index, start_offset, now_ms)
        found.asked_at_ms = now_ms
        return found

    async def loaded(self, index: int) -> OffsetLog:
        """The partition's log as SQL is or was a moment ago. Raises as `partition`, and OffsetNotAvailable."""
        partition = self.partition(index)
        await self.load(partition)
        return partition.loaded()

    async def load(self, partition: OffsetsPartition) -> None:
        """Reads it from SQL unless somebody just has. A failure is the partition's until the next tick."""
        async with partition.turn:
            if partition.needs_loading:
                await self._refresh(partition)

    def slots_changed(self, slots: Collection[int]) -> None:
        """SQL has other offsets of these slots than it had, or may have."""
        if self._read:
            for slot in self._read.keys() & set(slots):
                self._read[slot].is_stale = True

    def slots_lost(self, slots: Collection[int]) -> None:
        """Readers of these partitions look for another leader."""
        for slot in self._read.keys() & set(slots):
            self._forget(self._read[slot])

    def close(self) -> None:
        """The broker stops: readers look for the next leader."""
        self._is_closed = True
        self.slots_lost(list(self._read))

    async def tick(self) -> None:
        """Looks at what changed, and forgets what nobody reads."""
        clock = self._context.clock
        for partition in list(self._read.values()):
            started_ms = clock.monotonic_ms()
            if started_ms - partition.asked_at_ms > FORGET_AFTER_MS and not len(partition.waiters):
                self._forget(partition)
                continue
            looked_at_ms = partition.looked_at_ms
            if partition.is_stale or looked_at_ms is None or started_ms - looked_at_ms > LOOK_ANYWAY_MS:
                async with partition.turn:
                    await self._refresh(partition)
                await asyncio.sleep(REST_FACTOR * (clock.monotonic_ms() - started_ms) / 1000.0)

    async def _refresh(self, partition: OffsetsPartition) -> None:
        """Appends what SQL has and the log has not. Needs the partition's turn."""
        partition.is_stale = False
        try:
            question = partial(_differences, slot=partition.index, log=partition.log, topic_name=self._topic_name)
            changes, left_out = await self._context.database.read(question, deadline_ms=READ_DEADLINE_MS)
            await self._append(partition, changes)
        except TieredError as error:
            log.warning("__consumer_offsets-%d could not be read from SQL: %s", partition.index, error)
            partition.failure = error.without_frames()
            partition.is_stale = True
            return
        if left_out:
            log.warning("__consumer_offsets-%d lacks %d groups: too many offsets", partition.index, left_out)
        partition.looked_at_ms = self._context.clock.monotonic_ms()
        partition.failure = None

    async def _append(self, partition: OffsetsPartition, changes: list[tuple[bytes, LoggedValue]]) -> None:
        for first in range(0, len(changes), APPENDED_AT_ONCE):
            if self._read.get(partition.index) is not partition:
                return  # The slot went meanwhile.
            some = changes[first : first + APPENDED_AT_ONCE]
            needed = sum(cost(key, written.value) for key, written in some)
            self._memory.take(needed, share=MEMORY_SHARE)
            partition.log.append(some)
            self._ends[partition.index] = partition.log.end_offset
            # The memory of superseded records is free again.
            self._memory.take(partition.log.size_bytes - partition.taken_bytes - needed)
            partition.taken_bytes = partition.log.size_bytes
            partition.waiters.wake()
            await asyncio.sleep(0)

    def _forget(self, partition: OffsetsPartition) -> None:
        del self._read[partition.index]
        self._memory.take(-partition.taken_bytes)
        partition.taken_bytes = 0
        partition.waiters.wake()

    def _topic_name(self, topic_id: UUID) -> str | None:
        topic = self._topics.find_id(topic_id)
        return None if topic is None else topic.name


def _differences(
    conn: Connection, *, slot: int, log: OffsetLog, topic_name: Callable[[UUID], str | None]
) -> tuple[list[tuple[bytes, LoggedValue]], int]:
    """The records that the log lacks, and how many groups are left out. Runs beside the event loop."""
    found = slot_offsets.load(conn, slot=slot, limit=MAX_OFFSETS)
    state = {}
    for group in found.groups:
        for each in group.offsets:
            topic = topic_name(each.topic_id)
            if topic is not None:
                value = encode_offset_value(each.offset, each.leader_epoch, each.metadata, each.committed_at_ms)
                state[encode_offset_key(group.group_id, topic, each.partition)] = LoggedValue(
                    value, each.committed_at_ms
                )
    return log.differences(state), found.left_out
