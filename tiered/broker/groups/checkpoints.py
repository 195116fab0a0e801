"""Keeps the bucket's checkpoints of consumer groups up with SQL, so that a restore finds where groups stood.

Owns which slots are stale: whose groups committed, changed or came to this broker since they were last written. Each
slot's coordinator writes it, once in `tiered.group.checkpoint.interval.ms` however many commits there were. Must never
be on the way of a commit: it reads SQL on a tick of its own, and what cannot be written stays stale.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tiered.broker.context import BrokerContext
from tiered.broker.groups.slots import HeldSlots
from tiered.broker.one_by_one import OneByOne
from tiered.cold.bucket import group_checkpoints
from tiered.errors import NotCoordinator, TieredError
from tiered.formats.checkpoint_bytes import MAX_CHECKPOINT_BYTES
from tiered.formats.group_checkpoint import GroupCheckpoint, GroupEntry
from tiered.meta import slot_offsets
from tiered.meta.slot_offsets import MAX_OFFSETS_A_SLOT, SlotOffsets

log = logging.getLogger(__name__)

READ_DEADLINE_MS = 30_000
GROUPS_A_PART = 50
"""Commits wait while SQLite reads a part: 0.5 ms, and up to 10 beside fifty busy connections, where 200 groups took up
to 40. They waited 350 where it read all 2,000 groups of a slot at once."""
OFFSETS_A_PART = 1_000
"""A group that has more is a part by itself."""
REST_FACTOR = 4
MAX_REST_MS = 100.0
"""A round rests so many times as long as it took to read a part or to write a slot, up to 100 ms: commits come in
between. A minute after the start of a broker all slots are written."""
BYTES_FOR_GROUPS = MAX_CHECKPOINT_BYTES - (64 << 10)


class GroupCheckpointWriter:
    """Writes the slots that are stale, one at a time."""

    def __init__(self, *, context: BrokerContext, slots: HeldSlots) -> None:
        self._context = context
        self._slots = slots
        self._changed: set[int] = set()
        self._gained: set[int] = set()
        self._turn = asyncio.Lock()
        self._has_ticked = False
        self._is_stopping = False
        self._writing = OneByOne("writing checkpoints of groups", counters=context.counters)

    def slots_changed(self, slots: Iterable[int]) -> None:
        """SQL has other offsets or groups of these slots than the bucket, or may have."""
        self._changed.update(slots)

    def slots_gained(self, slots: Iterable[int]) -> None:
        """It is not known what the former holder has written of them."""
        self._gained.update(slots)

    async def tick(self) -> None:
        """Writes all that is stale. The first tick comes with the start, which has better things to do."""
        if self._has_ticked:
            self._changed |= self._gained
            self._gained = set()
            await self.write_changed()
        self._has_ticked = True

    async def write_last(self) -> None:
        """At a shutdown: what changed, and the slots of brokers that stopped before, which left them to this one.

        They are told by their groups, so that a broker by itself writes no empty slots whenever it stops.
        """
        self._is_stopping = True
        self._changed |= self._gained & await self._context.database.read(slot_offsets.occupied)
        await self.write_changed()

    async def write_changed(self) -> None:
        """Writes the slots whose groups changed, if the store is ours. A failure leaves a slot stale, is logged, and
        raises nothing."""
        if not self._context.store.is_ours:
            return
        async with self._turn:
            failed = 1
            with suppress(TieredError):  # SQL or the store is away: what is left stays stale.
                failed = await self._writing.run(sorted(self._changed), self._write_changed, name="slot {}".format)
            self._context.counters.checkpoint_failures += failed > 0

    async def _write_changed(self, slot: int) -> None:
        slot_epoch = self._slots.epochs.get(slot)
        self._changed.discard(slot)  # A change from here on makes it stale again.
        if slot_epoch is None:
            return  # Its holder writes it, and begins with that when it gets the slot.
        try:
            with suppress(NotCoordinator):
                await self._write(slot, slot_epoch)
        except Exception:
            self._changed.add(slot)
            raise

    async def _write(self, slot: int, slot_epoch: int) -> None:
        of_slot = await self._load(slot)
        checkpoint = _within_bounds(
            GroupCheckpoint(
                cluster_id=self._context.state.cluster_id,
                slot=slot,
                slot_count=self._context.settings.groups.offsets_topic_num_partitions,
                slot_epoch=slot_epoch,
                groups=of_slot.groups,
                left_out=of_slot.left_out,
            )
        )
        if checkpoint.left_out:
            log.warning("the bucket's checkpoint of group slot %d lacks %d groups: too many", slot, checkpoint.left_out)
        started_ms = self._context.clock.monotonic_ms()
        await self._context.uploads.run(group_checkpoints.write_group_checkpoint, self._context.store, checkpoint)
        await self._rest(started_ms)

    async def _rest(self, since_ms: float) -> None:
        if not self._is_stopping:
            took_ms = self._context.clock.monotonic_ms() - since_ms
            await asyncio.sleep(min(MAX_REST_MS, REST_FACTOR * took_ms) / 1000.0)

    async def _load(self, slot: int) -> SlotOffsets:
        """What changes between two parts makes the slot stale again."""
        groups: list[GroupEntry] = []
        limit = MAX_OFFSETS_A_SLOT
        while True:
            started_ms = self._context.clock.monotonic_ms()
            after = groups[-1].group_id if groups else ""
            part = await self._part(slot, after, most_groups=GROUPS_A_PART, limit=min(limit, OFFSETS_A_PART))
            if not part.groups and part.left_out:
                part = await self._part(slot, after, most_groups=1, limit=limit)
            groups += part.groups
            limit -= sum(len(group.offsets) for group in part.groups)
            if not part.groups or not part.left_out or limit <= 0:
                return SlotOffsets(groups=tuple(groups), left_out=part.left_out)
            await self._rest(started_ms)

    async def _part(self, slot: int, after: str, *, most_groups: int, limit: int) -> SlotOffsets:
        load = partial(slot_offsets.load, slot=slot, limit=limit, after=after, most_groups=most_groups)
        return await self._context.database.read_part(load, deadline_ms=READ_DEADLINE_MS)


def _within_bounds(checkpoint: GroupCheckpoint) -> GroupCheckpoint:
    """With as many of its groups as one object holds, in the order of their ids."""
    kept: list[GroupEntry] = []
    size_bytes = 0
    for group in checkpoint.groups:
        # 250 bytes are more than the fixed part of an offset takes; JSON writes a character in up to six.
        size_bytes += 6 * len(group.group_id) + sum(250 + 6 * len(each.metadata) for each in group.offsets) + 250
        if size_bytes > BYTES_FOR_GROUPS:
            break
        kept.append(group)
    missing = len(checkpoint.groups) - len(kept)
    return replace(checkpoint, groups=tuple(kept), left_out=checkpoint.left_out + missing)
