"""Elections, fencing and reassignments: any number of partitions changed in one transaction.

Owns the one way in which anybody but a partition's leader changes who replicates it and who leads. `decide` brings
the rule (`rules.replication.elections`, `rules.replication.reassignment`); here it is carried out as compare-and-swaps
behind the feed's lock, so that two controllers at once do no harm: the second one finds nothing left to decide. Must
never decide.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, update

from tiered.ids import InSyncReplica, TopicPartition
from tiered.meta import partitions, replica_sets
from tiered.meta.cluster import take_number
from tiered.meta.partitions import PartitionRow
from tiered.meta.tables import broker
from tiered.rules.replication.replica_set import NO_LEADER, ReplicaSet, Standings, is_current

Decide = Callable[[PartitionRow, Standings], ReplicaSet | None]
"""A partition's new replica set; None leaves it alone. Called once for each partition, in no particular order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """The result of a change: `changed` are the rows as they are now, `fenced` the brokers taken out of service."""

    change_number: int
    changed: tuple[PartitionRow, ...]
    fenced: tuple[InSyncReplica, ...]


def change_replica_sets(
    conn: Connection,
    decide: Decide,
    *,
    fence: Collection[InSyncReplica] = (),
    only: Collection[TopicPartition] | None = None,
) -> Elected:
    """Writes `decide`'s answer for every partition of living topics, or for those in `only`, with the next epochs.

    First the registrations in `fence` are taken out of service, those of them that are still current and serve:
    `decide` sees the standings after that. Repeating it after an unknown outcome is harmless. An error of `decide` ends
    the transaction, and nothing is changed.
    """
    change_number = take_number(conn)
    fenced = tuple(each for each in fence if _fence(conn, each, change_number))
    standings = replica_sets.load_standings(conn)
    found = partitions.load_all(conn) if only is None else partitions.load_living(conn, only)
    changed = change_known(conn, decide, found, standings, change_number=change_number)
    return Elected(change_number=change_number, changed=changed, fenced=fenced)


def change_known(
    conn: Connection, decide: Decide, rows: Sequence[PartitionRow], standings: Standings, *, change_number: int
) -> tuple[PartitionRow, ...]:
    """The rows of `rows` that `decide` changed: for transactions that already hold a change number. One with a fault is
    left alone, and the others are decided."""
    changed = []
    for row in rows:
        if row.fault:
            continue
        after = decide(row, standings)
        if after is not None and after != row.replica_set:
            _require_lawful(row.replica_set, after, standings)
            changed.append(_changed(row, after, change_number))
    replica_sets.write(conn, changed)
    return tuple(changed)


def _changed(row: PartitionRow, after: ReplicaSet, change_number: int) -> PartitionRow:
    return replace(
        row,
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        partition_epoch=row.partition_epoch + 1,
        isr=after.isr,
        replicas=after.replicas,
        adding_replicas=after.adding_replicas,
        removing_replicas=after.removing_replicas,
        change_number=change_number,
    )


def _require_lawful(before: ReplicaSet, after: ReplicaSet, standings: Standings) -> None:
    """Stops a rule that is broken before it breaks a log (rules 1 and 2, R1)."""
    assert after.isr, "somebody must stay in the ISR, or nobody could ever be elected"
    assert {each.broker_id for each in after.isr} <= set(after.replicas), "only replicas can be in sync"
    assert {*after.adding_replicas, *after.removing_replicas} <= set(after.replicas), "both are among the replicas"
    risen = after.leader_epoch - before.leader_epoch
    assert risen in (0, 1), "a leader epoch rises one by one"
    assert risen or after.leader == before.leader, "another leader needs another leader epoch"
    if after.leader != NO_LEADER and risen:
        member = after.member(after.leader)
        assert member is not None, "a leader is elected from the ISR"
        assert is_current(member, standings), "a leader's registration is current and in service"


def _fence(conn: Connection, registration: InSyncReplica, change_number: int) -> bool:
    statement = (
        update(broker)
        .where(
            broker.c.broker_id == registration.broker_id,
            broker.c.broker_epoch == registration.broker_epoch,
            broker.c.fenced.is_(False),
        )
        .values(fenced=True, change_number=change_number)
    )
    return conn.execute(statement).rowcount == 1
