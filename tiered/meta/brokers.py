"""The brokers in service: one row per broker id, with the epoch of its newest registration.

Owns registration and its rows. Must never decide that a broker is dead: the controller does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from tiered.errors import LostRace, StaleBrokerEpoch, StoreTrouble
from tiered.meta import partitions, replica_sets
from tiered.meta.clock import now_ms
from tiered.meta.cluster import take_number
from tiered.meta.elections import change_known
from tiered.meta.partitions import PartitionRow
from tiered.meta.security_tables import broker_listener
from tiered.meta.tables import broker
from tiered.rules.replication import elections
from tiered.rules.replication.number_claim import Claim, Holder
from tiered.rules.replication.placement import BrokerPlace, place_of
from tiered.rules.replication.replica_set import ReplicaSet, Standing, Standings

HTTP_DOOR, HTTPS = "http", "HTTPS"
"""An HTTP door that speaks TLS is a row among the listeners. No listener has its name: theirs are in capitals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerRow:
    """Where a broker is reached under the name of one listener."""

    name: str
    protocol: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """A registered broker. `host` and `port` are what clients of its first listener are told."""

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
    store_trouble: str | None = None
    """Why the object store is out of its reach, a value of `StoreTrouble`; None where it is not."""
    listeners: tuple[ListenerRow, ...] = ()

    @property
    def standing(self) -> Standing:
        return Standing(self.broker_epoch, self.fenced, reaches_store=self.store_trouble is None)

    @property
    def holder(self) -> Holder:
        """The process that has this number, for a process that wants it."""
        return Holder(self.broker_epoch, self.incarnation_id, self.fenced, self.heartbeat_at_ms)

    @property
    def http_is_secure(self) -> bool:
        """Its HTTP door speaks TLS."""
        return any(each.name == HTTP_DOOR and each.protocol == HTTPS for each in self.listeners)

    @property
    def kafka_listeners(self) -> tuple[ListenerRow, ...]:
        """The listeners for Kafka clients; none of a broker that registered before listeners had names."""
        return tuple(listener for listener in self.listeners if listener.name != HTTP_DOOR)

    @property
    def place(self) -> BrokerPlace:
        return place_of(self.broker_id, rack=self.rack, host=self.host)

    def address(self, listener: str) -> tuple[str, int] | None:
        """The address under this listener's name. A broker registered before listeners had names has one address."""
        if not self.listeners:
            return self.host, self.port
        return next(((each.host, each.port) for each in self.listeners if each.name == listener), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationResult:
    """The result of a registration: the epoch of this process, and whether it continues the one before.

    `changed` are the partitions that it changed, as they are now; `change_number` is its number in the feed.
    """

    broker_epoch: int
    previous_epoch: int | None
    was_clean: bool
    changed: tuple[PartitionRow, ...]
    change_number: int


def register(
    conn: Connection,
    *,
    broker_id: int,
    host: str,
    port: int,
    boot_id: str,
    clean_epoch: int | None,
    rack: str | None = None,
    http_host: str | None = None,
    http_port: int | None = None,
    incarnation_id: UUID | None = None,
    listeners: Sequence[ListenerRow] = (),
    claim: Claim | None = None,
    store_trouble: StoreTrouble | None = None,
) -> RegistrationResult:
    """The new registration: its epoch is larger than every earlier one of any broker.

    It replaces a process that `claim` allows it to, and raises `LostRace` where another process has the number. Without
    a claim the newest one wins. A replaced process learns of it from its next heartbeat. `clean_epoch` is the
    registration whose logs this process still has in full, as its marker says; clean is who continues the very last one
    (rule 8). `rules.replication.elections.registered` is applied to every partition in the same transaction.

    `incarnation_id` is this process's own, for its life. A registration whose answer was lost and that is repeated
    under the same one goes on as it began; without it, its own first try would look like another process, and
    the logs like somebody else's. `store_trouble` is why it does not reach the object store, as far as it has looked.
    """
    number = take_number(conn)
    # Locked, so that no heartbeat comes in between: what the claim is held against is what is replaced.
    before = conn.execute(select(broker).where(broker.c.broker_id == broker_id).with_for_update()).one_or_none()
    if before is not None and claim is not None:
        holder = Holder(before.broker_epoch, before.incarnation_id, before.fenced, before.heartbeat_at_ms)
        if not claim.may_replace(holder):
            raise LostRace(f"broker {broker_id} is registered by another process, at epoch {holder.broker_epoch}")
    previous_epoch = None if before is None else int(before.broker_epoch)
    is_repeated = before is not None and incarnation_id is not None and before.incarnation_id == incarnation_id
    was_clean = is_repeated or (clean_epoch is not None and clean_epoch == previous_epoch)
    values = {
        "broker_epoch": number,
        "boot_id": boot_id,
        "fenced": False,
        "heartbeat_at_ms": now_ms(conn),
        "host": host,
        "port": port,
        "http_host": http_host,
        "http_port": http_port,
        "rack": rack,
        "incarnation_id": incarnation_id,
        "change_number": number,
        "store_trouble": None if store_trouble is None else store_trouble.value,
    }
    if conn.execute(update(broker).where(broker.c.broker_id == broker_id).values(values)).rowcount == 0:
        conn.execute(insert(broker).values(broker_id=broker_id, **values))
    conn.execute(delete(broker_listener).where(broker_listener.c.broker_id == broker_id))
    if listeners:
        conn.execute(insert(broker_listener), [{"broker_id": broker_id, **asdict(each)} for each in listeners])

    def decide(row: PartitionRow, standings: Standings) -> ReplicaSet | None:
        return elections.registered(
            row.replica_set, standings, broker_id=broker_id, previous_epoch=previous_epoch, is_clean=was_clean
        )

    changed = change_known(
        conn, decide, partitions.load_all(conn), replica_sets.load_standings(conn), change_number=number
    )
    return RegistrationResult(
        broker_epoch=number,
        previous_epoch=previous_epoch,
        was_clean=was_clean,
        changed=changed,
        change_number=number,
    )


def fence(conn: Connection, *, broker_id: int, broker_epoch: int) -> None:
    """Takes this registration out of service: it cannot be elected until it beats or registers again.

    No leader is elected in its place: `elections.change_replica_sets` fences and elects in one transaction. Raises
    `StaleBrokerEpoch` when a newer registration exists. Fencing a fenced one changes nothing.
    """
    number = take_number(conn)
    ours = (broker.c.broker_id == broker_id, broker.c.broker_epoch == broker_epoch)
    if conn.execute(update(broker).where(*ours).values(fenced=True, change_number=number)).rowcount == 0:
        raise stale(broker_id, broker_epoch)


def report_store_trouble(conn: Connection, *, broker_id: int, broker_epoch: int, trouble: StoreTrouble | None) -> None:
    """Says why this registration does not reach the object store; None says that it does. Raises `StaleBrokerEpoch`."""
    number = take_number(conn)
    ours = (broker.c.broker_id == broker_id, broker.c.broker_epoch == broker_epoch)
    values = {"store_trouble": None if trouble is None else trouble.value, "change_number": number}
    if conn.execute(update(broker).where(*ours).values(values)).rowcount == 0:
        raise stale(broker_id, broker_epoch)


def unregister(conn: Connection, *, broker_id: int) -> None:
    """Forgets a broker that will not come back. Partitions still name it until they are reassigned."""
    take_number(conn)
    conn.execute(delete(broker_listener).where(broker_listener.c.broker_id == broker_id))
    conn.execute(delete(broker).where(broker.c.broker_id == broker_id))


# Asked for after every change in the cluster: made once.
_ALL = select(broker).order_by(broker.c.broker_id)
_IDS = select(broker.c.broker_id)
_LISTENERS = select(broker_listener).order_by(broker_listener.c.broker_id, broker_listener.c.name)
_CHANGED = _ALL.where(broker.c.change_number > bindparam("number"))


def load_all(conn: Connection) -> tuple[BrokerRow, ...]:
    """Every registered broker, fenced ones included, by id."""
    return _with_listeners(conn, conn.execute(_ALL).mappings().all())


def load(conn: Connection, broker_id: int) -> BrokerRow | None:
    """One registered broker."""
    return next((row for row in load_all(conn) if row.broker_id == broker_id), None)


def load_ids(conn: Connection) -> frozenset[int]:
    """The ids of every registered broker."""
    return frozenset(conn.execute(_IDS).scalars())


def changed_since(conn: Connection, number: int) -> tuple[BrokerRow, ...]:
    """The rows whose `change_number` is above `number`."""
    return _with_listeners(conn, conn.execute(_CHANGED, {"number": number}).mappings().all())


def _with_listeners(conn: Connection, rows: Sequence[Mapping[Any, Any]]) -> tuple[BrokerRow, ...]:
    found: dict[int, list[ListenerRow]] = {}
    # Most changes are of no broker.
    for each in conn.execute(_LISTENERS) if rows else ():
        found.setdefault(each.broker_id, []).append(
            ListenerRow(name=each.name, protocol=each.protocol, host=each.host, port=each.port)
        )
    return tuple(BrokerRow(**row, listeners=tuple(found.get(row["broker_id"], ()))) for row in rows)


def stale(broker_id: int, broker_epoch: int) -> StaleBrokerEpoch:
    """The error for a registration that is not the newest of its id."""
    return StaleBrokerEpoch(
        f"broker {broker_id} was registered again after epoch {broker_epoch}: another process serves under this id, so "
        "this one must stop"
    )
