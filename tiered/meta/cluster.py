"""The cluster's one row: its identity, and the number of the last change.

Owns `take_number`, the lock that puts all changes of the control plane in one order. Must never be
bypassed: a function that changes topics, partitions, brokers, settings or segments takes a number before
it reads anything, and writes it into every row it changes.

Taking the number locks the row until the transaction ends, so numbers appear in the order of commits. A
sequence would not do: a lower number can commit later, and a reader that asks for `> last` misses it. It
also means that what a function reads after it, nobody else is changing: that is what makes checks across
tables safe under READ COMMITTED, where they would otherwise suffer write skew.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.sql.elements import ColumnElement

from tiered.errors import CorruptMetadata, MetadataWentBack
from tiered.ids import KeptDisk
from tiered.meta.tables import ONLY_ROW, cluster

CHANNEL = "tiered_change"
"""What PostgreSQL notifies on, once for each change. Channels are the database's own."""
MAX_IDLE_SETTING = "tiered.max_idle_in_change_ms"
"""A setting of the connection, made for this."""
SEEN = "tiered_seen"
"""In the `info` of a connection: the greatest number that its transaction took or read (`history`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """Which cluster this database describes, and how far its feed is."""

    cluster_id: str
    created_at_ms: int
    change_number: int
    settings_change_number: int
    security_change_number: int = 0
    went_back: str | None = None
    """Why nobody may use this database, where a broker has seen more in it than it has."""
    kept_disks: tuple[KeptDisk, ...] = ()
    """The disks that a restore took along, and that no broker has registered with yet."""


def ensure(conn: Connection, *, cluster_id: str, now_ms: int) -> ClusterRow:
    """The cluster's row; made with `cluster_id` when there is none. An existing id always wins.

    Safe when two brokers start at once on PostgreSQL: the loser of the insert gets a unique violation, so
    this takes the table's lock first (once in the life of a cluster).
    """
    row = find(conn)
    if row is not None:
        return row
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql("LOCK TABLE cluster IN EXCLUSIVE MODE")
        row = find(conn)
        if row is not None:
            return row
    conn.execute(
        insert(cluster).values(
            id=ONLY_ROW, cluster_id=cluster_id, created_at_ms=now_ms, change_number=0, settings_change_number=0
        )
    )
    return ClusterRow(cluster_id=cluster_id, created_at_ms=now_ms, change_number=0, settings_change_number=0)


def load(conn: Connection) -> ClusterRow:
    """The cluster's row. Raises `CorruptMetadata` before `ensure` was ever called."""
    row = find(conn)
    if row is None:
        raise CorruptMetadata("the metadata database describes no cluster: start a broker on it first")
    return row


def claim_store(conn: Connection, identity: str) -> str:
    """The identity of the cluster's object store: this one from now on, where none is recorded. Two who start at once
    get the same answer: the second waits for the row."""
    recorded = select(cluster.c.store).where(cluster.c.id == ONLY_ROW)
    found = conn.execute(recorded).scalar_one()
    if found is None:
        conn.execute(update(cluster).where(cluster.c.id == ONLY_ROW, cluster.c.store.is_(None)).values(store=identity))
        found = conn.execute(recorded).scalar_one()
    return str(found)


def recorded_store(conn: Connection) -> str | None:
    """The identity of the cluster's object store, where one is recorded."""
    found = conn.execute(select(cluster.c.store).where(cluster.c.id == ONLY_ROW)).scalar_one_or_none()
    return None if found is None else str(found)


def take_number(conn: Connection) -> int:
    """The number of this transaction's change, and with it the lock that every change takes.

    Must come before any other lock, but those of coordinators' slots: what all wait for while they hold nothing else
    can be part of no deadlock. On PostgreSQL whoever listens (`listener`) is woken by the commit. Raises
    MetadataWentBack once any broker has said so: nothing is changed any more, from that moment on.
    """
    row = conn.execute(_next_number(conn.dialect.name)).one_or_none()
    if row is None:
        raise CorruptMetadata("the metadata database describes no cluster: start a broker on it first")
    number, went_back = row[:2]
    if went_back is not None:
        raise MetadataWentBack(went_back)
    return saw(conn, int(number))


def saw(conn: Connection, change_number: int) -> int:
    """The number, which whoever commits this transaction has seen from then on."""
    conn.info[SEEN] = max(change_number, conn.info.get(SEEN, change_number))
    return change_number


@cache  # Statements that are asked for all the time are made once: making one costs more than running it.
def _next_number(dialect: str) -> Any:
    # Sent by the commit, and only by it.
    notification = (func.pg_notify(CHANNEL, ""),) if dialect == "postgresql" else ()
    return (
        update(cluster)
        .where(cluster.c.id == ONLY_ROW)
        .values(change_number=cluster.c.change_number + 1)
        .returning(cluster.c.change_number, cluster.c.went_back, *notification, *end_if_idle(dialect))
    )


def end_if_idle(dialect: str) -> tuple[ColumnElement[Any], ...]:
    """A column for a statement that locks a row on which all wait: PostgreSQL then soon cuts off a client that hangs.

    Between two statements of such a transaction is only this process's own work. It costs no round trip.
    """
    if dialect != "postgresql":
        return ()
    return (func.set_config("idle_in_transaction_session_timeout", func.current_setting(MAX_IDLE_SETTING, True), True),)


_ROW = select(
    cluster.c.cluster_id,
    cluster.c.created_at_ms,
    cluster.c.change_number,
    cluster.c.settings_change_number,
    cluster.c.security_change_number,
    cluster.c.went_back,
    cluster.c.kept_disks,
).where(cluster.c.id == ONLY_ROW)


def find(conn: Connection) -> ClusterRow | None:
    """The cluster's row, if there is one. Raises CorruptMetadata for one that no broker writes."""
    row = conn.execute(_ROW).mappings().one_or_none()
    if row is None:
        return None
    saw(conn, row["change_number"])
    return ClusterRow(**{**row, "kept_disks": _kept_disks(row["kept_disks"])})


def _kept_disks(rows: Any) -> tuple[KeptDisk, ...]:
    try:
        return tuple(KeptDisk(int(broker_id), str(of), int(epoch)) for broker_id, of, epoch in rows)
    except (TypeError, ValueError):
        raise CorruptMetadata(
            "the disks that a restore took along (kept_disks in the table cluster) are in a form that no restore "
            "writes; if every broker of the restore has started once, set them to []"
        ) from None


def forget_kept_disk(conn: Connection, broker_id: int) -> None:
    """The broker has registered with the disk that it was to keep, and may have another one from now on."""
    row = load(conn)
    left = [disk for disk in row.kept_disks if disk.broker_id != broker_id]
    if len(left) < len(row.kept_disks):
        conn.execute(update(cluster).where(cluster.c.id == ONLY_ROW).values(kept_disks=left))
