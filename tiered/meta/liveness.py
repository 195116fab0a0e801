"""Heartbeats and the controller's lease, by the database's clock.

Owns the rows of `lease`, and the beat that a broker makes several times a second. Must never decide that a broker is
dead, and never make anything safe: two brokers that think they hold the lease do no harm (rule 10), because every
change of the control plane is a compare-and-swap.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, delete, or_, select, true, update
from sqlalchemy.sql.elements import ColumnElement

from tiered.meta import cluster as cluster_rows
from tiered.meta.brokers import stale
from tiered.meta.clock import now_ms_in
from tiered.meta.cluster import end_if_idle, take_number
from tiered.meta.tables import broker, cluster, lease
from tiered.meta.upserts import insert_in

CONTROLLER = "controller"
NO_CONTROLLER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A broker's heartbeat. It lives if this value changes from look to look; the time in it proves nothing."""

    broker_id: int
    broker_epoch: int
    fenced: bool
    heartbeat_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """The answer to a broker's heartbeat.

    `was_fenced`: it was out of service, and is not any more. `controller_id` is -1 while no broker holds the lease.
    `change_number` is the feed's, so that a beat is a poll as well. `went_back` is why nobody may use this database.
    """

    was_fenced: bool
    controller_id: int
    is_controller: bool
    beats: tuple[Beat, ...]
    change_number: int
    went_back: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    beats: tuple[Beat, ...]
    holder: int
    is_expired: bool
    change_number: int
    went_back: str | None


def beat(conn: Connection, *, broker_id: int, broker_epoch: int, lease_ms: int, wants_lease: bool = True) -> Pulse:
    """Says that this registration lives, and what it hears of the others.

    A fenced registration that is still the current one is put back into service: only then is a number taken. A
    broker that is shutting down has fenced itself, so it must not beat any more. The controller's lease is renewed
    by its holder, and taken by whoever finds it free or expired.

    A short transaction: run it with a short deadline and `ahead`. Raises `StaleBrokerEpoch` when another process
    has registered under this id.
    """
    seen = _look(conn, lease_ms)
    before = next((each for each in seen.beats if each.broker_id == broker_id), None)
    if before is None or before.broker_epoch != broker_epoch:
        raise stale(broker_id, broker_epoch)
    # Before any row is locked, or this and a fencing could wait for each other.
    change_number = take_number(conn) if before.fenced else seen.change_number
    own = _say(conn, before, unfencing_under=change_number if before.fenced else None)
    holder = NO_CONTROLLER if seen.is_expired else seen.holder
    if wants_lease and (seen.is_expired or seen.holder == broker_id):
        holder = _hold(conn, own, lease_ms)
    return Pulse(
        was_fenced=before.fenced,
        controller_id=holder,
        is_controller=holder == broker_id,
        beats=tuple(own if each.broker_id == broker_id else each for each in seen.beats),
        change_number=change_number,
        went_back=seen.went_back,
    )


def release(conn: Connection, *, broker_id: int, broker_epoch: int) -> bool:
    """True when this registration held the lease: it is free now, and the next beat of anybody takes it."""
    statement = delete(lease).where(
        lease.c.name == CONTROLLER, lease.c.broker_id == broker_id, lease.c.broker_epoch == broker_epoch
    )
    return conn.execute(statement).rowcount == 1


def _look(conn: Connection, lease_ms: int) -> _Seen:
    """One round trip: no cluster without its row, while brokers and the lease may be missing."""
    rows = conn.execute(_looking(conn.dialect.name), {"longest_lease_ms": 2 * lease_ms}).all()
    held = [row for row in rows if row.holder is not None]
    return _Seen(
        beats=tuple(
            Beat(
                broker_id=row.broker_id,
                broker_epoch=row.broker_epoch,
                fenced=bool(row.fenced),
                heartbeat_at_ms=row.heartbeat_at_ms,
            )
            for row in rows
            if row.broker_id is not None
        ),
        holder=held[0].holder if held else NO_CONTROLLER,
        is_expired=bool(held[0].is_expired) if held else True,
        change_number=cluster_rows.saw(conn, rows[0].change_number) if rows else 0,
        went_back=rows[0].went_back if rows else None,
    )


# Every broker makes these several times a second: made once, they cost what running them costs.
@cache
def _looking(dialect: str) -> Any:
    return (
        select(
            cluster.c.change_number,
            cluster.c.went_back,
            lease.c.broker_id.label("holder"),
            _is_free(dialect).label("is_expired"),
            broker.c.broker_id,
            broker.c.broker_epoch,
            broker.c.fenced,
            broker.c.heartbeat_at_ms,
        )
        .select_from(cluster.outerjoin(lease, lease.c.name == CONTROLLER).outerjoin(broker, true()))
        .order_by(broker.c.broker_id)
    )


@cache
def _saying(dialect: str, *, is_unfencing: bool) -> Any:
    values: dict[str, object] = {"heartbeat_at_ms": now_ms_in(dialect)}
    if is_unfencing:
        values |= {"fenced": False, "change_number": bindparam("unfencing_under")}
    return (
        update(broker)
        .where(broker.c.broker_id == bindparam("its_id"), broker.c.broker_epoch == bindparam("its_epoch"))
        .values(values)
        .returning(broker.c.heartbeat_at_ms, broker.c.fenced, *end_if_idle(dialect))
    )


@cache
def _holding(dialect: str) -> Any:
    values = {
        "broker_id": bindparam("its_id"),
        "broker_epoch": bindparam("its_epoch"),
        "expires_at_ms": now_ms_in(dialect) + bindparam("lease_ms"),
    }
    return (
        insert_in(dialect, lease)
        .values(name=CONTROLLER, **values)
        .on_conflict_do_update(
            index_elements=[lease.c.name],
            set_=values,
            where=or_(lease.c.broker_id == bindparam("its_id"), _is_free(dialect)),
        )
        # Without it SQLAlchemy knows no count of an INSERT on PostgreSQL.
        .execution_options(preserve_rowcount=True)
    )


def _say(conn: Connection, before: Beat, *, unfencing_under: int | None) -> Beat:
    values = {"its_id": before.broker_id, "its_epoch": before.broker_epoch}
    if unfencing_under is not None:
        values["unfencing_under"] = unfencing_under
    statement = _saying(conn.dialect.name, is_unfencing=unfencing_under is not None)
    after = conn.execute(statement, values).one_or_none()
    if after is None:
        raise stale(before.broker_id, before.broker_epoch)
    return replace(before, heartbeat_at_ms=after.heartbeat_at_ms, fenced=bool(after.fenced))


def _hold(conn: Connection, own: Beat, lease_ms: int) -> int:
    """The holder of the lease after this broker has tried to take or renew it."""
    its = {"its_id": own.broker_id, "its_epoch": own.broker_epoch}
    lengths = {"lease_ms": lease_ms, "longest_lease_ms": 2 * lease_ms}
    if conn.execute(_holding(conn.dialect.name), {**its, **lengths}).rowcount == 1:
        return own.broker_id
    return int(conn.execute(select(lease.c.broker_id).where(lease.c.name == CONTROLLER)).scalar_one())


def _is_free(dialect: str) -> ColumnElement[bool]:
    # A lease that ends later than anybody grants was granted by a clock that has since been set back.
    now = now_ms_in(dialect)
    return or_(lease.c.expires_at_ms <= now, lease.c.expires_at_ms > now + bindparam("longest_lease_ms"))
