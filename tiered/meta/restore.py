"""A whole catalogue written into an empty database, in one transaction: a restore is there as a whole or not at all.

Owns what counts as empty, and the rows that a plan becomes. Must never touch a database that holds anything.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Table, func, insert, inspect, select, update

from tiered.config.groups import GroupSettings
from tiered.errors import InvalidConfig
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.pin_entries import PinEntry
from tiered.meta.connections import sqlite_file
from tiered.meta.engine import Database
from tiered.meta.group_offsets import text_of
from tiered.meta.security import quota_key
from tiered.meta.security_tables import acl, client_quota, scram_credential
from tiered.meta.tables import (
    NO_LEADER,
    ONLY_ROW,
    broker,
    broker_config,
    cluster,
    consumer_group,
    coordinator_slot,
    group_offset,
    partition,
    pin,
    pinned_range,
    producer_id_block,
    resource_config,
    segment,
    topic,
    topic_config,
    transaction_partition,
    transactional_producer,
)
from tiered.rules.groups.coordinator_slot import coordinator_slot as slot_of
from tiered.rules.replication.elections import NO_REGISTRATION
from tiered.rules.segments.restore_plan import RestoredPartition, RestoredTopic, RestorePlan
from tiered.rules.segments.restored_logs import UnendedTransaction
from tiered.rules.segments.segment_states import SegmentState
from tiered.rules.transactions.transaction_state import (
    KEEPS_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    RAISES_EPOCH,
    TransactionState,
)
from tiered.runtime import crash_point

ROWS_AT_ONCE = 500
NOBODY = -1
"""The owner of segments whose uploader is gone, and the holder of slots that nobody has taken yet."""

PINS_HOLD_FOR_MS = 3_600_000
"""At least so long from the restore on, so that readers who were interrupted by all this find theirs."""

Report = Callable[[int], None]
"""Takes how many rows are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDatabase:
    """A database's contents. `cluster_id` is None while it describes no cluster; `holds` says in words what keeps it
    from being empty."""

    cluster_id: str | None
    brokers: int
    holds: str | None


EMPTY = TargetDatabase(cluster_id=None, brokers=0, holds=None)


def look_at(url: str) -> TargetDatabase:
    """The contents of the database at this URL. A missing SQLite file is not made for that.

    Raises InvalidConfig, MetadataUnavailable.
    """
    file = sqlite_file(url)
    if file is not None and not file.exists():
        if not file.parent.is_dir():
            raise InvalidConfig(f"{file.parent} is no folder: make it, or give another --meta")
        return EMPTY
    database = Database.open(url)
    try:
        return database.run_sync(look)
    finally:
        database.close_sync()


def look(conn: Connection) -> TargetDatabase:
    """The contents of a database that need not have our tables."""
    tables = set(inspect(conn).get_table_names())
    if "alembic_version" not in tables or cluster.name not in tables:
        # Ours are always made together with their revision: whatever is here is somebody else's.
        holds = f"tables that are none of ours, such as {min(tables)}" if tables else None
        return TargetDatabase(cluster_id=None, brokers=0, holds=holds)
    row = conn.execute(select(cluster.c.cluster_id)).one_or_none()
    if row is not None:
        brokers = conn.execute(select(func.count()).select_from(broker)).scalar_one()
        return TargetDatabase(cluster_id=row.cluster_id, brokers=brokers, holds=f"cluster {row.cluster_id}")
    for table in (topic, consumer_group, segment):
        if table.name in tables and conn.execute(select(*table.primary_key.columns).limit(1)).first() is not None:
            return TargetDatabase(cluster_id=None, brokers=0, holds=f"rows of {table.name}")
    return EMPTY


