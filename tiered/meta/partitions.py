"""A partition's leadership and bounds, each change one conditional update.

Owns leader, epochs, in-sync replicas, `log_start_offset` and `cold_end_offset`. The replica set changes only by
compare-and-swap on `partition_epoch`: the leader's here, all others in `elections`; offsets only under the leader's
own `leader_epoch`, and only upwards. Must never choose a leader: `rules.replication.elections` does.

T5 holds in every row: `0 <= log_start_offset <= cold_end_offset`. Where `log_start_offset` passes what was
uploaded (DeleteRecords, or a topic that is never uploaded), `cold_end_offset` goes with it: what readers
may not see need not be uploaded any more.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Never
from uuid import UUID

from sqlalchemy import Connection, Select, Text, bindparam, case, cast, exists, func, literal, select, update
from sqlalchemy.sql.elements import ColumnElement

from tiered.errors import (
    CorruptMetadata,
    FencedLeaderEpoch,
    IneligibleReplica,
    LostRace,
    StaleBrokerEpoch,
    TieredError,
    UnknownTopicOrPartition,
)
from tiered.ids import InSyncReplica, TopicId, TopicPartition
from tiered.meta import replica_sets
from tiered.meta.cluster import take_number
from tiered.meta.tables import JsonList, partition, topic
from tiered.rules.partition.partition_state import RowVersion
from tiered.rules.replication.replica_set import NO_LEADER, ReplicaSet, Standings, is_current

MAX_KNOWN_LISTS = 4_096
MAX_NAMED_TOPICS = 1_000
"""More than these are not named in a statement: all rows are read instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One partition as the metadata store knows it. `leader` is -1 while nobody leads.

    Where `fault` says why the row is none that a broker writes, nobody leads it and nobody holds it: elections leave
    such a row alone, and brokers halt the partition.
    """

    topic_id: UUID
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[InSyncReplica, ...]
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    log_start_offset: int
    cold_end_offset: int
    change_number: int
    fault: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        """Its name."""
        return TopicPartition(TopicId(self.topic_id), self.partition)

    @property
    def version(self) -> RowVersion:
        """What orders it among the versions of this row."""
        return RowVersion(self.partition_epoch, self.leader_epoch, self.change_number)

    @property
    def replica_set(self) -> ReplicaSet:
        """The columns that elections and reassignments change."""
        return ReplicaSet(
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            isr=self.isr,
            replicas=self.replicas,
            adding_replicas=self.adding_replicas,
            removing_replicas=self.removing_replicas,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """A leader's change of one partition: `isr`, if the row is still at these epochs."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    expected_partition_epoch: int
    isr: tuple[InSyncReplica, ...]

    @property
    def topic_partition(self) -> TopicPartition:
        """Which partition it is about."""
        return TopicPartition(TopicId(self.topic_id), self.partition)


def load_all(conn: Connection) -> tuple[PartitionRow, ...]:
    """Every partition of every topic that is not deleted, by topic id and number."""
    return _rows(
        conn,
        _SELECT.join(topic, topic.c.topic_id == partition.c.topic_id)
        .where(topic.c.deleted_at_ms.is_(None))
        .order_by(partition.c.topic_id, partition.c.partition),
    )


def load_living(conn: Connection, wanted: Collection[TopicPartition]) -> tuple[PartitionRow, ...]:
    """The rows of the partitions whose topics are not deleted."""
    names = frozenset(wanted)
    of_topics = {each.topic_id for each in names}
    if len(of_topics) > MAX_NAMED_TOPICS:
        rows = load_all(conn)
    else:
        rows = _rows(conn, _LIVING, {"of_topics": of_topics})
    return tuple(row for row in rows if row.topic_partition in names)


