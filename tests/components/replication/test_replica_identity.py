"""Questions of followers by somebody who is none: nothing of them counts, and they keep no follower from counting."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.components.replication.brokers import Cluster, cluster, eventually, produce
from tests.support.partition_appends import append, batch
from tiered.broker.partitions.acknowledge import acknowledged
from tiered.broker.partitions.partition import Partition
from tiered.errors import RequestTimedOut
from tiered.ids import InSyncReplica
from tiered.meta import brokers
from tiered.wire.fetch import FetchPartition, FetchRequest, FetchTopic


def question(partition: Partition, follower: InSyncReplica, offset: int, shown: UUID | None) -> FetchRequest:
    asked = FetchPartition(0, partition.leader_epoch, offset, -1, 0, 1 << 20)
    topic = FetchTopic(None, partition.topic_partition.topic_id, [asked])
    return FetchRequest(
        follower.broker_id, follower.broker_epoch, 0, 1, 1 << 20, 0, 0, -1, [topic], replica_incarnation=shown
    )


def ask(leader: Any, follower: InSyncReplica, offset: int, shown: UUID | None) -> str:
    """What the leader answers to a question for t-0."""
    partition = leader.topics.by_name("t").partition(0)
    found = leader.replication.answers.look(question(partition, follower, offset, shown), is_first=True)
    (entry,) = found.entries()
    return type(entry.error).__name__


def other_than(made: Cluster, leader: Any) -> list[Any]:
    return [broker for broker_id, broker in made.brokers.items() if broker_id != leader.broker_id]


async def test_whoever_asks_for_a_broker_without_its_id_has_no_record_acknowledged(tmp_path: Path) -> None:
    async with cluster(tmp_path, replica_lag_time_max_ms="60000", broker_session_timeout_ms="60000") as made:
        await made.create("t")
        await produce(made, "t", "a")
        leader = await made.leader("t")
        partition = leader.topics.by_name("t").partition(0)
        others = other_than(made, leader)
        for other in others:
            made.channels.unplug(other.broker_id)
        appended = append(partition, batch("b"))
        for other in others:
            me = InSyncReplica(other.broker_id, other.broker_epoch)
            for shown in (None, UUID(int=0), leader.registration.incarnation_id):
                assert ask(leader, me, appended.end_offset, shown) == "ClusterNotAuthorized"
        with pytest.raises(RequestTimedOut):
            await acknowledged(leader.context, partition, appended, acks=-1, timeout_ms=300)
        assert partition.high_watermark == 1
        for other in others:
            made.channels.plug(other.broker_id)
        await acknowledged(leader.context, partition, appended, acks=-1, timeout_ms=5_000)


async def test_an_epoch_that_is_no_registration_keeps_no_follower_from_counting(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create("t")
        await produce(made, "t", "a")
        leader = await made.leader("t")
        partition = leader.topics.by_name("t").partition(0)
        for other in other_than(made, leader):
            for epoch in (other.broker_epoch + 1, 1 << 62):
                me = InSyncReplica(other.broker_id, epoch)
                assert ask(leader, me, 1, other.registration.incarnation_id) == "StaleBrokerEpoch"
        assert ask(leader, InSyncReplica(99, 1), 1, None) == "StaleBrokerEpoch"
        await produce(made, "t", "b")
        assert partition.high_watermark == 2


async def test_a_registration_that_the_leader_has_not_heard_of_counts_once_it_has(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create("t")
        await produce(made, "t", "a")
        leader = await made.leader("t")
        partition = leader.topics.by_name("t").partition(0)
        again = other_than(made, leader)[0].broker_id
        await made.kill(again)
        await made.start(again)
        await eventually(
            lambda: (
                partition.row is not None
                and InSyncReplica(again, made.brokers[again].broker_epoch) in partition.row.isr
                and len(partition.row.isr) == 3
            )
        )
        await produce(made, "t", "b")


async def test_registrations_stand_in_the_catalogue_with_the_ids_that_prove_them(tmp_path: Path) -> None:
    async with cluster(tmp_path, count=2, default_replication_factor="2") as made:
        rows = await made.brokers[1].database.read(brokers.load_all)
        own = {broker_id: broker.registration.incarnation_id for broker_id, broker in made.brokers.items()}
        assert {row.broker_id: row.incarnation_id for row in rows} == own
        assert len(set(own.values())) == 2
