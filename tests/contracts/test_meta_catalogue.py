"""Topics, partitions, brokers, settings, producer ids, reports and the feed, on SQLite and on PostgreSQL."""

import asyncio
from functools import partial
from uuid import uuid4

import pytest
from sqlalchemy import Connection, insert, update

from tests.catalogue import HOUR_MS, NOW_MS, advance_log_start_offset, create_topic, elect, register, segment_plan
from tiered.errors import (
    CorruptMetadata,
    FencedLeaderEpoch,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidTopic,
    StaleBrokerEpoch,
    TopicExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tiered.ids import InSyncReplica
from tiered.meta import (
    broker_reports,
    brokers,
    changes,
    cluster,
    partitions,
    producer_ids,
    segments,
    settings,
    tables,
    topics,
)
from tiered.meta.engine import Database
from tiered.meta.partitions import PartitionRow
from tiered.rules.segments.segment_states import SegmentState

pytest_plugins = ["tests.meta_databases"]


# Topics


def test_a_topic_comes_back_as_it_was_created(database: Database) -> None:
    created = database.run_sync(
        lambda conn: create_topic(conn, "orders", assignments=[(1,)] * 3, configs={"retention.ms": "1000"})
    )
    assert database.run_sync(topics.load_all) == (created,)
    assert (created.partition_count, created.replication_factor, created.deleted_at_ms) == (3, 1, None)
    assert created.configs == {"retention.ms": "1000"}
    (broker,) = database.run_sync(brokers.load_all)
    assert database.run_sync(partitions.load_all) == tuple(
        PartitionRow(
            topic_id=created.topic_id,
            partition=number,
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            isr=(InSyncReplica(1, broker.broker_epoch),),
            replicas=(1,),
            log_start_offset=0,
            cold_end_offset=0,
            change_number=created.change_number,
        )
        for number in range(3)
    )


def test_a_second_topic_of_the_same_name_is_refused(database: Database) -> None:
    database.run_sync(create_topic)
    with pytest.raises(TopicExists, match="orders"):
        database.run_sync(create_topic)


async def test_of_two_who_create_a_topic_at_once_one_succeeds(database: Database) -> None:
    results = await asyncio.gather(*(database.run(create_topic) for _ in range(4)), return_exceptions=True)
    assert [isinstance(result, TopicExists) for result in results].count(False) == 1


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 250, "a b", "a'; DROP TABLE topic; --"])
def test_an_illegal_name_is_refused(database: Database, name: str) -> None:
    with pytest.raises(InvalidTopic):
        database.run_sync(lambda conn: create_topic(conn, name))


@pytest.mark.parametrize("assignments", [[(1,), ()], [(7,)], [(1, 1)]])
def test_replicas_that_cannot_be_are_refused_and_nothing_stays(
    database: Database, assignments: list[tuple[int, ...]]
) -> None:
    with pytest.raises(InvalidReplicaAssignment):
        database.run_sync(lambda conn: create_topic(conn, assignments=assignments))
    assert database.run_sync(topics.load_all) == ()


def test_only_brokers_in_service_lead_a_new_topic(database: Database) -> None:
    epoch = database.run_sync(lambda conn: register(conn, 2))
    database.run_sync(lambda conn: brokers.fence(conn, broker_id=1, broker_epoch=1))
    topic = database.run_sync(lambda conn: create_topic(conn, assignments=[(1, 2), (1,)]))
    both, alone = database.run_sync(partitions.load_all)
    assert (both.leader, both.isr, both.replicas) == (2, (InSyncReplica(2, epoch),), (1, 2))
    assert (alone.leader, alone.isr) == (-1, (InSyncReplica(1, 1),))
    assert topic.replication_factor == 2