def load(conn: Connection, topic_id: UUID, number: int) -> PartitionRow:
    """One partition. Raises `UnknownTopicOrPartition`, and `CorruptMetadata` for a row with a fault."""
    found = _rows(conn, _ONE, {"of_topic": topic_id, "number": number})
    if not found:
        raise _unknown(topic_id, number)
    if found[0].fault:
        raise CorruptMetadata(found[0].fault)
    return found[0]


def changed_since(conn: Connection, change_number: int) -> tuple[PartitionRow, ...]:
    """The rows whose `change_number` is above the one given, those of deleted topics included."""
    return _rows(conn, _CHANGED, {"change": change_number})


def raise_log_start_offset(
    conn: Connection, topic_id: UUID, number: int, *, leader_epoch: int, new_log_start_offset: int, change_number: int
) -> None:
    """Moves `log_start_offset` at least as high as asked, under the caller's change number: it never goes back.

    Committed segments below it stay committed until `segments.retire_before`. Raises `FencedLeaderEpoch`
    when another leader took over, `UnknownTopicOrPartition`, and `CorruptMetadata` when SQL shows an older
    epoch than the caller's (R1).
    """
    statement = (
        update(partition)
        .where(
            *this_partition(topic_id, number),
            partition.c.leader_epoch == leader_epoch,
            partition.c.log_start_offset < new_log_start_offset,
        )
        .values(
            log_start_offset=new_log_start_offset,
            cold_end_offset=case(
                (partition.c.cold_end_offset < new_log_start_offset, new_log_start_offset),
                else_=partition.c.cold_end_offset,
            ),
            change_number=change_number,
        )
    )
    if conn.execute(statement).rowcount == 0:
        require_leader_epoch(load(conn, topic_id, number), leader_epoch)  # else: it already was that high


def change_isrs(
    conn: Connection, *, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
) -> tuple[PartitionRow | TieredError, ...]:
    """The outcome of each change that a leader wants, in one transaction: the new row, or why it did not change.

    A changed partition has the `isr` of its change and the next `partition_epoch`: its leader's compare-and-swap. It
    is changed only where all of this holds (rule 1): the caller leads in `leader_epoch`, the row is at
    `expected_partition_epoch`, and the registrations of the caller and of every added member are current and in
    service. A change whose outcome is unknown is settled by another one at the same expected epoch (rule 7), be it the
    same: one that has happened is answered with its row. At most one change of a partition.

    The refusals are `LostRace` where the row has another partition epoch (it then was changed, perhaps by an earlier
    try), `FencedLeaderEpoch`, `IneligibleReplica` (an added member), `CorruptMetadata` where SQL shows older epochs
    than the caller has seen (R1), and `UnknownTopicOrPartition`. Raises `StaleBrokerEpoch` when the caller's
    registration is not current or fenced: nothing is changed then, although a change that had happened before is still
    answered.
    """
    change_number = take_number(conn)
    standings = replica_sets.load_standings(conn)
    rows = {row.topic_partition: row for row in _load_some(conn, changes)}
    leader = InSyncReplica(broker_id, broker_epoch)
    answers: list[PartitionRow | TieredError] = []
    changed: list[PartitionRow] = []
    for change in changes:
        before = rows.get(change.topic_partition)
        refusal = _refusal(before, change, leader, standings)
        if before is None or refusal is not None:
            answers.append(refusal or _unknown(change.topic_id, change.partition))
        elif before.partition_epoch != change.expected_partition_epoch:
            answers.append(before)  # it has happened
        else:
            after = replace(
                before, isr=change.isr, partition_epoch=before.partition_epoch + 1, change_number=change_number
            )
            answers.append(after)
            changed.append(after)
    if changed and not is_current(leader, standings):
        raise StaleBrokerEpoch(
            f"epoch {broker_epoch} of broker {broker_id} is not its current registration, or it is fenced: nothing was "
            "changed; the next heartbeat tells which"
        )
    replica_sets.write(conn, changed)
    return tuple(answers)