def write(
    conn: Connection,
    plan: RestorePlan,
    *,
    now_ms: int,
    store: str | None = None,
    report: Report = lambda _rows: None,
) -> None:
    """Writes the plan. Raises InvalidConfig when the database is not empty (any more): nothing is changed then.

    `store` is the identity of the one that the cluster has from now on; None leaves it to the first broker. Repeatable
    as a transaction; what it wrote is seen by nobody before it is whole.
    """
    assert not plan.problems, "whoever applies a plan has looked at its problems"
    if conn.dialect.name == "postgresql":
        # A broker that starts at this moment takes the same lock before it makes a cluster of its own.
        conn.exec_driver_sql("LOCK TABLE cluster IN EXCLUSIVE MODE")
    found = look(conn)
    if found.holds is not None:
        raise InvalidConfig(f"the database holds {found.holds}: restore into an empty one")
    number = plan.change_number
    conn.execute(
        insert(cluster).values(
            id=ONLY_ROW,
            cluster_id=plan.cluster_id,
            created_at_ms=now_ms,
            change_number=number,
            settings_change_number=number,
            security_change_number=number,
            store=store,
            kept_disks=plan.kept_disks,
        )
    )
    written = 0
    for table, rows in _tables(plan, now_ms):
        for some in _batches(rows):
            conn.execute(insert(table), some)
            written += len(some)
            report(written)
            crash_point("restore.written_some")
    block = update(producer_id_block).where(producer_id_block.c.id == ONLY_ROW)
    if conn.execute(block.values(next_producer_id=plan.next_producer_id)).rowcount == 0:
        conn.execute(insert(producer_id_block).values(id=ONLY_ROW, next_producer_id=plan.next_producer_id))


def row_count(plan: RestorePlan) -> int:
    """How many rows `write` reports in the end."""
    return sum(1 for _, rows in _tables(plan, 0) for _ in rows)


def _tables(plan: RestorePlan, now_ms: int) -> Iterator[tuple[Table, Iterable[dict[str, Any]]]]:
    """Parents before children."""
    number = plan.change_number
    yield (
        broker_config,
        (
            {"scope": scope, "name": name, "value": value}
            for scope, values in sorted(plan.settings.items())
            for name, value in sorted(values.items())
        ),
    )
    yield (
        resource_config,
        (
            {"kind": kind, "resource": resource, "name": name, "value": value}
            for (kind, _, resource), values in sorted(
                (each.partition(":"), values) for each, values in plan.resource_configs.items()
            )
            for name, value in sorted(values.items())
        ),
    )
    yield topic, (_topic_row(each, now_ms, number) for each in plan.topics)
    yield (
        topic_config,
        (
            {"topic_id": each.topic_id, "name": name, "value": value}
            for each in plan.topics
            for name, value in sorted(each.configs.items())
        ),
    )
    yield partition, (_partition_row(each, its, number) for each in plan.topics for its in each.partitions)
    yield (
        segment,
        (
            _segment_row(each, its, committed, number, now_ms)
            for each in plan.topics
            for its in each.partitions
            for committed in its.segments
        ),
    )
    yield transactional_producer, (_unended_row(its, _slots(plan), now_ms) for its in plan.unended)
    yield (
        transaction_partition,
        (
            {
                "transactional_id": _unended_id(its),
                "topic_id": where.topic_id,
                "partition": where.partition,
            }
            for its in plan.unended
            for where in its.partitions
        ),
    )
    yield acl, ({**asdict(each), "created_at_ms": now_ms} for each in plan.acls)
    yield (
        scram_credential,
        (
            {"user_name": user_name, "mechanism": mechanism, **asdict(credential)}
            for (user_name, mechanism), credential in plan.credentials.items()
        ),
    )
    yield (
        client_quota,
        ({**quota_key(entity, quota), "value": value} for (entity, quota), value in plan.quotas.items()),
    )
    yield pin, (_pin_row(each, now_ms) for each in plan.pins)
    yield (
        pinned_range,
        (
            {
                "pin_id": each.pin_id,
                "topic_id": each.topic_id,
                **its._asdict(),
            }
            for each in plan.pins
            for its in each.ranges
        ),
    )
    if plan.slot_count is None and not plan.groups and not plan.unended:
        return
    slot_count = _slots(plan)
    yield (
        coordinator_slot,
        (
            {
                "slot": slot,
                "broker_id": NOBODY,
                "broker_epoch": NOBODY,
                "slot_epoch": plan.slot_epoch,
                "change_number": number,
            }
            for slot in range(slot_count)
        ),
    )
    yield (
        consumer_group,
        (
            {
                "group_id": each.group_id,
                "slot": slot_of(each.group_id, slot_count),
                "kind": each.kind,
                "protocol_type": each.protocol_type,
                "generation": each.generation,
                # The group has no members, as of now: its offsets are kept as if the last member had just left.
                "empty_since_ms": now_ms,
                "slot_epoch": 0,
                "commit_number": 0,
            }
            for each in plan.groups
        ),
    )
    yield (
        group_offset,
        (
            {
                "group_id": group.group_id,
                "topic_id": each.topic_id,
                "partition": each.partition,
                "committed_offset": each.offset,
                "leader_epoch": each.leader_epoch,
                "metadata": text_of(each.metadata),
                "committed_at_ms": each.committed_at_ms,
                "slot_epoch": 0,
                "commit_number": 0,
            }
            for group in plan.groups
            for each in group.offsets
        ),
    )


