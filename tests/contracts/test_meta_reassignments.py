"""Moves and elections on request: each partition has its own outcome, and SQL holds what was decided."""

from functools import partial

import pytest
from sqlalchemy import Connection

from tests.catalogue import change_isr, create_topic, elect, register
from tiered import errors
from tiered.ids import InSyncReplica, TopicId, TopicPartition
from tiered.meta import brokers, changes, partitions, reassignments
from tiered.meta.elections import change_replica_sets
from tiered.meta.engine import Database
from tiered.meta.partitions import PartitionRow
from tiered.meta.reassignments import Outcomes, Target

pytest_plugins = ["tests.meta_databases"]


def one(_: object) -> int:
    return 1


@pytest.fixture
def moved(database: Database) -> TopicPartition:
    """Partition 0 of a topic on brokers 1 and 2; brokers 3 and 4 are there as well."""

    def prepare(conn: Connection) -> TopicPartition:
        for broker_id in (2, 3, 4):
            register(conn, broker_id)
        return TopicPartition(TopicId(create_topic(conn, assignments=[(1, 2), (2, 1)]).topic_id), 0)

    return database.run_sync(prepare)


def row(database: Database, where: TopicPartition) -> PartitionRow:
    return database.run_sync(lambda conn: partitions.load(conn, where.topic_id, where.partition))


def alter(database: Database, targets: dict[TopicPartition, Target | None], **named: bool) -> Outcomes:
    return database.run_sync(lambda conn: reassignments.alter(conn, targets, min_isr=one, **named))


def join(database: Database, where: TopicPartition, broker_id: int) -> None:
    """As the leader does once the broker has caught up."""
    before = row(database, where)

    def change(conn: Connection) -> PartitionRow:
        epoch = next(each.broker_epoch for each in brokers.load_all(conn) if each.broker_id == broker_id)
        leader = before.replica_set.member(before.leader)
        assert leader is not None
        return change_isr(
            conn,
            topic_id=where.topic_id,
            partition=where.partition,
            broker_id=before.leader,
            broker_epoch=leader.broker_epoch,
            leader_epoch=before.leader_epoch,
            expected_partition_epoch=before.partition_epoch,
            isr=(*before.isr, InSyncReplica(broker_id, epoch)),
        )

    database.run_sync(change)


def fence(database: Database, *broker_ids: int) -> None:
    def change(conn: Connection) -> None:
        gone = [InSyncReplica(each.broker_id, each.broker_epoch) for each in brokers.load_all(conn)]
        change_replica_sets(conn, lambda *_: None, fence=[each for each in gone if each.broker_id in broker_ids])

    database.run_sync(change)


def test_a_move_begins_advances_and_ends(database: Database, moved: TopicPartition) -> None:
    begun = alter(database, {moved: (3, 4)})
    assert begun.errors == {moved: None}
    now = row(database, moved)
    assert (now.replicas, now.adding_replicas, now.removing_replicas) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert now.change_number == begun.change_number
    join(database, moved, 3)
    assert database.run_sync(lambda conn: reassignments.advance(conn, [moved], min_isr=one)).errors == {moved: None}
    assert row(database, moved).adding_replicas == (3, 4)
    join(database, moved, 4)
    database.run_sync(lambda conn: reassignments.advance(conn, [moved], min_isr=one))
    done = row(database, moved)
    assert (done.replicas, done.adding_replicas, done.removing_replicas) == ((3, 4), (), ())
    assert (done.leader, done.leader_epoch) == (3, 1)
    assert [each.broker_id for each in done.isr] == [3, 4]


def test_a_move_is_cancelled(database: Database, moved: TopicPartition) -> None:
    alter(database, {moved: (1, 3)})
    join(database, moved, 3)
    assert alter(database, {moved: None}).errors == {moved: None}
    now = row(database, moved)
    assert (now.replicas, now.adding_replicas, now.removing_replicas, now.leader_epoch) == ((1, 2), (), (), 0)
    assert [each.broker_id for each in now.isr] == [1, 2]