def require_leader_epoch(row: PartitionRow, leader_epoch: int) -> None:
    """Returns when `leader_epoch` is the partition's. Raises `FencedLeaderEpoch`, or `CorruptMetadata` (R1)."""
    if row.leader_epoch != leader_epoch:
        _refuse_epoch(row, leader_epoch)


def this_partition(topic_id: UUID, number: int) -> tuple[ColumnElement[bool], ...]:
    """The condition that names one partition's row."""
    return partition.c.topic_id == topic_id, partition.c.partition == number


def is_held_by(conn: Connection, broker_id: int) -> ColumnElement[bool]:
    """The condition that a partition has a replica on this broker."""
    if conn.dialect.name == "postgresql":
        return partition.c.replicas.op("@>", is_comparison=True)(cast([broker_id], JsonList))
    readable = case((func.json_valid(partition.c.replicas) == 1, partition.c.replicas), else_=literal("[]", Text))
    each = func.json_each(readable).table_valued("value")
    return exists(select(each.c.value).where(each.c.value == broker_id))


_LISTS = ("isr", "replicas", "adding_replicas", "removing_replicas")
_NUMBERS = ("leader", "leader_epoch", "partition_epoch", "log_start_offset", "cold_end_offset", "change_number")
# The lists as text, and each text read once: a cluster has many partitions and few different lists.
_SELECT = select(*(cast(each, Text) if each.name in _LISTS else each for each in partition.c))
_ONE = _SELECT.where(partition.c.topic_id == bindparam("of_topic"), partition.c.partition == bindparam("number"))
_LIVING = _SELECT.where(
    partition.c.topic_id.in_(bindparam("of_topics", expanding=True)),
    partition.c.topic_id.in_(select(topic.c.topic_id).where(topic.c.deleted_at_ms.is_(None))),
)
_CHANGED = _SELECT.where(partition.c.change_number > bindparam("change")).order_by(
    partition.c.topic_id, partition.c.partition
)


def _rows(
    conn: Connection, statement: Select[Any], parameters: Mapping[str, Any] | None = None
) -> tuple[PartitionRow, ...]:
    return tuple(_row(row) for row in conn.execute(statement, parameters))


def _row(row: Any) -> PartitionRow:
    try:
        lists = _lists(row.isr, row.replicas, row.adding_replicas, row.removing_replicas)
        if not all(isinstance(getattr(row, name), int) for name in _NUMBERS):
            raise ValueError("an epoch or an offset is not a number")
    except (ValueError, TypeError) as error:
        return _with_fault(row, str(error))
    return PartitionRow(
        topic_id=row.topic_id,
        partition=row.partition,
        leader=row.leader,
        leader_epoch=row.leader_epoch,
        partition_epoch=row.partition_epoch,
        isr=lists.isr,
        replicas=lists.replicas,
        adding_replicas=lists.adding,
        removing_replicas=lists.removing,
        log_start_offset=row.log_start_offset,
        cold_end_offset=row.cold_end_offset,
        change_number=row.change_number,
    )


def _with_fault(row: Any, fault: str) -> PartitionRow:
    return PartitionRow(
        topic_id=row.topic_id,
        partition=row.partition,
        leader=NO_LEADER,
        leader_epoch=0,
        partition_epoch=0,
        isr=(),
        replicas=(),
        log_start_offset=0,
        cold_end_offset=0,
        change_number=0,
        fault=(
            f"the row of partition {row.partition} of topic {row.topic_id} is none that a broker writes ({fault}): put "
            "it right in the metadata store, then restart the brokers that name it"
        ),
    )


