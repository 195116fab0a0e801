"""Consumer groups as SQL knows them: their kind, their generation, their members, and since when there are none.

Owns `consumer_group`. Members are here while their group is stable, for the next coordinator, and live in the memory of
the present one. Every write carries the slot's epoch and a commit number, and counts only above those of the row, so
that one which hung cannot take a newer one back. Must never check who may write: whoever calls `group_offsets.write`
has locked the slot. Must never look into `members`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, bindparam, delete, exists, select, tuple_, update

from tiered.meta.name_scopes import within
from tiered.meta.tables import consumer_group, group_offset, transaction_offset
from tiered.meta.upserts import insert_in
from tiered.rules.security.authorization import EVERYTHING, NameScope

CLASSIC = "classic"
CONSUMER = "consumer"
NAMES_PER_STATEMENT = 500
"""SQLite and PostgreSQL take many parameters, but not any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group's row. A group that never had members has the protocol type `""`.

    `empty_since_ms` is None while it has members, as far as SQL has heard. `members` are those of a stable group
    (`formats.group_members`), None for any other.
    """

    group_id: str
    slot: int
    kind: str
    protocol_type: str
    generation: int
    empty_since_ms: int | None
    members: bytes | None = None


def load(conn: Connection, group_id: str) -> GroupRow | None:
    """One group, or None."""
    found = _groups(conn, _columns().add_columns(consumer_group.c.members).where(consumer_group.c.group_id == group_id))
    return found[0] if found else None


def load_some(
    conn: Connection,
    *,
    after: str,
    limit: int,
    slots: Collection[int] | None = None,
    scope: NameScope = EVERYTHING,
) -> tuple[GroupRow, ...]:
    """Up to `limit` groups whose ids come after `after`, by id, without their members; of all slots, or of these; those
    that the scope holds."""
    statement = _columns().where(consumer_group.c.group_id > after, within(conn, consumer_group.c.group_id, scope))
    statement = statement.order_by(consumer_group.c.group_id).limit(limit)
    if slots is not None:
        statement = statement.where(consumer_group.c.slot.in_(sorted(slots)))
    return _groups(conn, statement)


def with_stored_members(conn: Connection, *, after: str, limit: int, slots: Collection[int]) -> tuple[str, ...]:
    """Up to `limit` ids of groups of these slots that have members stored, by id, those that come after `after`."""
    statement = (
        select(consumer_group.c.group_id)
        .where(consumer_group.c.slot.in_(sorted(slots)), consumer_group.c.members.is_not(None))
        .where(consumer_group.c.group_id > after)
    )
    return tuple(conn.execute(statement.order_by(consumer_group.c.group_id).limit(limit)).scalars())


def generations(conn: Connection, group_ids: Iterable[str]) -> Mapping[str, int]:
    """The stored generations of those of these groups that have a row."""
    wanted = list(group_ids)
    found: dict[str, int] = {}
    for first in range(0, len(wanted), NAMES_PER_STATEMENT):
        some = wanted[first : first + NAMES_PER_STATEMENT]
        found.update((row[0], row[1]) for row in conn.execute(_GENERATIONS, {"names": some}))
    return found


_GENERATIONS = select(consumer_group.c.group_id, consumer_group.c.generation).where(
    consumer_group.c.group_id.in_(bindparam("names", expanding=True))
)


def put(
    conn: Connection,
    rows: Sequence[GroupRow],
    *,
    epochs: Mapping[int, int],
    commit_number: int,
    unless_known: Sequence[GroupRow] = (),
) -> None:
    """Stores the groups as they are now, and those of `unless_known` that have no row yet.

    `epochs` are those of their slots, which the caller holds. An older write changes nothing. All in the order of
    their ids, so that two writers never wait for each other.
    """
    # Number 0 is below whatever else is written under the epoch.
    values = {row.group_id: _values(row, epochs, 0) for row in unless_known}
    values |= {row.group_id: _values(row, epochs, commit_number) for row in rows}
    if not values:
        return
    conn.execute(_putting(conn.dialect.name), [values[group_id] for group_id in sorted(values)])


@cache
def _putting(dialect: str) -> Any:
    statement = insert_in(dialect, consumer_group)
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=["group_id"],
        set_={column.name: new[column.name] for column in consumer_group.c if column.name != "group_id"},
        where=tuple_(consumer_group.c.slot_epoch, consumer_group.c.commit_number)
        < tuple_(new.slot_epoch, new.commit_number),
    )


def mark_empty(conn: Connection, *, slots: Iterable[int], now_ms: int) -> None:
    """The groups of these slots whose members are not stored have none any more: their coordinator is a new one."""
    had_members = (
        consumer_group.c.slot.in_(sorted(slots)),
        consumer_group.c.empty_since_ms.is_(None),
        consumer_group.c.members.is_(None),
    )
    conn.execute(update(consumer_group).where(*had_members).values(empty_since_ms=now_ms))


def slots_with_members(conn: Connection) -> frozenset[int]:
    """The slots of groups that have members, as far as SQL has heard."""
    statement = select(consumer_group.c.slot).where(consumer_group.c.empty_since_ms.is_(None)).distinct()
    return frozenset(conn.execute(statement).scalars())


def remove(conn: Connection, group_id: str) -> bool:
    """The group and all its offsets are gone, and those that wait. True when there was anything of it."""
    if hold_pending(conn, group_id):
        conn.execute(delete(transaction_offset).where(transaction_offset.c.group_id == group_id))
    offsets = conn.execute(delete(group_offset).where(group_offset.c.group_id == group_id)).rowcount
    rows = conn.execute(delete(consumer_group).where(consumer_group.c.group_id == group_id)).rowcount
    return offsets + rows > 0


def hold_pending(conn: Connection, group_id: str) -> Sequence[RowMapping]:
    """The keys of the group's offsets that wait for their transactions' ends; no decision moves them meanwhile.

    Whoever deletes a group's offsets begins with these, in the order in which decisions lock them. So neither waits for
    the other in a circle, and no decision brings back what is deleted.
    """
    keys = tuple(transaction_offset.primary_key.columns)
    waiting = select(*keys).where(transaction_offset.c.group_id == group_id)
    return conn.execute(waiting.order_by(*keys).with_for_update()).mappings().all()


def remove_without_offsets(conn: Connection, group_ids: Sequence[str], *, empty_before_ms: int) -> tuple[str, ...]:
    """Deletes those of these groups that had no members since that time and no offset left, and returns them.

    One that an open transaction may give offsets to stays.
    """
    parameters = {"names": group_ids, "empty_before_ms": empty_before_ms}
    return tuple(conn.execute(_REMOVE_WITHOUT_OFFSETS, parameters).scalars())


def without_offsets(conn: Connection, group_ids: Sequence[str], *, empty_before_ms: int) -> frozenset[str]:
    """Those that `remove_without_offsets` would delete now."""
    parameters = {"names": group_ids, "empty_before_ms": empty_before_ms}
    return frozenset(conn.execute(_ARE_WITHOUT_OFFSETS, parameters).scalars())


_WITHOUT_OFFSETS = (
    consumer_group.c.group_id.in_(bindparam("names", expanding=True)),
    consumer_group.c.empty_since_ms < bindparam("empty_before_ms"),
    ~exists().where(group_offset.c.group_id == consumer_group.c.group_id),
    ~exists().where(transaction_offset.c.group_id == consumer_group.c.group_id),
)
_ARE_WITHOUT_OFFSETS = select(consumer_group.c.group_id).where(*_WITHOUT_OFFSETS)
_REMOVE_WITHOUT_OFFSETS = delete(consumer_group).where(*_WITHOUT_OFFSETS).returning(consumer_group.c.group_id)


def _columns() -> Select[Any]:
    return select(*(consumer_group.c[name] for name in GroupRow.__slots__ if name != "members"))


def _groups(conn: Connection, statement: Select[Any]) -> tuple[GroupRow, ...]:
    return tuple(GroupRow(**row) for row in conn.execute(statement).mappings())


def _values(row: GroupRow, epochs: Mapping[int, int], commit_number: int) -> dict[str, Any]:
    return {**asdict(row), "slot_epoch": epochs[row.slot], "commit_number": commit_number}