def test_partitions_can_be_added_and_never_taken_away(database: Database) -> None:
    topic = database.run_sync(create_topic)

    def grow(conn: Connection, count: int, new: int) -> topics.TopicRow:
        return topics.add_partitions(conn, topic.topic_id, partition_count=count, assignments=[(1,)] * new)

    grown = database.run_sync(lambda conn: grow(conn, 3, 2))
    assert grown.partition_count == 3
    assert [row.partition for row in database.run_sync(partitions.load_all)] == [0, 1, 2]
    for count, new in ((3, 0), (2, 1), (5, 1)):
        with pytest.raises(InvalidPartitions):
            database.run_sync(partial(grow, count=count, new=new))


def test_settings_of_a_topic_are_replaced_or_altered_one_by_one(database: Database) -> None:
    topic_id = database.run_sync(lambda conn: create_topic(conn, configs={"a": "1", "b": "2"})).topic_id

    def configs_after(conn: Connection) -> dict[str, str]:
        return dict(topics.load_all(conn)[0].configs)

    altered = database.run_sync(
        lambda conn: topics.alter_configs(conn, topic_id, values={"b": "3", "c": "4"}, removed=["a", "unknown"])
    )
    assert altered.configs == database.run_sync(configs_after) == {"b": "3", "c": "4"}
    database.run_sync(lambda conn: topics.alter_configs(conn, topic_id, values={"d": "5"}, removed=None))
    assert database.run_sync(configs_after) == {"d": "5"}
    database.run_sync(lambda conn: topics.alter_configs(conn, topic_id, values={}, removed=None))
    assert database.run_sync(configs_after) == {}


def test_a_deleted_topic_frees_its_name_and_retires_its_objects(database: Database) -> None:
    topic = database.run_sync(create_topic)
    plans = [segment_plan(topic.topic_id, 0, 10), segment_plan(topic.topic_id, 10, 20)]
    for plan in plans:
        database.run_sync(partial(segments.plan, wanted=plan))
    database.run_sync(lambda conn: segments.commit(conn, plans[0].object_id, leader_epoch=0, now_ms=NOW_MS))
    tombstone = database.run_sync(
        lambda conn: topics.delete_topic(conn, topic.topic_id, now_ms=NOW_MS, purge_after_ms=NOW_MS + HOUR_MS)
    )
    assert tombstone.deleted_at_ms == NOW_MS
    assert database.run_sync(topics.load_all) == ()
    assert database.run_sync(partitions.load_all) == ()
    retired = database.run_sync(lambda conn: segments.load(conn, plans[0].object_id))
    assert (retired.state, retired.purge_after_ms) == (SegmentState.RETIRED, NOW_MS + HOUR_MS)
    with pytest.raises(FencedLeaderEpoch):
        database.run_sync(lambda conn: segments.commit(conn, plans[1].object_id, leader_epoch=0, now_ms=NOW_MS))
    assert database.run_sync(create_topic).topic_id != topic.topic_id
    for call in (
        lambda conn: topics.delete_topic(conn, topic.topic_id, now_ms=NOW_MS, purge_after_ms=NOW_MS),
        lambda conn: topics.alter_configs(conn, topic.topic_id, values={}),
        lambda conn: topics.add_partitions(conn, topic.topic_id, partition_count=9, assignments=[(1,)] * 8),
    ):
        with pytest.raises(UnknownTopicId, match="deleted"):
            database.run_sync(call)


def test_a_tombstone_goes_when_the_store_holds_nothing_of_it(database: Database) -> None:
    topic = database.run_sync(lambda conn: create_topic(conn, configs={"a": "1"}))
    plan = segment_plan(topic.topic_id, 0, 10)
    database.run_sync(lambda conn: segments.plan(conn, plan))
    database.run_sync(lambda conn: segments.commit(conn, plan.object_id, leader_epoch=0, now_ms=NOW_MS))
    database.run_sync(lambda conn: topics.delete_topic(conn, topic.topic_id, now_ms=NOW_MS, purge_after_ms=NOW_MS))

    def forget(conn: Connection) -> tuple[object, ...]:
        return topics.forget_deleted(conn, deleted_before_ms=NOW_MS + 1)

    assert database.run_sync(forget) == ()
    database.run_sync(lambda conn: segments.mark_purged(conn, [plan.object_id], now_ms=NOW_MS))
    assert database.run_sync(lambda conn: topics.forget_deleted(conn, deleted_before_ms=NOW_MS)) == ()
    assert database.run_sync(forget) == (topic.topic_id,)
    with pytest.raises(UnknownTopicId):
        database.run_sync(lambda conn: topics.load(conn, topic.topic_id))


