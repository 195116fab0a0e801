"""Topics and their settings: created, grown and deleted, each in one transaction with their partitions.

Owns the rows of `topic`, `topic_config`, and the birth and death of those of `partition`. A deleted topic
keeps its row (a tombstone) until the store holds nothing of it; its name is free at once.
Must never interpret a setting, nor place replicas.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import (
    Connection,
    Delete,
    RowMapping,
    Select,
    Table,
    bindparam,
    delete,
    exists,
    insert,
    select,
    tuple_,
    update,
)

from tiered.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidTopic,
    TopicExists,
    UnknownTopicId,
)
from tiered.ids import is_legal_topic_name
from tiered.meta import pins, segments
from tiered.meta.cluster import take_number
from tiered.meta.replica_sets import load_standings
from tiered.meta.settings import write_texts
from tiered.meta.tables import (
    NO_LEADER,
    group_offset,
    local_segment,
    partition,
    partition_position,
    segment,
    topic,
    topic_config,
    transaction_offset,
)
from tiered.rules.segments.segment_states import SegmentState

Assignment = Sequence[int]
"""The brokers that hold a partition; the first one leads it by preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """One incarnation of a topic. `configs` holds only what was set for it, as text."""

    topic_id: UUID
    name: str
    partition_count: int
    replication_factor: int
    internal: bool
    created_at_ms: int
    deleted_at_ms: int | None
    change_number: int
    configs: Mapping[str, str]


def create(
    conn: Connection,
    *,
    name: str,
    topic_id: UUID,
    assignments: Sequence[Assignment],
    configs: Mapping[str, str],
    now_ms: int,
    internal: bool = False,
) -> TopicRow:
    """The new topic; `assignments` has one entry per partition, from 0 on.

    Each partition starts with the brokers of its assignment that are not fenced as its ISR, and the first
    of them as its leader, at leader epoch 0. Raises `TopicExists`, `InvalidTopic` (name),
    `InvalidPartitions` (none) or `InvalidReplicaAssignment` (empty, repeated or unregistered brokers).
    """
    if not is_legal_topic_name(name):
        raise InvalidTopic(f"topic name {name[:300]!r} is not 1 to 249 of [a-zA-Z0-9._-], or is . or ..")
    if not assignments:
        raise InvalidPartitions(f"topic {name} needs at least one partition")
    number = take_number(conn)
    if conn.execute(select(topic.c.topic_id).where(topic.c.name == name, topic.c.deleted_at_ms.is_(None))).first():
        raise TopicExists(f"Topic '{name}' already exists.")
    conn.execute(
        insert(topic).values(
            topic_id=topic_id,
            name=name,
            partition_count=len(assignments),
            replication_factor=len(assignments[0]),
            internal=internal,
            created_at_ms=now_ms,
            deleted_at_ms=None,
            change_number=number,
        )
    )
    if configs:
        rows = [{"topic_id": topic_id, "name": option, "value": value} for option, value in configs.items()]
        conn.execute(insert(topic_config), rows)
    _add_partitions(conn, topic_id, 0, assignments, number)
    return load(conn, topic_id)


def add_partitions(
    conn: Connection, topic_id: UUID, *, partition_count: int, assignments: Sequence[Assignment]
) -> TopicRow:
    """The topic with `partition_count` partitions; `assignments` are those of the new ones.

    Raises `InvalidPartitions` unless that is more than it has and every new one is assigned,
    `InvalidReplicaAssignment` and `UnknownTopicId`.
    """
    number = take_number(conn)
    before = load_living(conn, topic_id)
    if partition_count <= before.partition_count:
        raise InvalidPartitions(
            f"topic {before.name} has {before.partition_count} partitions: ask for more than that, not for "
            f"{partition_count}"
        )
    if len(assignments) != partition_count - before.partition_count:
        raise InvalidPartitions(
            f"topic {before.name} gets {partition_count - before.partition_count} new partitions, but "
            f"{len(assignments)} are assigned"
        )
    _add_partitions(conn, topic_id, before.partition_count, assignments, number)
    conn.execute(
        update(topic).where(topic.c.topic_id == topic_id).values(partition_count=partition_count, change_number=number)
    )
    return load(conn, topic_id)


