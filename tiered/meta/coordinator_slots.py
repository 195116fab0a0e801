"""The coordinators of groups and transactions: one row per slot, whose epoch rises each time it gets a holder.

Owns `coordinator_slot`. A group, or a transactional id, belongs to one slot for ever (as long as their number stays).
Every write for it first calls `lock` in its transaction: on PostgreSQL the share lock lasts until its end, so a slot
cannot be taken from under a write, and its next holder waits until every older write has ended one way or the other.
SQLite's transactions are serial anyway.

A slot changes hands in one transaction that locks it first and takes the change's number afterwards: while it
waits for a write that hangs, nothing else of the control plane waits for it. For the same reason none of these
functions may run in a transaction that has taken a number already.

An epoch is a tenure and, in its lowest bits, how often the holder has taken the slot again within it. A tenure
is the number of the change that began it, so it is above every other one of any slot.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, Select, Table, bindparam, delete, insert, select, update

from tiered.errors import InvalidConfig
from tiered.meta import brokers, groups
from tiered.meta.cluster import take_number
from tiered.meta.tables import consumer_group, coordinator_slot, transactional_producer
from tiered.rules.groups.coordinator_slot import assigned
from tiered.rules.groups.coordinator_slot import coordinator_slot as slot_of

TENURE_BITS = 20
RESLOTTED_AT_ONCE = 1_000


def tenure_of(slot_epoch: int) -> int:
    """The tenure that the epoch is of."""
    return slot_epoch >> TENURE_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRow:
    """A slot and the registration of the broker that holds it."""

    slot: int
    broker_id: int
    broker_epoch: int
    slot_epoch: int
    change_number: int

    @property
    def tenure(self) -> int:
        """Equal for as long as the slot has not changed hands, not even away and back."""
        return tenure_of(self.slot_epoch)

    def is_held_by(self, broker_id: int, broker_epoch: int) -> bool:
        return (self.broker_id, self.broker_epoch) == (broker_id, broker_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The slots that changed hands: the rows as they are now, and the number of the change; None where none did."""

    change_number: int | None
    rows: tuple[SlotRow, ...]
    has_waiting: bool = False
    """Slots that should have moved, and are being written for at this moment."""


_Decide = Callable[[Mapping[int, SlotRow], Mapping[int, int]], Mapping[int, int]]
"""From all slots and the epochs of the brokers in service, by id: which slots get which broker."""


def take_unheld(conn: Connection, *, broker_id: int, broker_epoch: int, slot_count: int, now_ms: int) -> Moved:
    """This registration gets all slots that nobody in service holds. Of their groups' members, only stored ones stay.

    None, when it is not in service itself. Raises `InvalidConfig` when other brokers spread groups over another
    number of slots: two of them would coordinate the same group.
    """
    _resize(conn, broker_id=broker_id, slot_count=slot_count)

    def decide(slots: Mapping[int, SlotRow], live: Mapping[int, int]) -> Mapping[int, int]:
        if live.get(broker_id) != broker_epoch:
            return {}
        return {slot: broker_id for slot, holder in holders(slots, live, slot_count).items() if holder is None}

    return _move(conn, decide, now_ms=now_ms)


def balance(
    conn: Connection, *, slot_count: int, now_ms: int, may_disturb: bool = False, may_wait: bool = True
) -> Moved:
    """Slots of brokers that are not in service go to those that are, and then all get equally many.

    Without `may_disturb`, groups with members are left where they are as long as their coordinator lives. Without
    `may_wait`, slots that are being written for are left out: a broker that hangs in a write holds up its own
    slots alone.
    """

    def decide(slots: Mapping[int, SlotRow], live: Mapping[int, int]) -> Mapping[int, int]:
        held = holders(slots, live, slot_count)
        # Slots without groups go first.
        busy = groups.slots_with_members(conn)
        changes = assigned(held, live, may_move=held.keys() - busy)
        return {**changes, **assigned({**held, **changes}, live)} if may_disturb else changes

    return _move(conn, decide, now_ms=now_ms, may_wait=may_wait)


