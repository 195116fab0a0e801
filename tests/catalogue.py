"""A catalogue with something in it: what tests of `tiered.meta` and of the rooms above begin with."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection

from tiered.errors import TieredError
from tiered.ids import TopicId, TopicPartition
from tiered.meta import brokers, cluster, partitions, topics
from tiered.meta.brokers import RegistrationResult
from tiered.meta.elections import change_replica_sets
from tiered.meta.engine import Database
from tiered.meta.partitions import IsrChange, PartitionRow
from tiered.meta.segments import SegmentPlan
from tiered.meta.topics import TopicRow
from tiered.rules.replication.number_claim import Claim

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def open_ready(url: str) -> Database:
    """A migrated database with a cluster and broker 1."""
    opened = Database.open(url)
    opened.migrate()
    opened.run_sync(lambda conn: cluster.ensure(conn, cluster_id="test-cluster", now_ms=NOW_MS))
    opened.run_sync(lambda conn: register(conn, 1))
    return opened


def register(conn: Connection, broker_id: int) -> int:
    """Broker `broker_id` as a small broker on loopback, after a restart that lost what it had; its new epoch."""
    return registration(conn, broker_id).broker_epoch


def registration(
    conn: Connection,
    broker_id: int,
    *,
    clean_epoch: int | None = None,
    incarnation_id: UUID | None = None,
    claim: Claim | None = None,
) -> RegistrationResult:
    """As `register`, with all that the registration gave."""
    return brokers.register(
        conn,
        broker_id=broker_id,
        host="127.0.0.1",
        port=9092 + broker_id,
        boot_id="boot",
        clean_epoch=clean_epoch,
        rack="a",
        incarnation_id=incarnation_id,
        claim=claim,
    )


def elect(conn: Connection, topic_id: UUID, leader: int = 1, *, partition: int = 0) -> PartitionRow:
    """The partition in its next leader epoch, led by a member of its ISR (-1: by nobody)."""
    (row,) = change_replica_sets(
        conn,
        lambda row, _: replace(row.replica_set, leader=leader, leader_epoch=row.leader_epoch + 1),
        only=[TopicPartition(TopicId(topic_id), partition)],
    ).changed
    return row


def create_topic(
    conn: Connection,
    name: str = "orders",
    *,
    assignments: Sequence[Sequence[int]] = ((1,),),
    configs: Mapping[str, str] | None = None,
) -> TopicRow:
    """A new topic, by default of one partition on broker 1."""
    return topics.create(
        conn, name=name, topic_id=uuid4(), assignments=assignments, configs=configs or {}, now_ms=NOW_MS
    )


def segment_plan(
    topic_id: UUID,
    base_offset: int,
    end_offset: int,
    *,
    partition: int = 0,
    leader_epoch: int = 0,
    owner: int = 1,
    planned_at_ms: int = NOW_MS,
) -> SegmentPlan:
    """A plausible plan for these offsets, with an object of its own."""
    object_id = uuid4()
    return SegmentPlan(
        object_id=object_id,
        topic_id=topic_id,
        partition=partition,
        base_offset=base_offset,
        end_offset=end_offset,
        leader_epoch=leader_epoch,
        owner=owner,
        object_key=f"segments/ab/{topic_id}/{partition}/{base_offset:020}-{end_offset:020}-e{leader_epoch}-{object_id}.seg",
        size_bytes=1_000 + end_offset - base_offset,
        log_bytes=900,
        min_timestamp_ms=NOW_MS - HOUR_MS,
        max_timestamp_ms=NOW_MS,
        record_count=end_offset - base_offset,
        root_sha256="a" * 64,
        previous_root_sha256="0" * 64,
        planned_at_ms=planned_at_ms,
        deadline_ms=planned_at_ms + HOUR_MS,
    )


def advance_log_start_offset(
    conn: Connection, topic_id: UUID, number: int, *, leader_epoch: int, new_log_start_offset: int
) -> PartitionRow:
    """The partition with `log_start_offset` at least as high as asked, as a transaction of its own."""
    partitions.raise_log_start_offset(
        conn,
        topic_id,
        number,
        leader_epoch=leader_epoch,
        new_log_start_offset=new_log_start_offset,
        change_number=cluster.take_number(conn),
    )
    return partitions.load(conn, topic_id, number)


def change_isr(conn: Connection, *, broker_id: int, broker_epoch: int, **change: Any) -> PartitionRow:
    """`partitions.change_isrs` for one partition: its row; what refuses the change is raised."""
    wanted = IsrChange(**{**change, "isr": tuple(change["isr"])})
    (answer,) = partitions.change_isrs(conn, broker_id=broker_id, broker_epoch=broker_epoch, changes=[wanted])
    if isinstance(answer, TieredError):
        raise answer
    return answer
