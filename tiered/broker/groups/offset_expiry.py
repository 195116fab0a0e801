"""Expires committed offsets: `offsets.retention.minutes` after the last moment at which a group could need them.

Owns the periodic look and its order. As in Kafka since KIP-211 and KIP-496, these expire: all offsets of a group that
long after its last member left; those of a group that never had members, and of topics that a living group no longer
subscribes to, that long after their commit; those of deleted topics at once. A group's row goes with its last offset.
Must never touch a group with members but for what they do not subscribe to, nor one that another broker coordinates:
only that one knows its members.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from sqlalchemy import Connection

from tiered.broker.context import BrokerContext
from tiered.broker.groups.commit_writer import OffsetCommits
from tiered.broker.groups.group import Group
from tiered.broker.groups.slots import HeldSlots
from tiered.broker.partitions.topics import Topics
from tiered.errors import TieredError
from tiered.meta import group_offsets, groups
from tiered.meta.groups import GroupRow
from tiered.runtime import Worker, every

log = logging.getLogger(__name__)

GROUPS_AT_ONCE = 25
"""Commits wait while SQLite reads or deletes so many."""
REST_FACTOR = 4
"""Deletion rests so many times as long as it took: commits come in between."""
MINUTE_MS = 60_000
SLOT_OF_DELETED_TOPICS = 0
"""Whoever holds it deletes their offsets, those of all groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Some:
    """Groups of ours by id, and what SQL says of them."""

    rows: Sequence[GroupRow]
    old: Sequence[tuple[str, UUID]]
    """Groups and topics with offsets that are old enough."""
    without_offsets: frozenset[str]
    empty_before_ms: int
    """Groups without offsets go that had no members since then."""


class OffsetExpiry:
    """One periodic task; a round is many short transactions with pauses, so that commits are never held up for long."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        find_group: Callable[[str], Group | None],
        forget_group: Callable[[str], None],
        topics: Topics,
        commits: OffsetCommits,
        slots: HeldSlots,
    ) -> None:
        self._context = context
        self._find_group = find_group
        self._forget_group = forget_group
        self._topics = topics
        self._slots = slots
        self._commits = commits
        self._worker = Worker()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        interval_ms = self._context.settings.groups.offsets_retention_check_interval_ms
        self._worker.start(tasks, every(interval_ms, self._round, name="offset expiry"))

    async def stop(self) -> None:
        await self._worker.stop()

    async def expire(self) -> None:
        """Deletes what has expired. Raises CoordinatorNotAvailable and NotCoordinator; what is left comes next time."""
        if SLOT_OF_DELETED_TOPICS in self._slots:
            await self._commits.exclusively([SLOT_OF_DELETED_TOPICS], group_offsets.remove_of_deleted_topics)
        clock, database = self._context.clock, self._context.database
        before_ms = clock.now_ms() - self._context.settings.groups.offsets_retention_minutes * MINUTE_MS
        after = ""
        while (some := await database.read_part(partial(self._look, after=after, before_ms=before_ms))).rows:
            started_ms = clock.monotonic_ms()
            if await self._expire_groups(some, before_ms):
                await asyncio.sleep(REST_FACTOR * (clock.monotonic_ms() - started_ms) / 1000.0)
            after = some.rows[-1].group_id

    def _look(self, conn: Connection, *, after: str, before_ms: int) -> "_Some":
        rows = groups.load_some(conn, after=after, limit=GROUPS_AT_ONCE, slots=self._slots.epochs.keys())
        ids = [row.group_id for row in rows]
        # A group that has just lost its last member, or its coordinator, keeps its generation for a while.
        interval_ms = self._context.settings.groups.offsets_retention_check_interval_ms
        empty_before_ms = self._context.clock.now_ms() - interval_ms
        return _Some(
            rows=rows,
            old=group_offsets.old_topics(conn, ids, before_ms=before_ms),
            without_offsets=groups.without_offsets(conn, ids, empty_before_ms=empty_before_ms),
            empty_before_ms=empty_before_ms,
        )

    async def _round(self) -> None:
        """Expiry is in no hurry: while SQL is away there is nothing to do."""
        try:
            await self.expire()
        except TieredError as error:
            log.warning("expired offsets were not deleted, the next round is in its time: %s", error)

    async def _expire_groups(self, some: "_Some", before_ms: int) -> bool:
        """Whether any of these had something to delete."""
        by_id = {row.group_id: row for row in some.rows}
        expired: list[tuple[str, UUID]] = []
        to_remove: list[str] = []

        def look() -> None:
            # Members may have joined while it was somebody else's turn.
            expired.extend(old for old in some.old if self._is_expired(by_id[old[0]], old[1], before_ms))
            without = some.without_offsets.union(group_id for group_id, _ in expired)
            to_remove.extend(group_id for group_id in without if not self._has_members(by_id[group_id]))

        def change(conn: Connection) -> tuple[str, ...]:
            group_offsets.remove_old(conn, expired, before_ms=before_ms)
            return groups.remove_without_offsets(conn, to_remove, empty_before_ms=some.empty_before_ms)

        if not some.old and not some.without_offsets:
            return False
        for group_id in await self._commits.exclusively({row.slot for row in some.rows}, change, check=look):
            self._forget_group(group_id)
        return True

    def _is_expired(self, row: GroupRow, topic_id: UUID, before_ms: int) -> bool:
        """Whether offsets of this topic that are older than `before_ms` may go. A younger commit always stays."""
        if self._has_members(row):
            group = self._find_group(row.group_id)
            topic = self._topics.find_id(topic_id)
            return group is not None and topic is not None and group.is_subscribed_to(topic.name) is False
        if not row.protocol_type:
            return True
        return row.empty_since_ms is not None and row.empty_since_ms < before_ms

    def _has_members(self, row: GroupRow) -> bool:
        """By the coordinator's memory, which is ahead of SQL; by SQL where it does not know the group."""
        group = self._find_group(row.group_id)
        return not group.is_empty if group is not None else row.empty_since_ms is None
