"""A restored catalogue on SQLite and on PostgreSQL: whole or not at all, and ready for brokers with empty disks."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest
from sqlalchemy import Connection, func, select

from tests.catalogue import NOW_MS, open_ready, register
from tests.support.checkpointed import CLUSTER, TOPIC_ID, disk, disk_log, entry, group, groups, partition, pinned
from tiered.errors import InvalidConfig, Pinned
from tiered.formats.checkpoint import ClusterCheckpoint
from tiered.formats.disk_report import OpenLogTransaction
from tiered.ids import InSyncReplica, KeptDisk, TopicId, TopicPartition
from tiered.meta import (
    cluster,
    coordinator_slots,
    group_offsets,
    partitions,
    pins,
    producer_ids,
    restore,
    security,
    segments,
    transactions,
)
from tiered.meta import groups as stored_groups
from tiered.meta import settings as stored_settings
from tiered.meta import topics as stored_topics
from tiered.meta.engine import Database
from tiered.meta.pins import PinnedRange
from tiered.meta.tables import metadata, pin
from tiered.rules.groups.coordinator_slot import coordinator_slot
from tiered.rules.security.quotas import QuotaEntity
from tiered.rules.security.sasl.mechanism import ScramMechanism
from tiered.rules.security.sasl.scram import ScramCredential
from tiered.rules.segments.restore_plan import FoundBucket, RestoredSettings, RestorePlan, plan_restore
from tiered.rules.segments.restored_logs import UnendedTransaction
from tiered.rules.transactions.transaction_state import KEEPS_EPOCH, RAISES_EPOCH, TransactionState

pytest_plugins = ["tests.meta_databases"]

SLOTS = 4


@pytest.fixture
def empty(database_url: str) -> Iterator[Database]:
    opened = Database.open(database_url)
    opened.migrate()
    yield opened
    opened.close_sync()


@pytest.fixture
def plan() -> RestorePlan:
    topic = entry(partition_count=2, replication_factor=2, configs={"retention.ms": "-1"})
    slot = coordinator_slot("billing", SLOTS)
    found = FoundBucket(
        cluster=ClusterCheckpoint(
            version=100,
            cluster_id=CLUSTER,
            topics=(topic,),
            pins=(pinned("audit", (0, 30, 60)), pinned(None, (0, 40, 80), (1, 0, 0))),
        ),
        cluster_etag="etag",
        settings=RestoredSettings(settings={"": {"log.retention.ms": "5"}}),
        partitions={(TOPIC_ID, 0): partition(20, 50, 80, log_start_offset=30), (TOPIC_ID, 1): partition(0)},
        groups={slot: groups(slot, group("billing", 60, 0), slot_count=SLOTS)},
    )
    return plan_restore(found, (1, 2))


def apply(database: Database, plan: RestorePlan) -> list[int]:
    told: list[int] = []
    database.run_sync(lambda conn: restore.write(conn, plan, now_ms=NOW_MS, report=told.append))
    return told


def test_an_empty_database_is_empty_with_our_tables_and_without(database_url: str) -> None:
    database = Database.open(database_url)
    try:
        assert database.run_sync(restore.look).holds is None
        database.migrate()
        assert database.run_sync(restore.look).holds is None
        database.run_sync(lambda conn: conn.exec_driver_sql("DROP TABLE alembic_version"))
        assert "none of ours" in (database.run_sync(restore.look).holds or "")
    finally:
        database.close_sync()


def test_a_database_with_a_cluster_is_refused_and_left_alone(database_url: str, plan: RestorePlan) -> None:
    database = open_ready(database_url)
    try:
        with pytest.raises(InvalidConfig, match="test-cluster"):
            apply(database, plan)
        assert database.run_sync(cluster.load).cluster_id == "test-cluster"
        assert database.run_sync(restore.look).brokers == 1
    finally:
        database.close_sync()


def test_everything_of_the_plan_is_there_afterwards(empty: Database, plan: RestorePlan) -> None:
    told = apply(empty, plan)
    assert told[-1] == restore.row_count(plan)
    row = empty.run_sync(cluster.load)
    assert (row.cluster_id, row.change_number) == (plan.cluster_id, plan.change_number)
    (topic,) = empty.run_sync(stored_topics.load_all)
    assert (topic.topic_id, topic.partition_count, topic.configs) == (TOPIC_ID, 2, {"retention.ms": "-1"})
    first, second = empty.run_sync(partitions.load_all)
    assert (first.log_start_offset, first.cold_end_offset, first.leader, first.leader_epoch) == (30, 80, -1, 100_000)
    assert (second.log_start_offset, second.cold_end_offset) == (0, 0)
    rows = empty.run_sync(lambda conn: segments.list_committed(conn, TOPIC_ID, 0))
    assert [(each.base_offset, each.end_offset, each.committed_at_ms) for each in rows] == [(20, 50, 5), (50, 80, 5)]
    (offset, other) = empty.run_sync(lambda conn: group_offsets.load(conn, "billing", limit=10))
    assert (offset.committed_offset, other.committed_offset) == (60, 0)
    restored = empty.run_sync(lambda conn: stored_groups.load(conn, "billing"))
    assert restored is not None
    assert (restored.slot, restored.empty_since_ms) == (coordinator_slot("billing", SLOTS), NOW_MS)
    assert empty.run_sync(stored_settings.load_all) == {None: {"log.retention.ms": "5"}}
    assert empty.run_sync(producer_ids.allocate_block).start == plan.next_producer_id
    snapshot = empty.run_sync(lambda conn: pins.load_snapshot(conn, "audit"))
    assert (snapshot.owner, snapshot.topic, snapshot.created_at_ms, snapshot.expires_at_ms) == (
        "alice",
        topic.name,
        5,
        None,
    )
    assert snapshot.ranges == (PinnedRange(partition=0, start_offset=30, end_offset=60),)
    held = empty.run_sync(lambda conn: conn.execute(select(pin).where(pin.c.name.is_(None))).one())
    assert held.expires_at_ms == NOW_MS + restore.PINS_HOLD_FOR_MS, "who renews it finds it"
    with pytest.raises(Pinned, match="snapshot audit"):
        empty.run_sync(
            lambda conn: pins.refuse_retirement(conn, TOPIC_ID, 0, new_log_start_offset=50, is_explicit=True)
        )


def test_what_the_former_database_had_is_written(empty: Database, plan: RestorePlan) -> None:
    credential = ScramCredential(salt=b"\0salt", stored_key=b"\xffkey", server_key=b"server", iterations=4096)
    quota = (QuotaEntity(user="", client_id="app"), "producer_byte_rate")
    where = TopicPartition(TopicId(TOPIC_ID), 0)
    unended = [
        UnendedTransaction(producer_id=number, producer_epoch=4, partitions=(where,), is_committed=bool(number))
        for number in range(2)
    ]
    credentials = {("ann", ScramMechanism.SHA_256): credential}
    apply(empty, replace(plan, credentials=credentials, quotas={quota: 5.0}, unended=tuple(unended)))
    stored = empty.run_sync(security.load_all)
    assert [(row.user_name, row.salt, row.stored_key) for row in stored.credentials] == [("ann", b"\0salt", b"\xffkey")]
    (limit,) = stored.quotas
    assert (limit.user_name, limit.client_id, limit.ip, limit.value) == ("", "app", None, 5.0)
    decided = empty.run_sync(lambda conn: transactions.load_decided(conn, range(50)))
    # The epoch of the marker is the one after that of the records: so the producer's coordinator had decided it.
    assert {its.producer_id: (its.state.value, its.producer_epoch, its.protocol) for its in decided} == {
        0: ("PrepareAbort", 5, KEEPS_EPOCH),
        1: ("PrepareCommit", 5, RAISES_EPOCH),
    }


def test_groups_of_the_former_database_alone_are_written(empty: Database, plan: RestorePlan) -> None:
    apply(empty, replace(plan, slot_count=None))
    assert empty.run_sync(lambda conn: stored_groups.load(conn, "billing")) is not None


def test_brokers_lead_what_they_hold_as_they_come(empty: Database, plan: RestorePlan) -> None:
    apply(empty, plan)
    epochs = {broker_id: empty.run_sync(partial(register, broker_id=broker_id)) for broker_id in (2, 1)}
    assert min(epochs.values()) > plan.change_number
    for row in empty.run_sync(partitions.load_all):
        leader = row.replicas[0]
        assert (row.leader, row.leader_epoch) == (leader, 100_001)
        assert row.isr == (InSyncReplica(leader, epochs[leader]),)
        assert sorted(row.replicas) == [1, 2]


def test_with_disks_the_furthest_log_leads_and_what_it_left_open_is_decided(empty: Database, plan: RestorePlan) -> None:
    opened = OpenLogTransaction(producer_id=77, producer_epoch=3, first_offset=90)
    found = FoundBucket(
        cluster=ClusterCheckpoint(version=100, cluster_id=CLUSTER, topics=(entry(replication_factor=2),)),
        cluster_etag="etag",
        partitions={(TOPIC_ID, 0): partition(20, 50, 80)},
        groups={},
    )
    disks = [disk(1, disk_log(90)), disk(2, disk_log(95, start=60, open_transactions=(opened,)))]
    apply(empty, plan_restore(found, (1, 2), disks=disks))
    row = empty.run_sync(cluster.load)
    assert row.kept_disks == (KeptDisk(1, CLUSTER, 5), KeptDisk(2, CLUSTER, 5))
    empty.run_sync(lambda conn: cluster.forget_kept_disk(conn, 1))
    assert empty.run_sync(cluster.load).kept_disks == (KeptDisk(2, CLUSTER, 5),)
    epoch = empty.run_sync(partial(register, broker_id=2))
    (its,) = empty.run_sync(partitions.load_all)
    assert (its.leader, its.isr, its.replicas) == (2, (InSyncReplica(2, epoch),), (2, 1))
    assert (its.log_start_offset, its.cold_end_offset) == (60, 80)
    rows = empty.run_sync(lambda conn: segments.list_committed(conn, TOPIC_ID, 0))
    assert [(row.base_offset, row.end_offset) for row in rows] == [(50, 80)], "the other one is retired"
    (open_one,) = empty.run_sync(lambda conn: transactions.load_open(conn, range(50)))
    assert (open_one.producer_id, open_one.producer_epoch, open_one.state) == (77, 4, TransactionState.PREPARE_ABORT)
    assert open_one.partitions == {TopicPartition(TopicId(TOPIC_ID), 0)}


def test_slots_are_taken_under_epochs_of_the_new_life_whatever_their_number(empty: Database, plan: RestorePlan) -> None:
    apply(empty, plan)
    epoch = empty.run_sync(lambda conn: register(conn, 1))
    moved = empty.run_sync(
        lambda conn: coordinator_slots.take_unheld(
            conn, broker_id=1, broker_epoch=epoch, slot_count=SLOTS + 3, now_ms=NOW_MS
        )
    )
    assert len(moved.rows) == SLOTS + 3
    assert min(row.slot_epoch for row in moved.rows) > plan.slot_epoch
    restored = empty.run_sync(lambda conn: stored_groups.load(conn, "billing"))
    assert restored is not None
    assert restored.slot == coordinator_slot("billing", SLOTS + 3)


def test_a_restore_that_fails_on_its_way_leaves_nothing(
    empty: Database, plan: RestorePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_text: str) -> str:
        raise RuntimeError("killed")

    with monkeypatch.context() as context:
        context.setattr(restore, "text_of", fail)
        with pytest.raises(RuntimeError, match="killed"):
            apply(empty, plan)

    def rows(conn: Connection) -> dict[str, int]:
        counts = {
            table.name: conn.execute(select(func.count()).select_from(table)).scalar_one()
            for table in metadata.sorted_tables
        }
        return {name: count for name, count in counts.items() if count}

    assert empty.run_sync(rows) == {"producer_id_block": 1}
    assert empty.run_sync(restore.look).holds is None
    apply(empty, plan)
    with pytest.raises(InvalidConfig, match=plan.cluster_id):
        apply(empty, plan)


def test_a_topic_id_is_kept(empty: Database, plan: RestorePlan) -> None:
    apply(empty, plan)
    found = empty.run_sync(lambda conn: stored_topics.load(conn, UUID(int=7)))
    assert found.name == "orders"