def delete_topic(conn: Connection, topic_id: UUID, *, now_ms: int, purge_after_ms: int) -> TopicRow:
    """The topic's tombstone. Its committed segments are retired in the same transaction.

    Its partitions have no leader any more and their leader epochs move on, so an upload that is under way can no longer
    be committed. Objects may be deleted from `purge_after_ms` (a time) on, and when no pin holds them any more. Raises
    `UnknownTopicId`, and `Pinned` where a snapshot holds any of it.
    """
    number = take_number(conn)
    pins.refuse_deletion(conn, topic_id, load_living(conn, topic_id).name)
    conn.execute(update(topic).where(topic.c.topic_id == topic_id).values(deleted_at_ms=now_ms, change_number=number))
    conn.execute(_WITHOUT_LEADERS, {"of_topic": topic_id, "change": number})
    segments.retire_topic(conn, topic_id, now_ms=now_ms, purge_after_ms=purge_after_ms, change_number=number)
    for reports in (transaction_offset, group_offset, local_segment, partition_position):
        _delete_what_nobody_writes(conn, reports, [topic_id])
    return load(conn, topic_id)


def list_tombstones(conn: Connection, *, limit: int = 10_000) -> tuple[TopicRow, ...]:
    """The deleted topics that are not forgotten yet, the oldest deletion first."""
    return _tombstones(conn, _DELETED, {"most": limit})


def list_forgettable(conn: Connection, *, deleted_before_ms: int, limit: int = 100) -> tuple[TopicRow, ...]:
    """The tombstones from before that time of which the store holds no object any more."""
    return _tombstones(conn, _FORGETTABLE, {"deleted_before_ms": deleted_before_ms, "most": limit})


def forget_deleted(
    conn: Connection, *, deleted_before_ms: int, only: Sequence[UUID] | None = None, limit: int = 100
) -> tuple[UUID, ...]:
    """The topics whose last rows went: deleted before that time, with every object purged, and among `only`."""
    take_number(conn)
    chosen = _FORGETTABLE if only is None else _FORGETTABLE.where(topic.c.topic_id.in_(only))
    parameters = {"deleted_before_ms": deleted_before_ms, "most": limit}
    found = tuple(row.topic_id for row in _tombstones(conn, chosen, parameters))
    for reports in (local_segment, partition_position):
        _delete_what_nobody_writes(conn, reports, found)
    pins.forget_topics(conn, found)
    for table in (segment, partition, topic_config, topic):
        conn.execute(delete(table).where(table.c.topic_id.in_(found)))
    return found


def alter_configs(
    conn: Connection, topic_id: UUID, *, values: Mapping[str, str], removed: Iterable[str] | None = ()
) -> TopicRow:
    """The topic with `values` set and `removed` back at their defaults, all others where that is None. Raises
    `UnknownTopicId`."""
    number = take_number(conn)
    load_living(conn, topic_id)
    write_texts(conn, topic_config, {"topic_id": topic_id}, values, removed)
    conn.execute(update(topic).where(topic.c.topic_id == topic_id).values(change_number=number))
    return load(conn, topic_id)


def load_all(conn: Connection) -> tuple[TopicRow, ...]:
    """Every topic that is not deleted, by name."""
    found = conn.execute(select(topic).where(topic.c.deleted_at_ms.is_(None)).order_by(topic.c.name)).mappings().all()
    living = select(topic.c.topic_id).where(topic.c.deleted_at_ms.is_(None))
    configs = _configs_of(conn, select(topic_config).where(topic_config.c.topic_id.in_(living)))
    return tuple(_topic_row(row, configs) for row in found)


_HAS_CHANGED = topic.c.change_number > bindparam("number")
_CHANGED = select(topic).where(_HAS_CHANGED).order_by(topic.c.change_number)
_CONFIGS_OF_CHANGED = select(topic_config).where(
    topic_config.c.topic_id.in_(select(topic.c.topic_id).where(_HAS_CHANGED))
)


def changed_since(conn: Connection, number: int) -> tuple[TopicRow, ...]:
    """The rows whose `change_number` is above `number`; a deleted topic comes with its `deleted_at_ms`."""
    found = conn.execute(_CHANGED, {"number": number}).mappings().all()
    if not found:
        return ()
    configs = _configs_of(conn, _CONFIGS_OF_CHANGED, {"number": number})
    return tuple(_topic_row(row, configs) for row in found)