# Partitions


def test_log_start_offset_only_grows_and_takes_cold_end_offset_with_it(database: Database) -> None:
    topic_id = database.run_sync(create_topic).topic_id

    def advance(to: int, epoch: int = 0) -> tuple[int, int]:
        row = database.run_sync(
            lambda conn: advance_log_start_offset(conn, topic_id, 0, leader_epoch=epoch, new_log_start_offset=to)
        )
        return row.log_start_offset, row.cold_end_offset

    assert advance(50) == (50, 50)
    assert advance(20) == (50, 50)
    plan = segment_plan(topic_id, 50, 90)
    database.run_sync(lambda conn: segments.plan(conn, plan))
    database.run_sync(lambda conn: segments.commit(conn, plan.object_id, leader_epoch=0, now_ms=NOW_MS))
    assert advance(60) == (60, 90)
    assert advance(100) == (100, 100)


def test_a_zombie_cannot_move_log_start_offset(database: Database) -> None:
    topic_id = database.run_sync(create_topic).topic_id
    database.run_sync(lambda conn: elect(conn, topic_id))

    def advance(epoch: int, number: int = 0) -> None:
        database.run_sync(
            lambda conn: advance_log_start_offset(conn, topic_id, number, leader_epoch=epoch, new_log_start_offset=5)
        )

    with pytest.raises(FencedLeaderEpoch):
        advance(0)
    with pytest.raises(CorruptMetadata, match="lost committed changes"):
        advance(2)
    with pytest.raises(UnknownTopicOrPartition):
        advance(1, number=9)
    advance(1)


# Brokers, settings, producer ids


def test_every_registration_has_a_higher_epoch_and_the_newest_wins(database: Database) -> None:
    first = database.run_sync(brokers.load_all)[0].broker_epoch
    other = database.run_sync(lambda conn: register(conn, 2))
    second = database.run_sync(lambda conn: register(conn, 1))
    assert first < other < second
    with pytest.raises(StaleBrokerEpoch, match="another process"):
        database.run_sync(lambda conn: brokers.fence(conn, broker_id=1, broker_epoch=first))
    database.run_sync(lambda conn: brokers.fence(conn, broker_id=1, broker_epoch=second))
    row = database.run_sync(brokers.load_all)[0]
    assert (row.broker_epoch, row.fenced, row.rack) == (second, True, "a")
    database.run_sync(lambda conn: brokers.unregister(conn, broker_id=1))
    assert [row.broker_id for row in database.run_sync(brokers.load_all)] == [2]


def test_configs_of_resources_are_set_dropped_and_replaced_and_reach_the_feed(database: Database) -> None:
    orders, others = ("GROUP", "orders"), ("CLIENT_METRICS", "orders")
    database.run_sync(create_topic)
    before = database.run_sync(lambda conn: changes.since(conn, 0)).number
    database.run_sync(lambda conn: settings.alter_resource(conn, orders, values={"a": "1", "b": "2"}, removed=()))
    database.run_sync(lambda conn: settings.alter_resource(conn, orders, values={"a": "3"}, removed=("b",)))
    database.run_sync(lambda conn: settings.alter_resource(conn, others, values={"c": "4"}, removed=None))
    found = database.run_sync(lambda conn: changes.since(conn, before))
    assert found.resource_configs == {orders: {"a": "3"}, others: {"c": "4"}}
    database.run_sync(lambda conn: settings.alter_resource(conn, others, values={}, removed=None))
    assert database.run_sync(settings.load_resources) == {orders: {"a": "3"}}