class _Lists(NamedTuple):
    isr: tuple[InSyncReplica, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@lru_cache(maxsize=MAX_KNOWN_LISTS)
def _lists(isr: str, replicas: str, adding: str, removing: str) -> _Lists:
    """Raises ValueError or TypeError for lists that no broker writes."""
    lists = _Lists(
        isr=tuple(InSyncReplica(int(broker_id), int(epoch)) for broker_id, epoch in json.loads(isr)),
        replicas=_broker_ids(replicas),
        adding=_broker_ids(adding),
        removing=_broker_ids(removing),
    )
    if not lists.isr or not {member.broker_id for member in lists.isr}.issubset(lists.replicas):
        raise ValueError(f"its in-sync replicas {isr} are not among its replicas {replicas}")
    if not {*lists.adding, *lists.removing}.issubset(lists.replicas):
        raise ValueError(f"others than its replicas {replicas} are being added or removed")
    return lists


def _broker_ids(written: str) -> tuple[int, ...]:
    return tuple(int(broker_id) for broker_id in json.loads(written))


def _refuse_epoch(row: PartitionRow, leader_epoch: int) -> Never:
    where = f"partition {row.partition} of topic {row.topic_id}"
    if row.leader_epoch > leader_epoch:
        raise FencedLeaderEpoch(
            f"{where} is at leader epoch {row.leader_epoch}, the caller at {leader_epoch}: another leader took "
            "over, so this one must stop"
        )
    raise CorruptMetadata(_went_back(where, "leader", row.leader_epoch, leader_epoch))


def _refusal(
    row: PartitionRow | None, change: IsrChange, leader: InSyncReplica, standings: Standings
) -> TieredError | None:
    """Why the change cannot be made; None where it can, or has been.

    Checks of the newer row come first: a change that passes them knows that no earlier try has happened.
    """
    if row is None:
        return _unknown(change.topic_id, change.partition)
    if row.fault:
        return CorruptMetadata(row.fault)
    where = f"partition {row.partition} of topic {row.topic_id}"
    try:
        require_leader_epoch(row, change.leader_epoch)
    except (FencedLeaderEpoch, CorruptMetadata) as error:
        return error.without_frames()
    if row.leader != leader.broker_id:
        return FencedLeaderEpoch(f"{where} is led by broker {row.leader}, not by {leader.broker_id}: stop leading it")
    if row.partition_epoch < change.expected_partition_epoch:
        return CorruptMetadata(_went_back(where, "partition", row.partition_epoch, change.expected_partition_epoch))
    if row.partition_epoch > change.expected_partition_epoch:
        if row.partition_epoch == change.expected_partition_epoch + 1 and row.isr == change.isr:
            return None
        return LostRace(
            f"{where} is at partition epoch {row.partition_epoch}, not at {change.expected_partition_epoch}: wait for "
            "the change feed, then decide again"
        )
    assert leader in change.isr, "a leader is in sync with itself"
    assert {each.broker_id for each in change.isr} <= set(row.replicas), "only replicas can be in sync"
    for member in change.isr:
        if member not in row.isr and member != leader and not is_current(member, standings):
            return IneligibleReplica(
                f"broker {member.broker_id} at epoch {member.broker_epoch} cannot become in sync with {where}: it "
                "has registered again or is fenced, so wait until it has caught up under its present registration"
            )
    return None


def _unknown(topic_id: UUID, number: int) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(f"partition {number} of topic {topic_id} is not in the metadata store")


def _load_some(conn: Connection, wanted: Sequence[IsrChange]) -> tuple[PartitionRow, ...]:
    """Partitions of deleted topics too: the epoch that their deletion raised fences their leaders."""
    if len(wanted) == 1:
        condition: tuple[ColumnElement[bool], ...] = this_partition(wanted[0].topic_id, wanted[0].partition)
    else:
        condition = (partition.c.topic_id.in_({each.topic_id for each in wanted}),)
    return _rows(conn, _SELECT.where(*condition))


def _went_back(where: str, kind: str, found: int, seen: int) -> str:
    return (
        f"{where} is at {kind} epoch {found} in the metadata store, but epoch {seen} was in use: the database lost "
        "committed changes (a restored backup, or a standby that was not synchronous). Halt the partition and restore "
        "the metadata store"
    )
