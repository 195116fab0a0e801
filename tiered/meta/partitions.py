"""A partition's leadership and bounds, each change one conditional update.

Owns leader, epochs, in-sync replicas, `log_start_offset` and `cold_end_offset`. Leadership changes only by
compare-and-swap on `partition_epoch`; offsets only under the leader's own `leader_epoch`, and only upwards.
Must never choose a leader: `rules.elections` does.

T5 holds in every row: `0 <= log_start_offset <= cold_end_offset`. Where `log_start_offset` passes what was
uploaded (DeleteRecords, or a topic that is never uploaded), `cold_end_offset` goes with it: what readers
may not see need not be uploaded any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Never
from uuid import UUID

from sqlalchemy import Connection, RowMapping, case, func, select, update
from sqlalchemy.sql.elements import ColumnElement

from tiered.errors import (
    CorruptMetadata,
    FencedLeaderEpoch,
    LostRace,
    StaleBrokerEpoch,
    UnknownTopicOrPartition,
)
from tiered.ids import InSyncReplica, TopicId, TopicPartition
from tiered.meta.cluster import take_number
from tiered.meta.tables import NO_LEADER, broker, partition, topic
from tiered.rules.replica_set import ReplicaSet


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One partition as the catalogue knows it. `leader` is -1 while nobody leads."""

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

    @property
    def topic_partition(self) -> TopicPartition:
        """Its name."""
        return TopicPartition(TopicId(self.topic_id), self.partition)

    @property
    def replica_set(self) -> ReplicaSet:
        """What elections and reassignments change of it."""
        return ReplicaSet(
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            isr=self.isr,
            replicas=self.replicas,
            adding_replicas=self.adding_replicas,
            removing_replicas=self.removing_replicas,
        )


def load_all(conn: Connection) -> tuple[PartitionRow, ...]:
    """Every partition of every topic that is not deleted, by topic id and number."""
    statement = (
        select(partition)
        .join(topic, topic.c.topic_id == partition.c.topic_id)
        .where(topic.c.deleted_at_ms.is_(None))
        .order_by(partition.c.topic_id, partition.c.partition)
    )
    return tuple(partition_row(row) for row in conn.execute(statement).mappings())


def load(conn: Connection, topic_id: UUID, number: int) -> PartitionRow:
    """One partition. Raises `UnknownTopicOrPartition`."""
    row = conn.execute(select(partition).where(*this_partition(topic_id, number))).mappings().one_or_none()
    if row is None:
        raise UnknownTopicOrPartition(f"partition {number} of topic {topic_id} is not in the catalogue")
    return partition_row(row)


def changed_since(conn: Connection, change_number: int) -> tuple[PartitionRow, ...]:
    """The rows whose `change_number` is above the one given, those of deleted topics included."""
    statement = (
        select(partition)
        .where(partition.c.change_number > change_number)
        .order_by(partition.c.topic_id, partition.c.partition)
    )
    return tuple(partition_row(row) for row in conn.execute(statement).mappings())


def advance_log_start_offset(
    conn: Connection, topic_id: UUID, number: int, *, leader_epoch: int, new_log_start_offset: int
) -> PartitionRow:
    """The partition with `log_start_offset` at least as high as asked: it never goes back.

    Committed segments below it stay committed until `segments.retire_before`. Raises `FencedLeaderEpoch`
    when another leader took over, `UnknownTopicOrPartition`, and `CorruptMetadata` when SQL shows an older
    epoch than the caller's (R1).
    """
    change_number = take_number(conn)
    raise_log_start_offset(
        conn,
        topic_id,
        number,
        leader_epoch=leader_epoch,
        new_log_start_offset=new_log_start_offset,
        change_number=change_number,
    )
    return load(conn, topic_id, number)


def raise_log_start_offset(
    conn: Connection, topic_id: UUID, number: int, *, leader_epoch: int, new_log_start_offset: int, change_number: int
) -> None:
    """The update alone, for transactions that already hold a change number."""
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