def test_a_setting_of_a_scope_that_no_broker_writes_is_left_out_and_named(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"scope": scope, "name": "a", "value": scope} for scope in ("", "7", "banana\n")]
    database.run_sync(lambda conn: conn.execute(insert(tables.broker_config), rows))
    assert database.run_sync(settings.load_all) == {None: {"a": ""}, 7: {"a": "7"}}
    assert "its scope 'banana\\n' is no broker's id" in caplog.text


@pytest.mark.parametrize("rows", [{"a": 1}, [["x", "y", "z"]], [[1]], [1]])
def test_kept_disks_that_no_restore_writes_are_refused_in_words(database: Database, rows: object) -> None:
    database.run_sync(lambda conn: cluster.ensure(conn, cluster_id="c", now_ms=NOW_MS))
    database.run_sync(lambda conn: conn.execute(update(tables.cluster).values(kept_disks=rows)))
    with pytest.raises(CorruptMetadata, match="kept_disks in the table cluster"):
        database.run_sync(cluster.load)


def test_broker_settings_have_a_default_and_exceptions(database: Database) -> None:
    def alter(broker_id: int | None, values: dict[str, str], removed: tuple[str, ...] = ()) -> dict[str, str]:
        database.run_sync(lambda conn: settings.alter(conn, broker_id=broker_id, values=values, removed=removed))
        return database.run_sync(settings.load_all)[broker_id]

    assert alter(None, {"a": "1", "b": "2"}) == {"a": "1", "b": "2"}
    assert alter(1, {"a": "9"}) == {"a": "9"}
    assert alter(None, {"a": "3"}, ("b",)) == {"a": "3"}
    assert database.run_sync(settings.load_all) == {None: {"a": "3"}, 1: {"a": "9"}}
    database.run_sync(lambda conn: settings.alter(conn, broker_id=1, values={}, removed=None))
    assert database.run_sync(settings.load_all) == {None: {"a": "3"}}


def test_producer_id_blocks_never_overlap(database: Database) -> None:
    blocks = [database.run_sync(partial(producer_ids.allocate_block, size=size)) for size in (10, 1, 5)]
    assert blocks == [range(10), range(10, 11), range(11, 16)]


# The feed


def test_the_feed_holds_exactly_what_changed(database: Database) -> None:
    start = database.run_sync(lambda conn: changes.since(conn, 0))
    assert [broker.broker_id for broker in start.brokers] == [1]
    quiet = database.run_sync(lambda conn: changes.since(conn, start.number))
    assert quiet == changes.ChangeSet(
        number=start.number, topics=(), partitions=(), brokers=(), segments=(), broker_configs=None
    )
    topic = database.run_sync(lambda conn: create_topic(conn, configs={"a": "1"}))
    other = database.run_sync(lambda conn: create_topic(conn, "other"))
    created = database.run_sync(lambda conn: changes.since(conn, start.number))
    assert created.topics == (topic, other)
    assert {row.topic_id for row in created.partitions} == {topic.topic_id, other.topic_id}

    plan = segment_plan(topic.topic_id, 0, 10)
    database.run_sync(lambda conn: segments.plan(conn, plan))
    database.run_sync(lambda conn: segments.commit(conn, plan.object_id, leader_epoch=0, now_ms=NOW_MS))
    committed = database.run_sync(lambda conn: changes.since(conn, created.number))
    assert [row.state for row in committed.segments] == [SegmentState.COMMITTED]
    assert [(row.topic_id, row.cold_end_offset) for row in committed.partitions] == [(topic.topic_id, 10)]
    assert (committed.topics, committed.brokers) == ((), ())

    database.run_sync(lambda conn: settings.alter(conn, broker_id=None, values={"x": "y"}))
    database.run_sync(lambda conn: topics.delete_topic(conn, topic.topic_id, now_ms=NOW_MS, purge_after_ms=NOW_MS))
    last = database.run_sync(lambda conn: changes.since(conn, committed.number))
    assert last.broker_configs == {None: {"x": "y"}}
    assert [(row.topic_id, row.deleted_at_ms) for row in last.topics] == [(topic.topic_id, NOW_MS)]
    assert [row.leader for row in last.partitions] == [-1]
    assert [row.state for row in last.segments] == [SegmentState.RETIRED]