def hand_over(conn: Connection, *, broker_id: int, broker_epoch: int, slot_count: int, now_ms: int) -> Moved:
    """The slots of this registration go to the others in service; they stay where there is nobody else."""

    def decide(slots: Mapping[int, SlotRow], live: Mapping[int, int]) -> Mapping[int, int]:
        others = {each: epoch for each, epoch in live.items() if each != broker_id}
        changes = assigned(holders(slots, others, slot_count), others, may_move=())
        own = {slot for slot, row in slots.items() if row.is_held_by(broker_id, broker_epoch)}
        return {slot: to for slot, to in changes.items() if slot in own}

    return _move(conn, decide, now_ms=now_ms)


def retake_own(conn: Connection, *, broker_id: int, broker_epoch: int) -> tuple[SlotRow, ...]:
    """All slots as they are, those that this registration still holds under new epochs of the same tenures.

    After it, no write under an older epoch of these slots can happen any more: those whose outcome is unknown
    have been committed, or never will be. No change of the feed: others need not know.
    """
    own = (coordinator_slot.c.broker_id == broker_id, coordinator_slot.c.broker_epoch == broker_epoch)
    held = _in_order(select(coordinator_slot.c.slot).where(*own)).with_for_update()
    locked = set(conn.execute(held).scalars())
    # By their numbers: a slot that came to this registration only now would be locked behind its back and out of order,
    # and under a tenure that is newer than any of its writes.
    these = coordinator_slot.c.slot.in_(sorted(locked))
    conn.execute(update(coordinator_slot).where(these).values(slot_epoch=coordinator_slot.c.slot_epoch + 1))
    return tuple(load_all(conn).values())


# By slot, also for whatever locks them: so no two that do it ever wait for each other.
_ALL = select(coordinator_slot).order_by(coordinator_slot.c.slot)
_CHANGED = _ALL.where(coordinator_slot.c.change_number > bindparam("number"))
_OF_ONE = select(coordinator_slot.c.slot, coordinator_slot.c.slot_epoch).where(
    coordinator_slot.c.broker_id == bindparam("its_id"), coordinator_slot.c.broker_epoch == bindparam("its_epoch")
)
_SOME = _ALL.where(coordinator_slot.c.slot.in_(bindparam("slots", expanding=True)))
_LOCK_SHARED = _SOME.with_for_update(read=True)
_LOCK_ALONE = _SOME.with_for_update()


def load_all(conn: Connection) -> Mapping[int, SlotRow]:
    """Every slot that there is, by its number."""
    found = conn.execute(_ALL).mappings()
    return {row["slot"]: SlotRow(**row) for row in found}


def tenures_of(conn: Connection, *, broker_id: int, broker_epoch: int) -> Mapping[int, int]:
    """The slots that this registration holds at this moment, each with its tenure."""
    found = conn.execute(_OF_ONE, {"its_id": broker_id, "its_epoch": broker_epoch})
    return {row.slot: tenure_of(row.slot_epoch) for row in found}


def changed_since(conn: Connection, number: int) -> tuple[SlotRow, ...]:
    """The rows whose `change_number` is above `number`, by slot."""
    return tuple(SlotRow(**row) for row in conn.execute(_CHANGED, {"number": number}).mappings())


def lock(conn: Connection, slots: Iterable[int], *, alone: bool = False) -> Mapping[int, SlotRow]:
    """These slots as they are, and as they stay until the transaction ends. Missing ones are missing.

    Any number of writers hold a slot at once, but for one that holds it `alone`.
    """
    found = conn.execute(_LOCK_ALONE if alone else _LOCK_SHARED, {"slots": sorted(set(slots))}).mappings()
    return {row["slot"]: SlotRow(**row) for row in found}


