"""Who serves: one row per broker id, with the epoch of its newest registration.

Owns registration, heartbeats and fencing. Must never decide that a broker is dead: the controller does.
"""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.sql.elements import ColumnElement

from tiered.errors import StaleBrokerEpoch
from tiered.meta.cluster import take_number
from tiered.meta.tables import broker


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """A registered broker. `host` and `port` are what clients are told."""

    broker_id: int
    broker_epoch: int
    boot_id: str
    fenced: bool
    heartbeat_at_ms: int
    host: str
    port: int
    http_host: str | None
    http_port: int | None
    rack: str | None
    incarnation_id: UUID | None
    change_number: int


def register(
    conn: Connection,
    *,
    broker_id: int,
    host: str,
    port: int,
    boot_id: str,
    now_ms: int,
    rack: str | None = None,
    http_host: str | None = None,
    http_port: int | None = None,
) -> int:
    """The new `broker_epoch`: larger than every earlier one of any broker. The newest registration wins.

    An older process with this id learns of it from its next heartbeat. Safe to repeat: a repeated
    registration merely takes a newer epoch.
    """
    number = take_number(conn)
    values = {
        "broker_epoch": number,
        "boot_id": boot_id,
        "fenced": False,
        "heartbeat_at_ms": now_ms,
        "host": host,
        "port": port,
        "http_host": http_host,
        "http_port": http_port,
        "rack": rack,
        "change_number": number,
    }
    if conn.execute(update(broker).where(broker.c.broker_id == broker_id).values(values)).rowcount == 0:
        conn.execute(insert(broker).values(broker_id=broker_id, **values))
    return number


def heartbeat(conn: Connection, *, broker_id: int, broker_epoch: int, now_ms: int) -> None:
    """Says that this registration lives. Raises `StaleBrokerEpoch` when a newer one took its place.

    Not a change of the feed: nobody but the controller reads heartbeats.
    """
    statement = update(broker).where(*_registration(broker_id, broker_epoch)).values(heartbeat_at_ms=now_ms)
    _require_one(conn.execute(statement).rowcount, broker_id, broker_epoch)


def fence(conn: Connection, *, broker_id: int, broker_epoch: int) -> None:
    """Takes this registration out of service: it cannot be elected until it registers again.

    A controlled shutdown does it to itself, the controller to a broker whose heartbeats stopped. Raises
    `StaleBrokerEpoch` when a newer registration exists. Fencing a fenced one changes nothing.
    """
    number = take_number(conn)
    statement = update(broker).where(*_registration(broker_id, broker_epoch)).values(fenced=True, change_number=number)
    _require_one(conn.execute(statement).rowcount, broker_id, broker_epoch)


def unregister(conn: Connection, *, broker_id: int) -> None:
    """Forgets a broker that will not come back. Partitions still name it until they are reassigned."""
    take_number(conn)
    conn.execute(delete(broker).where(broker.c.broker_id == broker_id))


def load_all(conn: Connection) -> tuple[BrokerRow, ...]:
    """Every registered broker, fenced ones included, by id."""
    return tuple(BrokerRow(**row) for row in conn.execute(select(broker).order_by(broker.c.broker_id)).mappings())


def load_ids(conn: Connection) -> frozenset[int]:
    """The ids of every registered broker."""
    return frozenset(conn.execute(select(broker.c.broker_id)).scalars())


def changed_since(conn: Connection, number: int) -> tuple[BrokerRow, ...]:
    """The rows whose `change_number` is above `number`."""
    statement = select(broker).where(broker.c.change_number > number).order_by(broker.c.broker_id)
    return tuple(BrokerRow(**row) for row in conn.execute(statement).mappings())


def _registration(broker_id: int, broker_epoch: int) -> tuple[ColumnElement[bool], ...]:
    return broker.c.broker_id == broker_id, broker.c.broker_epoch == broker_epoch


def _require_one(rows: int, broker_id: int, broker_epoch: int) -> None:
    if rows == 0:
        raise StaleBrokerEpoch(
            f"broker {broker_id} was registered again after epoch {broker_epoch}: another process serves under "
            "this id, so this one must stop"
        )
