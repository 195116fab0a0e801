"""Pins and snapshots: offsets that retention must leave, granted and given up.

Owns the rows of `pin` and `pinned_range`, and the one clock by which they end: the database's. A snapshot is a pin with
a name. Every change of a pin takes the feed's number first, as `segments.retire_before` does before it asks
`refuse_retirement`: so a pin that was granted is seen by every retirement after it, and one that comes too late for a
retirement is told so. `holds_object_in` is what purges ask. Must never change an offset or a segment.

An explicit deletion (DeleteRecords, a topic's) is refused by a snapshot, which somebody made to keep these records and
can delete. It is not refused by a pin, which is a reader's and ends by itself: the records are gone for clients at
once, and the objects that the reader may be in the middle of stay until the pin ends.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Never
from uuid import UUID

from sqlalchemy import Connection, Select, delete, func, insert, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from tiered.errors import (
    OffsetOutOfRange,
    Pinned,
    PinNotFound,
    SnapshotExists,
    Throttled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tiered.ids import is_legal_topic_name
from tiered.meta.clock import database_now_ms, now_ms, now_ms_in
from tiered.meta.cluster import take_number
from tiered.meta.tables import partition, pin, pinned_range, segment, topic

MAX_RANGES = 200_000
"""Of all pins and snapshots together, so that a list of them stays one answer."""
MAX_NAMED_TOPICS = 1_000
"""More than these are not named in a statement."""
_NAMED_SNAPSHOTS = 5
"""So many are named in a refusal."""
PURGE_MARGIN_MS = 60_000
"""Purges ask without a lock, so a renewal may be on its way to its commit just then. None takes as long as this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRange:
    """The wanted hold on one partition: from `start_offset`, or where the log starts, up to `end_offset`."""

    partition: int
    start_offset: int | None
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedRange:
    """The hold on one partition: offsets from `start_offset` up to, and without, `end_offset`."""

    partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PinRow:
    """A pin, or with a `name` a snapshot. Times are the database's; without `expires_at_ms` it is for good."""

    pin_id: UUID
    name: str | None
    topic_id: UUID
    topic: str
    owner: str
    created_at_ms: int
    expires_at_ms: int | None
    ranges: tuple[PinnedRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRange:
    """A range as retention must know it. `expires_in_ms` counts from `HeldRanges.at_ms`; None is never."""

    label: str
    start_offset: int
    end_offset: int
    expires_in_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRanges:
    """All that is held of some topics at `at_ms` of the database's clock, by topic id and partition."""

    at_ms: int
    ranges: Mapping[tuple[UUID, int], Sequence[HeldRange]]


def take(
    conn: Connection,
    *,
    pin_id: UUID,
    name: str | None,
    topic_id: UUID,
    owner: str,
    ttl_ms: int | None,
    ranges: Sequence[WantedRange],
    max_pins: int,
) -> PinRow:
    """The new pin, or snapshot where it has a `name`, which holds from now on. Repeating it answers with its row.

    `max_pins` bounds how many of its kind there are. Raises `OffsetOutOfRange` for what is deleted already,
    `SnapshotExists`, `Throttled` at the bound, `UnknownTopicId` and `UnknownTopicOrPartition`.
    """
    take_number(conn)
    known = _rows(conn, pin.c.pin_id == pin_id)
    if known:
        return known[0]
    _forget_expired(conn)
    if name is not None and _rows(conn, pin.c.name == name):
        raise SnapshotExists(f"a snapshot {name} exists already: choose another name, or delete it first")
    kind = pin.c.name.is_(None) if name is None else pin.c.name.is_not(None)
    count = conn.execute(select(func.count()).select_from(pin).where(kind, _is_live(conn))).scalar_one()
    if count >= max_pins:
        raise Throttled(
            f"there are {count} pins already, and tiered.pins.max allows no more: wait until one is given up or ends"
            if name is None
            else f"there are {count} snapshots already, and tiered.snapshots.max allows no more: delete one first"
        )
    granted = _granted(conn, topic_id, ranges)
    if conn.execute(select(func.count()).select_from(pinned_range)).scalar_one() + len(granted) > MAX_RANGES:
        raise Throttled(f"pins and snapshots hold {MAX_RANGES} partitions at the most: give some up first")
    created_at_ms = database_now_ms(conn)
    conn.execute(
        insert(pin).values(
            pin_id=pin_id,
            name=name,
            topic_id=topic_id,
            owner=owner,
            created_at_ms=created_at_ms,
            expires_at_ms=None if ttl_ms is None else created_at_ms + ttl_ms,
        )
    )
    if granted:
        conn.execute(insert(pinned_range), [{"pin_id": pin_id, "topic_id": topic_id, **each} for each in granted])
    return load(conn, pin_id)


def renew(conn: Connection, pin_id: UUID, *, ttl_ms: int, max_lifetime_ms: int) -> PinRow:
    """The pin, which holds for `ttl_ms` from now, but for `max_lifetime_ms` since it was taken at the longest.

    A renewal never shortens. Raises `PinNotFound` for one that has ended, and for a snapshot.
    """
    take_number(conn)
    row = load(conn, pin_id)
    if row.expires_at_ms is None or row.name is not None:
        raise PinNotFound(f"{pin_id} is snapshot {row.name}, and no pin: it need not be renewed")
    wanted = min(database_now_ms(conn) + ttl_ms, row.created_at_ms + max_lifetime_ms)
    conn.execute(update(pin).where(pin.c.pin_id == pin_id).values(expires_at_ms=max(row.expires_at_ms, wanted)))
    return load(conn, pin_id)


def release(conn: Connection, pin_id: UUID) -> None:
    """Gives up a pin. Raises `PinNotFound` for one that has ended, and for a snapshot."""
    take_number(conn)
    row = load(conn, pin_id)
    if row.name is not None:
        raise PinNotFound(f"{pin_id} is snapshot {row.name}, and no pin: delete the snapshot by its name")
    _remove(conn, pin.c.pin_id == pin_id)


def delete_snapshot(conn: Connection, name: str) -> None:
    """Gives up a snapshot. Raises `PinNotFound`."""
    take_number(conn)
    load_snapshot(conn, name)
    _remove(conn, pin.c.name == name)


def no_pin(pin_id: UUID) -> PinNotFound:
    return PinNotFound(f"there is no pin {pin_id}: it was given up or has ended; take a new one")


def no_snapshot(name: str) -> PinNotFound:
    return PinNotFound(f"there is no snapshot {name}; `tiered snapshot list` shows those that exist")


def load(conn: Connection, pin_id: UUID) -> PinRow:
    """One pin or snapshot. Raises `PinNotFound`, also when it has ended."""
    found = _rows(conn, pin.c.pin_id == pin_id, _is_live(conn))
    if not found:
        raise no_pin(pin_id)
    return found[0]


def load_snapshot(conn: Connection, name: str) -> PinRow:
    """The snapshot of that name. Raises `PinNotFound`, also when it has ended."""
    # No other name was ever taken, and with a zero byte in it PostgreSQL fails the statement.
    found = _rows(conn, pin.c.name == name, _is_live(conn)) if is_legal_topic_name(name) else ()
    if not found:
        raise no_snapshot(name)
    return found[0]


def list_live(conn: Connection, *, named: bool, topic_id: UUID | None = None) -> tuple[PinRow, ...]:
    """All snapshots by name, or all pins by their age; of one topic where that is given."""
    kind = pin.c.name.is_not(None) if named else pin.c.name.is_(None)
    of_topic = () if topic_id is None else (pin.c.topic_id == topic_id,)
    return _rows(conn, kind, _is_live(conn), *of_topic)


def list_ids(conn: Connection) -> frozenset[UUID]:
    """The ids of all pins and snapshots: none of them ever holds anything else than when it was taken."""
    return frozenset(conn.execute(select(pin.c.pin_id).where(_is_live(conn))).scalars())


def held(conn: Connection, topic_ids: Collection[UUID]) -> HeldRanges:
    """The ranges that pins and snapshots hold of these topics now; of all topics where these are too many to name."""
    found: dict[tuple[UUID, int], list[HeldRange]] = {}
    at_ms = database_now_ms(conn)
    of_topics = () if len(topic_ids) > MAX_NAMED_TOPICS else (pinned_range.c.topic_id.in_(topic_ids),)
    statement = (
        select(pinned_range, pin.c.name, pin.c.owner, pin.c.expires_at_ms)
        .join(pin, pin.c.pin_id == pinned_range.c.pin_id)
        .where(*of_topics, _is_live(conn))
        .order_by(pin.c.created_at_ms, pin.c.pin_id)
    )
    for row in conn.execute(statement):
        found.setdefault((row.topic_id, row.partition), []).append(
            HeldRange(
                label=label_of(row.name, row.owner, row.pin_id),
                start_offset=row.start_offset,
                end_offset=row.end_offset,
                expires_in_ms=None if row.expires_at_ms is None else row.expires_at_ms - at_ms,
            )
        )
    return HeldRanges(at_ms=at_ms, ranges=found)


def label_of(name: str | None, owner: str, pin_id: UUID) -> str:
    """A pin or snapshot in words."""
    return f"snapshot {name}" if name is not None else f"pin {pin_id}" + (f" of {owner}" if owner else "")


# What those who delete ask


def refuse_retirement(
    conn: Connection, topic_id: UUID, number: int, *, new_log_start_offset: int, is_explicit: bool
) -> None:
    """Returns when `log_start_offset` may move there; the caller holds the number, so no pin comes in between.

    Raises `Pinned` where a snapshot, or for retention also a pin, holds an offset that would go.
    """
    statement = (
        _held_of(conn, topic_id, number)
        .join(
            partition,
            (partition.c.topic_id == pinned_range.c.topic_id) & (partition.c.partition == pinned_range.c.partition),
        )
        .where(
            pinned_range.c.start_offset < new_log_start_offset,
            pinned_range.c.end_offset > partition.c.log_start_offset,
            partition.c.log_start_offset < new_log_start_offset,
            *((pin.c.name.is_not(None),) if is_explicit else ()),
        )
    )
    row = conn.execute(statement).one_or_none()
    if row is not None:
        _refuse(
            f"offsets {row.start_offset} to {row.end_offset} of partition {number} of topic {topic_id}",
            label_of(row.name, row.owner, row.pin_id),
            row.name,
        )


def refuse_replacement(conn: Connection, topic_id: UUID, number: int, *, start_offset: int, end_offset: int) -> None:
    """Returns when objects of these offsets may be replaced by others; the caller holds the number.

    Raises `Pinned` where a snapshot holds any of them. A pin does not: its reader goes on in the objects it found.
    """
    statement = _held_of(conn, topic_id, number).where(
        pinned_range.c.start_offset < end_offset,
        pinned_range.c.end_offset > start_offset,
        pin.c.name.is_not(None),
    )
    row = conn.execute(statement).one_or_none()
    if row is not None:
        what = f"offsets {row.start_offset} to {row.end_offset} of partition {number} of topic {topic_id}"
        raise Pinned(
            f"{what} cannot be replaced: snapshot {row.name} holds them as they are; `tiered snapshot delete "
            f"{row.name}` ends that, if nobody needs it"
        )


def refuse_deletion(conn: Connection, topic_id: UUID, topic_name: str) -> None:
    """Returns when the topic may be deleted. Raises `Pinned` where a snapshot holds any of it."""
    found = list_live(conn, named=True, topic_id=topic_id)
    if len(found) > 1:
        names = ", ".join(str(snapshot.name) for snapshot in found[:_NAMED_SNAPSHOTS])
        more = f" and {len(found) - _NAMED_SNAPSHOTS} more" if len(found) > _NAMED_SNAPSHOTS else ""
        raise Pinned(
            f"topic {topic_name} cannot be deleted: snapshots {names}{more} hold it; delete all of them with `tiered "
            "snapshot delete NAME`, if nobody needs them"
        )
    if found:
        _refuse(f"topic {topic_name}", f"snapshot {found[0].name}", found[0].name)


def holds_object_in(dialect: str) -> ColumnElement[bool]:
    """The condition that a pin, or a snapshot, still holds offsets of a row of `segment`: for a statement that is made
    once."""
    return (
        select(pinned_range.c.pin_id)
        .join(pin, pin.c.pin_id == pinned_range.c.pin_id)
        .where(
            pinned_range.c.topic_id == segment.c.topic_id,
            pinned_range.c.partition == segment.c.partition,
            pinned_range.c.start_offset < segment.c.end_offset,
            pinned_range.c.end_offset > segment.c.base_offset,
            or_(pin.c.expires_at_ms.is_(None), pin.c.expires_at_ms > now_ms_in(dialect) - PURGE_MARGIN_MS),
        )
        .exists()
    )


def forget_topics(conn: Connection, topic_ids: Collection[UUID]) -> None:
    """Removes what is left of deleted topics' pins: a part of forgetting the topics."""
    _remove(conn, pin.c.topic_id.in_(topic_ids))


def _refuse(what: str, label: str, name: str | None) -> Never:
    how = "it goes when that ends" if name is None else f"`tiered snapshot delete {name}` ends that, if nobody needs it"
    raise Pinned(f"{what} cannot be deleted: {label} holds it; {how}")


def _granted(conn: Connection, topic_id: UUID, wanted: Sequence[WantedRange]) -> list[dict[str, int]]:
    """The part of `wanted` that can still be held, as rows. No log start moves meanwhile."""
    row = conn.execute(select(topic.c.name, topic.c.deleted_at_ms).where(topic.c.topic_id == topic_id)).one_or_none()
    if row is None or row.deleted_at_ms is not None:
        raise UnknownTopicId(f"no topic has the id {topic_id}, or it was deleted")
    bounds = select(partition.c.partition, partition.c.log_start_offset).where(partition.c.topic_id == topic_id)
    starts = {each.partition: each.log_start_offset for each in conn.execute(bounds)}
    granted = []
    for each in wanted:
        log_start_offset = starts.get(each.partition)
        if log_start_offset is None:
            raise UnknownTopicOrPartition(f"topic {row.name} has no partition {each.partition}")
        start_offset = log_start_offset if each.start_offset is None else each.start_offset
        if start_offset < log_start_offset:
            raise OffsetOutOfRange(
                f"{row.name}-{each.partition}: offsets from {start_offset} on cannot be pinned, what is below "
                f"{log_start_offset} is deleted already"
            )
        end_offset = max(start_offset, each.end_offset)
        granted.append({"partition": each.partition, "start_offset": start_offset, "end_offset": end_offset})
    return granted


def _held_of(conn: Connection, topic_id: UUID, number: int) -> Select[Any]:
    """The first range that is held of a partition, with the name and the owner of what holds it."""
    return (
        select(pinned_range, pin.c.name, pin.c.owner)
        .join(pin, pin.c.pin_id == pinned_range.c.pin_id)
        .where(
            pinned_range.c.topic_id == topic_id,
            pinned_range.c.partition == number,
            pinned_range.c.start_offset < pinned_range.c.end_offset,
            _is_live(conn),
        )
        .order_by(pinned_range.c.start_offset)
        .limit(1)
    )


def _is_live(conn: Connection) -> ColumnElement[bool]:
    return or_(pin.c.expires_at_ms.is_(None), pin.c.expires_at_ms > now_ms(conn))


def _forget_expired(conn: Connection) -> None:
    """Every new pin removes ended ones, so that their number is bounded. A name is free at once."""
    ended_for_long = pin.c.expires_at_ms <= now_ms(conn) - PURGE_MARGIN_MS
    _remove(conn, or_(ended_for_long, pin.c.name.is_not(None) & (pin.c.expires_at_ms <= now_ms(conn))))


def _remove(conn: Connection, condition: ColumnElement[bool]) -> None:
    conn.execute(delete(pinned_range).where(pinned_range.c.pin_id.in_(select(pin.c.pin_id).where(condition))))
    conn.execute(delete(pin).where(condition))


def _rows(conn: Connection, *conditions: ColumnElement[bool]) -> tuple[PinRow, ...]:
    statement = (
        select(pin, topic.c.name.label("topic"))
        .join(topic, topic.c.topic_id == pin.c.topic_id)
        .where(*conditions)
        .order_by(pin.c.name, pin.c.created_at_ms, pin.c.pin_id)
    )
    rows = conn.execute(statement).mappings().all()
    ranges: dict[UUID, list[PinnedRange]] = {row["pin_id"]: [] for row in rows}
    wanted = select(pin.c.pin_id).where(*conditions)
    held_by = select(pinned_range).where(pinned_range.c.pin_id.in_(wanted)).order_by(pinned_range.c.partition)
    for each in conn.execute(held_by):
        if each.pin_id in ranges:
            ranges[each.pin_id].append(
                PinnedRange(partition=each.partition, start_offset=each.start_offset, end_offset=each.end_offset)
            )
    return tuple(PinRow(**row, ranges=tuple(ranges[row["pin_id"]])) for row in rows)