def test_each_partition_has_its_own_error(database: Database, moved: TopicPartition) -> None:
    other = TopicPartition(moved.topic_id, 1)
    missing = TopicPartition(moved.topic_id, 7)
    found = alter(database, {moved: (1, 9), other: (4, 3), missing: None}).errors
    assert isinstance(found[moved], errors.InvalidReplicaAssignment)
    assert found[other] is None
    assert isinstance(found[missing], errors.UnknownTopicOrPartition)
    assert row(database, moved).replicas == (1, 2)
    assert row(database, other).replicas == (4, 3, 2, 1)


def test_cancelling_what_does_not_move_is_no_reassignment(database: Database, moved: TopicPartition) -> None:
    assert isinstance(alter(database, {moved: None}).errors[moved], errors.NoReassignment)


def test_another_size_is_refused_where_the_request_says_so(database: Database, moved: TopicPartition) -> None:
    found = alter(database, {moved: (1, 3, 4)}, may_resize=False).errors
    assert isinstance(found[moved], errors.InvalidReplicationFactor)
    assert alter(database, {moved: (1, 4)}, may_resize=False).errors[moved] is None


def test_the_preferred_leader_takes_over(database: Database, moved: TopicPartition) -> None:
    other = TopicPartition(moved.topic_id, 1)
    database.run_sync(lambda conn: elect(conn, moved.topic_id, 2))
    found = database.run_sync(lambda conn: reassignments.elect_preferred(conn, [moved, other])).errors
    assert found[moved] is None
    assert isinstance(found[other], errors.ElectionNotNeeded)
    assert (row(database, moved).leader, row(database, moved).leader_epoch) == (1, 2)


def test_a_preferred_leader_that_is_away_is_not_available(database: Database, moved: TopicPartition) -> None:
    database.run_sync(lambda conn: elect(conn, moved.topic_id, 2))
    fence(database, 1)
    found = database.run_sync(lambda conn: reassignments.elect_preferred(conn, [moved])).errors
    assert isinstance(found[moved], errors.PreferredLeaderNotAvailable)


def test_a_preferred_leader_that_does_not_reach_the_store_is_not_available(
    database: Database, moved: TopicPartition
) -> None:
    def elect_preferred() -> errors.TieredError | None:
        return database.run_sync(lambda conn: reassignments.elect_preferred(conn, [moved])).errors[moved]

    def report(broker_epoch: int, trouble: errors.StoreTrouble | None) -> None:
        report = partial(brokers.report_store_trouble, broker_id=1, broker_epoch=broker_epoch, trouble=trouble)
        database.run_sync(report)

    database.run_sync(lambda conn: elect(conn, moved.topic_id, 2))
    number, broker = database.run_sync(lambda conn: (changes.since(conn, 0).number, brokers.load_all(conn)[0]))
    report(broker.broker_epoch, errors.StoreTrouble.AWAY)
    (changed,) = database.run_sync(lambda conn: brokers.changed_since(conn, number))
    assert changed.store_trouble == "away"
    assert isinstance(elect_preferred(), errors.PreferredLeaderNotAvailable)
    report(broker.broker_epoch, None)
    assert elect_preferred() is None
    report(broker.broker_epoch, errors.StoreTrouble.AWAY)
    database.run_sync(lambda conn: register(conn, 1))
    assert database.run_sync(brokers.load_all)[0].store_trouble is None, "another process may reach it"
    with pytest.raises(errors.StaleBrokerEpoch):
        report(broker.broker_epoch, errors.StoreTrouble.AWAY)


def test_an_unclean_election_is_the_last_resort(database: Database, moved: TopicPartition) -> None:
    def elect_unclean(may_lose: bool) -> errors.TieredError | None:
        return database.run_sync(
            lambda conn: reassignments.elect_unclean(conn, [moved], may_lose=lambda _: may_lose)
        ).errors[moved]

    assert isinstance(elect_unclean(True), errors.ElectionNotNeeded)
    # Broker 2 loses its disk: its entry in the ISR only keeps its place. Then broker 1 dies.
    database.run_sync(lambda conn: register(conn, 2))
    fence(database, 1)
    assert isinstance(elect_unclean(False), errors.PolicyViolation)
    assert elect_unclean(True) is None
    now = row(database, moved)
    assert now.leader == 2
    assert [each.broker_id for each in now.isr] == [2]
    fence(database, 2)
    assert isinstance(elect_unclean(True), errors.EligibleLeadersNotAvailable)
