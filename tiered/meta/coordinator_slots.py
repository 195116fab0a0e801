"""Who coordinates which consumer groups: one row per slot, whose epoch rises each time it is taken.

Owns `coordinator_slot`. A group belongs to one slot for ever (as long as their number stays). Whoever writes
for a group first calls `lock` in the same transaction: on PostgreSQL the share lock lasts until its end, so a
slot cannot be taken from under a write, and whoever takes it waits until every older write has ended one way
or the other. SQLite's transactions are serial anyway.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from tiered.meta.tables import coordinator_slot


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRow:
    """A slot and the registration of the broker that holds it."""

    slot: int
    broker_id: int
    broker_epoch: int
    slot_epoch: int
    change_number: int


def take_all(conn: Connection, *, broker_id: int, broker_epoch: int, slot_count: int) -> Mapping[int, int]:
    """The epochs of slots 0 to `slot_count - 1`, which now belong to this registration.

    Each epoch is above that of every slot there ever was: with another number of slots a group moves to
    another one, and its rows must still be written.
    """
    known = _lock_for_update(conn)
    epoch = max((row.slot_epoch for row in known), default=0) + 1
    values = {"broker_id": broker_id, "broker_epoch": broker_epoch, "slot_epoch": epoch}
    conn.execute(update(coordinator_slot).where(coordinator_slot.c.slot < slot_count).values(values))
    missing = sorted(set(range(slot_count)) - {row.slot for row in known})
    if missing:
        conn.execute(insert(coordinator_slot), [{"slot": slot, **values} for slot in missing])
    return dict.fromkeys(range(slot_count), epoch)


def retake_own(conn: Connection, *, broker_id: int, broker_epoch: int) -> Mapping[int, int]:
    """The new epochs of the slots that this registration still holds; those of others are left alone.

    After it, no write under an older epoch of these slots can happen any more: those whose outcome is unknown
    have been committed, or never will be.
    """
    known = _lock_for_update(conn)
    epoch = max((row.slot_epoch for row in known), default=0) + 1
    own = (coordinator_slot.c.broker_id == broker_id, coordinator_slot.c.broker_epoch == broker_epoch)
    conn.execute(update(coordinator_slot).where(*own).values(slot_epoch=epoch))
    return {row.slot: epoch for row in known if (row.broker_id, row.broker_epoch) == (broker_id, broker_epoch)}


def changed_since(conn: Connection, number: int) -> tuple[SlotRow, ...]:
    """The rows whose `change_number` is above `number`, by slot."""
    statement = select(coordinator_slot).where(coordinator_slot.c.change_number > number)
    return tuple(SlotRow(**row) for row in conn.execute(statement.order_by(coordinator_slot.c.slot)).mappings())


def lock(conn: Connection, slots: Iterable[int]) -> Mapping[int, SlotRow]:
    """These slots as they are, and as they stay until the transaction ends. Missing ones are missing."""
    statement = select(coordinator_slot).where(coordinator_slot.c.slot.in_(sorted(set(slots))))
    # In one order, so that two of them never wait for each other.
    found = conn.execute(statement.order_by(coordinator_slot.c.slot).with_for_update(read=True)).mappings()
    return {row["slot"]: SlotRow(**row) for row in found}


def _lock_for_update(conn: Connection) -> tuple[SlotRow, ...]:
    if conn.dialect.name == "postgresql":
        # The table may be empty: a lock of no rows would let two brokers insert the same ones.
        conn.exec_driver_sql("LOCK TABLE coordinator_slot IN EXCLUSIVE MODE")
    found = conn.execute(select(coordinator_slot).order_by(coordinator_slot.c.slot).with_for_update()).mappings()
    return tuple(SlotRow(**row) for row in found)