def _move(conn: Connection, decide: _Decide, *, now_ms: int, may_wait: bool = True) -> Moved:
    """Does what `decide` says, twice: before anything is locked, to know what, and then of what is locked."""
    wanted = decide(load_all(conn), _live(conn))
    if not wanted:
        return Moved(change_number=None, rows=())
    locked = _lock_for_update(conn, wanted, may_wait=may_wait)
    number = take_number(conn)
    # From here on nobody else makes or moves a slot, or changes a registration.
    slots, live = load_all(conn), _live(conn)
    changes = {
        slot: broker_id
        for slot, broker_id in decide(slots, live).items()
        if slot in locked or (slot in wanted and slot not in slots)
    }
    tenure = max([number, *(row.tenure + 1 for row in slots.values())])
    values = {"slot_epoch": tenure << TENURE_BITS, "change_number": number}
    for broker_id in sorted(set(changes.values())):
        holder = {**values, "broker_id": broker_id, "broker_epoch": live[broker_id]}
        given = sorted(slot for slot, to in changes.items() if to == broker_id)
        conn.execute(update(coordinator_slot).where(coordinator_slot.c.slot.in_(given)).values(holder))
        missing = [{"slot": slot, **holder} for slot in given if slot not in slots]
        if missing:
            conn.execute(insert(coordinator_slot), missing)
    # Members that are not stored are in nobody's memory any more: those who live join again.
    groups.mark_empty(conn, slots=changes, now_ms=now_ms)
    moved = tuple(row for slot, row in load_all(conn).items() if slot in changes)
    return Moved(change_number=number, rows=moved, has_waiting=bool(wanted.keys() & slots.keys() - locked))


def _resize(conn: Connection, *, broker_id: int, slot_count: int) -> None:
    """Where the number of slots is another than it was, every group gets its new slot."""
    slots = load_all(conn)
    if not slots or len(slots) == slot_count:
        return
    _lock_for_update(conn, slots, may_wait=True)
    number = take_number(conn)
    slots, live = load_all(conn), _live(conn)
    others = {row.broker_id for row in slots.values() if live.get(row.broker_id) == row.broker_epoch} - {broker_id}
    if others:
        raise InvalidConfig(
            f"offsets.topic.num.partitions is {slot_count} here and {len(slots)} on broker {min(others)}: give all "
            "brokers the same, or stop them all to change it"
        )
    conn.execute(delete(coordinator_slot).where(coordinator_slot.c.slot >= slot_count))
    # Slots without a holder are taken anew, with missing ones.
    conn.execute(update(coordinator_slot).values(broker_id=-1, change_number=number))
    _reslot(conn, consumer_group.c.group_id, slot_count)
    _reslot(conn, transactional_producer.c.transactional_id, slot_count)


def _reslot(conn: Connection, key: Column[str], slot_count: int) -> None:
    """Every row of the key's table is in the slot that its key has among so many."""
    table, after = key.table, ""
    assert isinstance(table, Table)
    ordered = select(key, table.c.slot).order_by(key).limit(RESLOTTED_AT_ONCE)
    while rows := conn.execute(ordered.where(key > after)).all():
        slots = [(name, before, slot_of(name, slot_count)) for name, before in rows]
        moved = [{"of_key": name, "to_slot": slot} for name, before, slot in slots if slot != before]
        if moved:
            conn.execute(update(table).where(key == bindparam("of_key")).values(slot=bindparam("to_slot")), moved)
        after = rows[-1][0]


def holders(slots: Mapping[int, SlotRow], live: Mapping[int, int], slot_count: int) -> dict[int, int | None]:
    """The broker in service that has each slot; None where there is none."""
    found: dict[int, int | None] = dict.fromkeys(range(slot_count))
    for slot in found:
        row = slots.get(slot)
        if row is not None and live.get(row.broker_id) == row.broker_epoch:
            found[slot] = row.broker_id
    return found


def _live(conn: Connection) -> Mapping[int, int]:
    return {row.broker_id: row.broker_epoch for row in brokers.load_all(conn) if not row.fenced}


def _lock_for_update(conn: Connection, slots: Collection[int], *, may_wait: bool) -> set[int]:
    """The locked ones of these slots; with `may_wait` all of them."""
    statement = select(coordinator_slot.c.slot).where(coordinator_slot.c.slot.in_(sorted(slots)))
    return set(conn.execute(_in_order(statement).with_for_update(skip_locked=not may_wait)).scalars())


def _in_order(slots: Select[Any]) -> Select[Any]:
    """For whatever locks slots: so no two that do it ever wait for each other."""
    return slots.order_by(coordinator_slot.c.slot)