def load(conn: Connection, topic_id: UUID) -> TopicRow:
    """One topic, deleted or not. Raises `UnknownTopicId`."""
    row = conn.execute(select(topic).where(topic.c.topic_id == topic_id)).mappings().one_or_none()
    if row is None:
        raise UnknownTopicId(f"no topic has the id {topic_id}")
    return _topic_row(row, _configs_of(conn, select(topic_config).where(topic_config.c.topic_id == topic_id)))


def load_living(conn: Connection, topic_id: UUID) -> TopicRow:
    """One topic that is not deleted. Raises `UnknownTopicId`."""
    row = load(conn, topic_id)
    if row.deleted_at_ms is not None:
        raise UnknownTopicId(f"topic {row.name} with the id {topic_id} was deleted")
    return row


def _tombstones(conn: Connection, statement: Select[Any], parameters: Mapping[str, int]) -> tuple[TopicRow, ...]:
    return tuple(_topic_row(row, {}) for row in conn.execute(statement, parameters).mappings())


_WITHOUT_LEADERS = (
    update(partition)
    .where(partition.c.topic_id == bindparam("of_topic"))
    .values(
        leader=NO_LEADER,
        leader_epoch=partition.c.leader_epoch + 1,
        partition_epoch=partition.c.partition_epoch + 1,
        change_number=bindparam("change"),
    )
)
_TOMBSTONES = select(topic).order_by(topic.c.deleted_at_ms).limit(bindparam("most"))
_DELETED = _TOMBSTONES.where(topic.c.deleted_at_ms.is_not(None))
# Sweeps ask for these all the time, and each would be a cycle for the garbage collector: it is made once.
_FORGETTABLE = _TOMBSTONES.where(
    topic.c.deleted_at_ms < bindparam("deleted_before_ms"),
    ~exists().where(segment.c.topic_id == topic.c.topic_id, segment.c.state != SegmentState.PURGED),
)


def _delete_what_nobody_writes(conn: Connection, table: Table, topic_ids: Sequence[UUID]) -> None:
    """The rows of the topics that no other transaction has locked; the others would come after the deletion anyway.

    Commits of groups and reports take no number, so waiting for their rows here could be a deadlock, and a coordinator
    that hangs could hold up all others.
    """
    conn.execute(_deleting_what_is_free(table), {"of_topics": topic_ids})


@cache
def _deleting_what_is_free(table: Table) -> Delete:
    keys = tuple(table.primary_key.columns)
    named = table.c.topic_id.in_(bindparam("of_topics", expanding=True))
    return delete(table).where(tuple_(*keys).in_(select(*keys).where(named).with_for_update(skip_locked=True)))


def _add_partitions(
    conn: Connection, topic_id: UUID, first: int, assignments: Sequence[Assignment], number: int
) -> None:
    registrations = load_standings(conn)
    rows = []
    for index, replicas in enumerate(assignments):
        unknown = [replica for replica in replicas if replica not in registrations]
        if not replicas or unknown or len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(
                f"partition {first + index} is assigned to {list(replicas)}: name each broker once, and only "
                f"registered ones ({sorted(registrations)})"
            )
        alive = [replica for replica in replicas if not registrations[replica].fenced]
        # Somebody has to be in the ISR, or nobody could ever be elected: the preferred one, when it is back.
        isr = alive or [replicas[0]]
        rows.append(
            {
                "topic_id": topic_id,
                "partition": first + index,
                "leader": alive[0] if alive else NO_LEADER,
                "leader_epoch": 0,
                "partition_epoch": 0,
                "isr": [[replica, registrations[replica].broker_epoch] for replica in isr],
                "replicas": list(replicas),
                "log_start_offset": 0,
                "cold_end_offset": 0,
                "change_number": number,
            }
        )
    conn.execute(insert(partition), rows)


def _configs_of(
    conn: Connection, statement: Select[Any], parameters: Mapping[str, Any] | None = None
) -> dict[UUID, dict[str, str]]:
    found: dict[UUID, dict[str, str]] = {}
    for row in conn.execute(statement, parameters):
        found.setdefault(row.topic_id, {})[row.name] = row.value
    return found


def _topic_row(row: RowMapping, configs: Mapping[UUID, Mapping[str, str]]) -> TopicRow:
    return TopicRow(**row, configs=configs.get(row["topic_id"], {}))
