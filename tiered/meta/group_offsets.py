"""Committed offsets: many commits of many groups, written in one transaction that fences each of them.

Owns `group_offset`. A commit is written only while its slot has the epoch that its coordinator knows, and its
group no newer generation (R10). Each row keeps the slot epoch and the commit number of its last write and
takes none that is not above them, so an old statement that hung and comes late moves nothing back.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Integer, Select, bindparam, delete, exists, select, tuple_

from tiered.errors import CoordinatorNotAvailable, IllegalGeneration, NotCoordinator, TieredError
from tiered.meta import coordinator_slots, groups
from tiered.meta.groups import GroupRow
from tiered.meta.numbered_rows import keep_newer
from tiered.meta.tables import group_offset, topic, transaction_offset

MAX_TOPICS_TO_FILTER = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetEntry:
    """A group's commit for one partition: the next offset it will read. `leader_epoch` is -1 while unknown."""

    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRow:
    """A committed offset as it is stored."""

    topic_id: UUID
    partition: int
    committed_offset: int
    leader_epoch: int
    metadata: str
    committed_at_ms: int

    @property
    def is_position(self) -> bool:
        """False for -1 and -2, by which some clients mean the end and the beginning: nothing lags behind these."""
        return self.committed_offset >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommit:
    """Offsets that one member, or a tool, commits at once. `generation` is its group's; below 0 none is checked."""

    group_id: str
    slot: int
    generation: int
    entries: tuple[OffsetEntry, ...]
    committed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingCoordinator:
    """The writer: a registration, the epochs of the slots it holds, and the number of this write among its own."""

    broker_id: int
    broker_epoch: int
    slot_epochs: Mapping[int, int]
    commit_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome:
    """The outcome of a batch, once its transaction is committed: an error for each commit that was refused."""

    refused: Mapping[int, TieredError]