async def test_a_reader_that_polls_by_number_misses_no_change(database: Database) -> None:
    seen: set[str] = set()
    wanted = {f"topic-{number}" for number in range(24)}

    async def poll() -> None:
        last = 0
        while seen != wanted:
            change_set = await database.read(lambda conn: changes.since(conn, last))  # noqa: B023 - awaited at once
            assert change_set.number >= last
            seen.update(row.name for row in change_set.topics)
            assert {row.topic_id for row in change_set.topics} == {row.topic_id for row in change_set.partitions}
            last = change_set.number

    writers = (database.run(partial(create_topic, name=name)) for name in wanted)
    await asyncio.gather(poll(), *writers)


def test_a_failed_change_takes_no_number(database: Database) -> None:
    before = database.run_sync(lambda conn: changes.since(conn, 0)).number
    with pytest.raises(UnknownTopicId):
        database.run_sync(lambda conn: topics.alter_configs(conn, uuid4(), values={}))
    assert database.run_sync(lambda conn: changes.since(conn, 0)).number == before


def test_an_unfounded_cluster_is_named_as_the_cause(database_url: str) -> None:
    database = Database.open(database_url)
    database.migrate()
    with pytest.raises(CorruptMetadata, match="describes no cluster"):
        database.run_sync(lambda conn: register(conn, 1))
    database.close_sync()


# Reports


def test_reports_replace_what_was_reported_before(database: Database) -> None:
    topic_id = database.run_sync(lambda conn: create_topic(conn, assignments=[(1,), (1,)])).topic_id

    def local(partition: int, base: int) -> broker_reports.LocalSegmentRow:
        return broker_reports.LocalSegmentRow(
            topic_id=topic_id, partition=partition, base_offset=base, end_offset=base + 10, size_bytes=5, closed=True
        )

    def report(of: list[int] | None, *found: broker_reports.LocalSegmentRow) -> set[tuple[int, int]]:
        def replace(conn: Connection) -> set[tuple[int, int]]:
            of_partitions = None if of is None else [(topic_id, partition) for partition in of]
            broker_reports.replace_local_segments(
                conn, broker_id=1, of_partitions=of_partitions, segments=found, now_ms=NOW_MS
            )
            return {tuple(row) for row in conn.exec_driver_sql("SELECT partition, base_offset FROM local_segment")}

        return database.run_sync(replace)

    assert report(None, local(0, 0), local(1, 0)) == {(0, 0), (1, 0)}
    assert report([1], local(1, 10), local(1, 20)) == {(0, 0), (1, 10), (1, 20)}
    assert report([]) == {(0, 0), (1, 10), (1, 20)}
    assert report(None) == set()


def test_positions_are_updated_in_place(database: Database) -> None:
    topic_id = database.run_sync(create_topic).topic_id
    for high_watermark, since_ms in ((5, NOW_MS), (9, None)):
        position = broker_reports.PartitionPosition(
            topic_id=topic_id,
            partition=0,
            high_watermark=high_watermark,
            log_end_offset=10,
            disk_only_since_ms=since_ms,
        )
        database.run_sync(partial(broker_reports.report_positions, positions=[position], now_ms=NOW_MS))
    query = "SELECT high_watermark, log_end_offset, disk_only_since_ms FROM partition_position"
    assert database.run_sync(lambda conn: [tuple(row) for row in conn.exec_driver_sql(query)]) == [(9, 10, None)]
