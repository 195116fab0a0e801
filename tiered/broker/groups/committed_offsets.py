"""Committed offsets and groups' generations: what the coordinator and the doors ask of SQL.

Owns the bounds of one question. Reading waits for the group's commits that are on their way, so that whoever
takes over a partition starts where its last owner committed. Must never decide who may commit: a `Fence` says
that the coordinator did.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from tiered.broker.context import BrokerContext
from tiered.broker.groups.commit_writer import OffsetCommits
from tiered.broker.groups.offset_expiry import OffsetExpiry
from tiered.broker.groups.offset_memory import OffsetMemory
from tiered.broker.groups.offset_reader import OffsetReader
from tiered.broker.groups.slots import HeldSlots
from tiered.broker.groups.stored_members import Encode
from tiered.broker.groups.values import Fence, GroupKind, check_transactional_id
from tiered.errors import CoordinatorNotAvailable, InvalidRequest, MetadataUnavailable, NotCoordinator, Throttled
from tiered.ids import TopicId, TopicPartition
from tiered.meta import group_offsets, groups
from tiered.meta.group_offsets import GroupCommit, OffsetEntry, OffsetRow
from tiered.meta.groups import GroupRow
from tiered.meta.transaction_offsets import PendingCommit
from tiered.rules.groups.coordinator_slot import coordinator_slot
from tiered.rules.security.authorization import NameScope
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch

__all__ = ["MAX_ENTRIES", "MAX_OFFSETS", "CommittedOffsets", "OffsetEntry", "OffsetRow", "StableOffsets"]

MAX_ENTRIES = 50_000
"""Partitions in one commit."""
MAX_OFFSETS = 200_000
"""Offsets in one answer."""
GROUPS_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StableOffsets:
    """What a group has committed, and the partitions whose offset an open transaction may change."""

    offsets: Mapping[TopicPartition, OffsetRow]
    unstable: frozenset[TopicPartition]


class CommittedOffsets:
    """Part of the group coordinator, and started and stopped by it."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        slots: HeldSlots,
        commits: OffsetCommits,
        expiry: OffsetExpiry,
        memory: OffsetMemory,
    ) -> None:
        self._context = context
        self._slots = slots
        self.commits = commits
        self._expiry = expiry
        self._reader = OffsetReader(context, memory)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Commits are written, and expired offsets looked for, from now on."""
        self.commits.start(tasks)
        self._expiry.start(tasks)

    async def stop(self) -> None:
        """Writes what is due."""
        await self._expiry.stop()
        await self.commits.stop()

    # Offsets

    async def commit(self, fence: Fence, entries: Sequence[OffsetEntry]) -> None:
        """Returns once the offsets are stored, all of them or (when it raises) none. Raises as `submit` does."""
        await asyncio.shield(self.submit(fence, entries))

    def submit(self, fence: Fence, entries: Sequence[OffsetEntry]) -> "asyncio.Future[None]":
        """Done once the offsets are stored; they have their place among all commits when this returns. Nobody may
        cancel it.

        Topics and partitions must exist. Raises, or has the future raise, CoordinatorNotAvailable, NotCoordinator,
        IllegalGeneration, and InvalidRequest for more than `MAX_ENTRIES`. After any of these an older offset is still
        what counts.
        """
        return self._submit(
            GroupCommit(
                group_id=fence.group_id,
                slot=fence.slot,
                generation=fence.generation,
                entries=tuple(entries),
                committed_at_ms=self._context.clock.now_ms(),
            ),
            fence,
        )

    def submit_with_transaction(
        self, fence: Fence, entries: Sequence[OffsetEntry], *, transactional_id: str, producer: ProducerIdAndEpoch
    ) -> "asyncio.Future[None]":
        """As `submit`, but the offsets are the group's only once the producer's open transaction is committed.

        The future also raises InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions and
        InvalidTransactionState unless the transaction is ongoing. Raises InvalidRequest for what is no transactional
        id: no commit that SQL cannot digest may share a write with others.
        """
        check_transactional_id(transactional_id)
        return self._submit(
            PendingCommit(
                group_id=fence.group_id,
                slot=fence.slot,
                generation=fence.generation,
                entries=tuple(entries),
                committed_at_ms=self._context.clock.now_ms(),
                transactional_id=transactional_id,
                producer=producer,
            ),
            fence,
        )

    def _submit(self, commit: GroupCommit, fence: Fence) -> "asyncio.Future[None]":
        count = len(commit.entries)
        if count > MAX_ENTRIES:
            raise InvalidRequest(f"{count} offsets in one commit are too many: send at most {MAX_ENTRIES}")
        if not count:
            nothing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            nothing.set_result(None)
            return nothing
        if fence.tenure is None or fence.tenure != self._slots.tenure(fence.slot):
            raise NotCoordinator(f"group {fence.group_id} has another coordinator now: find it again")
        return self.commits.submit(commit)

    async def fetch(
        self, group_id: str, wanted: Collection[TopicPartition] | None = None, *, limit: int = MAX_OFFSETS
    ) -> Mapping[TopicPartition, OffsetRow]:
        """The group's committed offsets: those of `wanted` that it has, or all of them.

        Raises CoordinatorNotAvailable while SQL is away, InvalidRequest when there are more than `limit`.
        """
        return (await self._fetch(group_id, wanted, limit))[0]

    async def fetch_stable(
        self, group_id: str, wanted: Collection[TopicPartition] | None = None, *, limit: int = MAX_OFFSETS
    ) -> StableOffsets:
        """As `fetch`, with the partitions whose offset an open transaction may change. Raises as `fetch`."""
        found, waiting = await self._fetch(group_id, wanted, limit)
        if len(waiting) > MAX_OFFSETS:
            raise _too_many(group_id, limit)
        return StableOffsets(
            offsets=found,
            unstable=frozenset(TopicPartition(TopicId(topic_id), partition) for topic_id, partition in waiting),
        )

    async def _fetch(
        self, group_id: str, wanted: Collection[TopicPartition] | None, limit: int
    ) -> tuple[Mapping[TopicPartition, OffsetRow], Collection[tuple[UUID, int]]]:
        await self.commits.settled(group_id)
        topic_ids = None if wanted is None else {each.topic_id for each in wanted}
        stored = await self._reader.offsets(group_id, topic_ids, limit=MAX_OFFSETS + 1)
        found = stored.rows
        if wanted is not None:
            found = {key: row for key in wanted if (row := stored.rows.get(key)) is not None}
        if len(found) > limit:
            raise _too_many(group_id, limit)
        return found, stored.waiting

    async def delete(
        self, group_id: str, partitions: Collection[TopicPartition], *, check: Callable[[], None] | None = None
    ) -> None:
        """The group has no offset for these partitions any more, unless `check` raises at the last moment.

        Raises CoordinatorNotAvailable, NotCoordinator.
        """
        keys = [(each.topic_id, each.partition) for each in partitions]
        await self.commits.exclusively(
            [self._slot(group_id)], lambda conn: group_offsets.remove(conn, group_id, keys), check=check
        )

    # Groups

    async def load_group(self, group_id: str) -> GroupRow | None:
        """The group as SQL has it, or is about to have it. Raises CoordinatorNotAvailable."""
        await self.commits.settled(group_id)
        due = self.commits.due(group_id)
        return due.encoded() if due else await self._reader.read(lambda conn: groups.load(conn, group_id))

    async def list_groups(self, scope: NameScope) -> AsyncIterator[GroupRow]:
        """Every group of this broker's slots that has a row and is in the scope. Raises CoordinatorNotAvailable."""
        after = ""
        ours = self._slots.epochs.keys()
        while not scope.is_nothing:
            load = partial(groups.load_some, after=after, limit=GROUPS_AT_ONCE, slots=ours, scope=scope)
            try:
                rows = await self._context.database.read_part(load)
            except (MetadataUnavailable, Throttled) as error:
                raise CoordinatorNotAvailable(str(error)) from error
            for row in rows:
                yield row
            if len(rows) < GROUPS_AT_ONCE:
                return
            after = rows[-1].group_id

    def note_group(
        self,
        group_id: str,
        *,
        kind: GroupKind,
        protocol_type: str,
        generation: int,
        is_empty: bool,
        members: Encode | None = None,
    ) -> None:
        """Marks the group's row as due; it is written along with the next batch. Waits for nothing."""
        self.commits.changed(
            GroupRow(
                group_id=group_id,
                slot=self._slot(group_id),
                kind=kind.value,
                protocol_type=protocol_type,
                generation=generation,
                empty_since_ms=self._context.clock.now_ms() if is_empty else None,
            ),
            members,
        )

    async def delete_group(self, group_id: str, *, check: Callable[[], None] | None = None) -> None:
        """Deletes the group's row and its offsets, unless `check` raises at the last moment.

        Raises CoordinatorNotAvailable, NotCoordinator.
        """
        await self.commits.remove_group(self._slot(group_id), group_id, check=check)

    def _slot(self, group_id: str) -> int:
        return coordinator_slot(group_id, self._context.settings.groups.offsets_topic_num_partitions)


def _too_many(group_id: str, limit: int) -> InvalidRequest:
    return InvalidRequest(f"group {group_id} has more than {limit} offsets: ask for some partitions at a time")