def write(
    conn: Connection, commits: Sequence[GroupCommit], changed: Sequence[GroupRow], by: WritingCoordinator
) -> WriteOutcome:
    """Writes the commits and the groups that changed. Commits are judged by the generations before that.

    A commit is refused with `NotCoordinator` (another broker took the slot), `CoordinatorNotAvailable` (this
    one holds it under an epoch it does not know: take it again) or `IllegalGeneration`. Groups whose slot is
    lost are not written: another broker knows better. Two commits to one partition: the later one wins.
    """
    lost_slots = hold(conn, {*(each.slot for each in commits), *(each.slot for each in changed)}, by)
    judged = judge(conn, commits, lost_slots)
    rows: dict[tuple[str, UUID, int], dict[str, Any]] = {}
    for number, commit in enumerate(commits):
        if number not in judged.refused:
            for entry in commit.entries:
                rows[commit.group_id, entry.topic_id, entry.partition] = values_of(commit, entry, by)
    ours = [group for group in changed if group.slot not in lost_slots]
    # Groups before offsets, and each in one order: no two writers ever wait for each other.
    groups.put(conn, ours, epochs=by.slot_epochs, commit_number=by.commit_number, unless_known=judged.unknown)
    check_all_newer(len(rows), keep_newer(conn, group_offset, list(rows.values())))
    return WriteOutcome(refused=judged.refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCommits:
    """Which commits of a batch may not be written, and the groups of the others that SQL does not know yet."""

    refused: Mapping[int, TieredError]
    unknown: Sequence[GroupRow]


def hold(conn: Connection, slots: Iterable[int], by: WritingCoordinator) -> Mapping[int, TieredError]:
    """Holds the slots, beside other writers, until the transaction ends: why `by` may not write for some of them."""
    wanted = set(slots)
    found = coordinator_slots.lock(conn, wanted)
    return {slot: error for slot in wanted if (error := lost(found.get(slot), slot, by)) is not None}


def judge(
    conn: Connection,
    commits: Sequence[GroupCommit],
    lost_slots: Mapping[int, TieredError],
    refused: Mapping[int, TieredError] | None = None,
) -> JudgedCommits:
    """Judges by what `hold` has said of the slots, by `refused`, and by the stored generations."""
    stored = groups.generations(conn, {each.group_id for each in commits})
    judged: dict[int, TieredError] = {}
    unknown: dict[str, GroupRow] = {}
    for number, commit in enumerate(commits):
        error = lost_slots.get(commit.slot) or (refused or {}).get(number)
        error = error or _outdated(commit, stored.get(commit.group_id, -1))
        if error is not None:
            judged[number] = error
        elif commit.group_id not in stored:
            unknown[commit.group_id] = _group_without_members(commit)
    return JudgedCommits(refused=judged, unknown=list(unknown.values()))


def check_all_newer(rows: int, stored: int) -> None:
    """Raises NotCoordinator when some were not stored, so that none is, nor any acknowledged."""
    if stored != rows:
        raise NotCoordinator(f"{rows - stored} of {rows} offsets were committed by a newer coordinator")


def require_slots(conn: Connection, slots: Iterable[int], by: WritingCoordinator) -> None:
    """Holds the slots alone until the transaction ends: no older write of theirs is under way any more.

    Raises `NotCoordinator` or `CoordinatorNotAvailable` as `write`.
    """
    wanted = set(slots)
    found = coordinator_slots.lock(conn, wanted, alone=True)
    for slot in wanted:
        error = lost(found.get(slot), slot, by)
        if error is not None:
            raise error


def load(
    conn: Connection, group_id: str, *, topic_ids: Iterable[UUID] | None = None, limit: int
) -> tuple[OffsetRow, ...]:
    """Up to `limit` of the group's offsets, by topic and partition; of all topics, or only of these."""
    return tuple(row for _, row in load_of_several(conn, [group_id], topic_ids=topic_ids, limit=limit))


def load_of_several(
    conn: Connection, group_ids: Sequence[str], *, topic_ids: Iterable[UUID] | None = None, limit: int
) -> list[tuple[str, OffsetRow]]:
    """Up to `limit` offsets of these groups, each with its group, by group, topic and partition; of all topics, or only
    of these."""
    statement, wanted = of_topics(_OF_GROUPS, _OF_GROUPS_AND_TOPICS, topic_ids)
    found = conn.execute(statement, {"group_ids": group_ids, "limit": limit, **wanted})
    return [
        (
            row.group_id,
            OffsetRow(
                topic_id=row.topic_id,
                partition=row.partition,
                committed_offset=row.committed_offset,
                leader_epoch=row.leader_epoch,
                metadata=metadata_of(row.metadata),
                committed_at_ms=row.committed_at_ms,
            ),
        )
        for row in found
    ]


def of_topics(
    of_all: Select[Any], of_some: Select[Any], topic_ids: Iterable[UUID] | None
) -> tuple[Select[Any], Mapping[str, list[UUID]]]:
    """Which of the two statements to execute, and its parameter: too many topics are no filter."""
    wanted = None if topic_ids is None else list(topic_ids)
    if wanted is None or len(wanted) > MAX_TOPICS_TO_FILTER:
        return of_all, {}
    return of_some, {"topic_ids": wanted}


# Made once: to put a statement together takes longer than to execute it.
_OF_GROUPS = (
    select(group_offset.c.group_id, *(group_offset.c[name] for name in OffsetRow.__slots__))
    .where(group_offset.c.group_id.in_(bindparam("group_ids", expanding=True)))
    .order_by(group_offset.c.group_id, group_offset.c.topic_id, group_offset.c.partition)
    .limit(bindparam("limit", type_=Integer))
)
_OF_GROUPS_AND_TOPICS = _OF_GROUPS.where(group_offset.c.topic_id.in_(bindparam("topic_ids", expanding=True)))


def remove(conn: Connection, group_id: str, keys: Sequence[tuple[UUID, int]]) -> None:
    """The group has no offset for these partitions any more, and none that waits."""
    if keys:
        wanted = frozenset(keys)
        for row in groups.hold_pending(conn, group_id):
            if (row["topic_id"], row["partition"]) in wanted:
                key = (transaction_offset.c[name] == value for name, value in row.items())
                conn.execute(delete(transaction_offset).where(*key))
        one = delete(group_offset).where(
            group_offset.c.group_id == group_id,
            group_offset.c.topic_id == bindparam("of_topic"),
            group_offset.c.partition == bindparam("of_partition"),
        )
        conn.execute(one, [{"of_topic": topic_id, "of_partition": partition} for topic_id, partition in keys])


def old_topics(conn: Connection, group_ids: Sequence[str], *, before_ms: int) -> tuple[tuple[str, UUID], ...]:
    """The groups and topics with an offset that was committed before that time, among these groups."""
    statement = select(group_offset.c.group_id, group_offset.c.topic_id).distinct()
    old = (group_offset.c.group_id.in_(group_ids), group_offset.c.committed_at_ms < before_ms)
    return tuple((row.group_id, row.topic_id) for row in conn.execute(statement.where(*old)))


def remove_old(conn: Connection, topics_of_groups: Sequence[tuple[str, UUID]], *, before_ms: int) -> None:
    """These groups have no offsets of these topics any more that were committed before that time.

    Those of a partition for which another one waits stay until that is decided.
    """
    if topics_of_groups:
        parameters = [
            {"of_group": group_id, "of_topic": topic_id, "before_ms": before_ms}
            for group_id, topic_id in topics_of_groups
        ]
        conn.execute(_REMOVE_OLD, parameters)


_SAME = (transaction_offset.c[name] == group_offset.c[name] for name in ("group_id", "topic_id", "partition"))
_REMOVE_OLD = delete(group_offset).where(
    group_offset.c.group_id == bindparam("of_group"),
    group_offset.c.topic_id == bindparam("of_topic"),
    group_offset.c.committed_at_ms < bindparam("before_ms"),
    ~exists().where(*_SAME),
)


def remove_of_deleted_topics(conn: Connection) -> int:
    """How many offsets were those of topics that do not exist; they are gone.

    Deleting a topic takes its offsets along; a commit that was on its way at that moment can come after it. Rows of any
    slot: what is being written just now is left for the next time, or this and a commit could wait for each other.
    """
    return conn.execute(_REMOVE_OF_DELETED_TOPICS).rowcount


_KEYS = tuple(group_offset.primary_key.columns)
_LIVING = select(topic.c.topic_id).where(topic.c.deleted_at_ms.is_(None))
_REMOVE_OF_DELETED_TOPICS = delete(group_offset).where(
    tuple_(*_KEYS).in_(
        select(*_KEYS).where(group_offset.c.topic_id.not_in(_LIVING)).with_for_update(of=group_offset, skip_locked=True)
    )
)


def lost(row: coordinator_slots.SlotRow | None, slot: int, by: WritingCoordinator) -> TieredError | None:
    """Why `by` may not write for the slot, of which `row` is held."""
    if slot not in by.slot_epochs or row is None or not row.is_held_by(by.broker_id, by.broker_epoch):
        return NotCoordinator(f"slot {slot} belongs to another broker: find the group's coordinator again")
    if row.slot_epoch != by.slot_epochs[slot]:
        return CoordinatorNotAvailable(f"slot {slot} is at epoch {row.slot_epoch}, which this broker has yet to learn")
    return None


def _outdated(commit: GroupCommit, stored_generation: int) -> TieredError | None:
    if 0 <= commit.generation < stored_generation:
        return IllegalGeneration(
            f"group {commit.group_id} is at generation {stored_generation}, the commit is of {commit.generation}"
        )
    return None


def _group_without_members(commit: GroupCommit) -> GroupRow:
    """The row of a group when a commit is the first that SQL hears of it."""
    return GroupRow(
        group_id=commit.group_id,
        slot=commit.slot,
        kind=groups.CLASSIC,
        protocol_type="",
        generation=max(0, commit.generation),
        empty_since_ms=commit.committed_at_ms,
    )


def values_of(commit: GroupCommit, entry: OffsetEntry, by: WritingCoordinator) -> dict[str, Any]:
    """A row of `group_offset`."""
    return {
        "group_id": commit.group_id,
        "topic_id": entry.topic_id,
        "partition": entry.partition,
        "committed_offset": entry.offset,
        "leader_epoch": entry.leader_epoch,
        "metadata": text_of(entry.metadata),
        "committed_at_ms": commit.committed_at_ms,
        "slot_epoch": by.slot_epochs[commit.slot],
        "commit_number": by.commit_number,
    }


# PostgreSQL has no text with a zero byte in it, and librdkafka's bindings for Python end each note with one. In SQL it
# is the sign for it, so that people can read it; the sign itself comes after an escape.
_ZERO, _SIGN, _ESCAPE = "\0", "\u2400", "\u241b"
_TO_TEXT = str.maketrans({_ZERO: _SIGN, _SIGN: _ESCAPE + _SIGN, _ESCAPE: _ESCAPE + _ESCAPE})
_SPECIAL = re.compile(f"{_ESCAPE}(.)|{_SIGN}", re.DOTALL)


def text_of(metadata: str) -> str:
    """As SQL stores it."""
    return metadata.translate(_TO_TEXT) if metadata else metadata


def metadata_of(stored: str) -> str:
    """What the client had sent."""
    if _SIGN not in stored and _ESCAPE not in stored:
        return stored
    return _SPECIAL.sub(lambda match: match[1] or _ZERO, stored)