def _slots(plan: RestorePlan) -> int:
    """So many as the bucket says; else the default. The first broker changes them where it is told another number."""
    return plan.slot_count or GroupSettings().offsets_topic_num_partitions


def _unended_id(its: UnendedTransaction) -> str:
    """Its own is not known, and its producer gets another producer id when it begins again."""
    return f"restored-producer-{its.producer_id}-{its.producer_epoch}"


def _unended_row(its: UnendedTransaction, slot_count: int, now_ms: int) -> dict[str, Any]:
    """Decided: its coordinator ends it as soon as it has the slot. The epoch is above that of whatever the producer
    still sends."""
    transactional_id = _unended_id(its)
    return {
        "transactional_id": transactional_id,
        "slot": slot_of(transactional_id, slot_count),
        "producer_id": its.producer_id,
        "producer_epoch": its.producer_epoch + 1,
        "last_producer_epoch": NO_EPOCH,
        "previous_producer_id": NO_PRODUCER_ID,
        "next_producer_id": NO_PRODUCER_ID,
        "timeout_ms": 0,
        "state": (TransactionState.PREPARE_COMMIT if its.is_committed else TransactionState.PREPARE_ABORT).value,
        "protocol": RAISES_EPOCH if its.is_committed else KEEPS_EPOCH,
        "started_at_ms": now_ms,
        "changed_at_ms": now_ms,
        "coordinator_epoch": -1,
    }


def _topic_row(each: RestoredTopic, now_ms: int, number: int) -> dict[str, Any]:
    return {
        "topic_id": each.topic_id,
        "name": each.name,
        "partition_count": len(each.partitions),
        "replication_factor": each.replication_factor,
        "internal": False,
        "created_at_ms": now_ms,
        "deleted_at_ms": None,
        "change_number": number,
    }


def _partition_row(each: RestoredTopic, its: RestoredPartition, number: int) -> dict[str, Any]:
    """The first replica leads as soon as it registers: its log is the furthest, or no broker has any of it on disk."""
    return {
        "topic_id": each.topic_id,
        "partition": its.partition,
        "leader": NO_LEADER,
        "leader_epoch": its.leader_epoch,
        "partition_epoch": 0,
        "isr": [[its.replicas[0], NO_REGISTRATION]],
        "replicas": list(its.replicas),
        "log_start_offset": its.log_start_offset,
        "cold_end_offset": its.cold_end_offset,
        "change_number": number,
    }


def _pin_row(each: PinEntry, now_ms: int) -> dict[str, Any]:
    expires_at_ms = each.expires_at_ms
    if each.name is None:
        # A reader renews it, or has gone; when it was renewed last only the old database knew.
        expires_at_ms = max(expires_at_ms or 0, now_ms + PINS_HOLD_FOR_MS)
    return {
        "pin_id": each.pin_id,
        "name": each.name,
        "topic_id": each.topic_id,
        "owner": each.owner,
        "created_at_ms": each.created_at_ms,
        "expires_at_ms": expires_at_ms,
    }


def _segment_row(
    each: RestoredTopic, its: RestoredPartition, committed: CommittedSegment, number: int, now_ms: int
) -> dict[str, Any]:
    columns = asdict(committed)
    del columns["min_timestamp_is_proven"]
    columns["max_timestamp_is_proven"] = bool(committed.max_timestamp_is_proven)
    # The log start on a disk may be above that in the bucket.
    is_retired = committed.end_offset <= its.log_start_offset
    return {
        **columns,
        "topic_id": each.topic_id,
        "partition": its.partition,
        "state": SegmentState.RETIRED if is_retired else SegmentState.COMMITTED,
        "retired_at_ms": now_ms if is_retired else None,
        "purge_after_ms": now_ms if is_retired else None,
        "owner": NOBODY,
        "planned_at_ms": committed.committed_at_ms,
        "deadline_ms": committed.committed_at_ms,
        "change_number": number,
    }


def _batches(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    remaining = iter(rows)
    while some := [dict(row) for row in islice(remaining, ROWS_AT_ONCE)]:
        yield some