def elect_leader(
    conn: Connection,
    topic_id: UUID,
    number: int,
    *,
    expected_partition_epoch: int,
    leader: int,
    isr: Sequence[InSyncReplica] | None = None,
) -> PartitionRow:
    """The partition under its new leader, with the next `leader_epoch` and `partition_epoch`.

    `leader` is a member of the ISR whose registration there is current and not fenced (rule 2), or -1 to
    leave the partition without one. `isr` replaces the ISR when given. Raises `LostRace` when
    `partition_epoch` is not the expected one any more, `StaleBrokerEpoch` when `leader` is not electable.
    """
    change_number = take_number(conn)
    before = load(conn, topic_id, number)
    after = before.isr if isr is None else tuple(isr)
    if leader != NO_LEADER:
        _require_electable(conn, leader, before, after)
    statement = (
        update(partition)
        .where(*this_partition(topic_id, number), partition.c.partition_epoch == expected_partition_epoch)
        .values(
            leader=leader,
            leader_epoch=partition.c.leader_epoch + 1,
            partition_epoch=partition.c.partition_epoch + 1,
            isr=[list(member) for member in after],
            change_number=change_number,
        )
    )
    if conn.execute(statement).rowcount == 0:
        raise LostRace(
            f"partition {number} of topic {topic_id} is at partition epoch {before.partition_epoch}, not at "
            f"{expected_partition_epoch}: read it again before changing its leader"
        )
    return load(conn, topic_id, number)


def resume_leadership(conn: Connection, *, broker_id: int, broker_epoch: int) -> int:
    """How many partitions the restarted broker goes on leading, each with the next `leader_epoch`.

    One statement for all of them. It takes those of which the broker is the leader and the only in-sync
    replica: nobody else could be elected there, so this is their election. Partitions with other in-sync
    replicas are left alone. Raises `StaleBrokerEpoch` when `broker_epoch` is not the current registration.
    """
    change_number = take_number(conn)
    _require_current(conn, broker_id, broker_epoch)
    statement = (
        update(partition)
        .where(partition.c.leader == broker_id, _length(conn, partition.c.isr) == 1)
        .values(
            leader_epoch=partition.c.leader_epoch + 1,
            partition_epoch=partition.c.partition_epoch + 1,
            isr=[[broker_id, broker_epoch]],
            change_number=change_number,
        )
    )
    return conn.execute(statement).rowcount


def require_leader_epoch(row: PartitionRow, leader_epoch: int) -> None:
    """Returns when `leader_epoch` is the partition's. Raises `FencedLeaderEpoch`, or `CorruptMetadata` (R1)."""
    if row.leader_epoch != leader_epoch:
        _refuse_epoch(row, leader_epoch)


def this_partition(topic_id: UUID, number: int) -> tuple[ColumnElement[bool], ...]:
    """The condition that names one partition's row."""
    return partition.c.topic_id == topic_id, partition.c.partition == number


def partition_row(row: RowMapping) -> PartitionRow:
    """A row of the table as a value."""
    values: dict[str, Any] = dict(row)
    values["isr"] = tuple(InSyncReplica(*member) for member in values["isr"])
    for name in ("replicas", "adding_replicas", "removing_replicas"):
        values[name] = tuple(values[name])
    return PartitionRow(**values)


def _refuse_epoch(row: PartitionRow, leader_epoch: int) -> Never:
    where = f"partition {row.partition} of topic {row.topic_id}"
    if row.leader_epoch > leader_epoch:
        raise FencedLeaderEpoch(
            f"{where} is at leader epoch {row.leader_epoch}, the caller at {leader_epoch}: another leader took "
            "over, so this one must stop"
        )
    raise CorruptMetadata(
        f"{where} is at leader epoch {row.leader_epoch} in the catalogue, but epoch {leader_epoch} was in use: "
        "the database lost committed changes (a restored backup, or a standby that was not synchronous). Halt "
        "the partition and restore the catalogue"
    )


def _require_electable(conn: Connection, leader: int, row: PartitionRow, isr: tuple[InSyncReplica, ...]) -> None:
    member = next((member for member in row.isr if member.broker_id == leader), None)
    if member is None or member not in isr:
        raise StaleBrokerEpoch(
            f"broker {leader} is not an in-sync replica of partition {row.partition} of topic {row.topic_id}: "
            "elect a member of the ISR"
        )
    _require_current(conn, leader, member.broker_epoch)


def _require_current(conn: Connection, broker_id: int, broker_epoch: int) -> None:
    statement = select(broker.c.broker_epoch, broker.c.fenced).where(broker.c.broker_id == broker_id)
    found = conn.execute(statement).one_or_none()
    if found is None or found.broker_epoch != broker_epoch or found.fenced:
        raise StaleBrokerEpoch(
            f"epoch {broker_epoch} of broker {broker_id} is not its current registration, or it is fenced: "
            "register again"
        )


def _length(conn: Connection, column: ColumnElement[Any]) -> ColumnElement[int]:
    return (func.jsonb_array_length if conn.dialect.name == "postgresql" else func.json_array_length)(column)
