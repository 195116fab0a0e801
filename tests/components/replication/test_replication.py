"""Brokers of one cluster in one process: replication, failover, ISR changes, catching up."""

import asyncio
from pathlib import Path

import pytest

from tests.components.replication.brokers import Cluster, cluster, eventually, produce
from tests.support.partition_appends import append, batch, bytes_of
from tiered.broker.broker import Broker
from tiered.broker.partitions.acknowledge import acknowledged
from tiered.broker.partitions.partition import Partition
from tiered.config import ConfigChange, ConfigOperation
from tiered.errors import NotEnoughReplicas, NotEnoughReplicasAfterAppend, NotLeader, RequestTimedOut
from tiered.wire.fetch import FetchPartition, FetchRequest, FetchTopic


def isr_of(partition: Partition) -> set[int]:
    return set() if partition.row is None else {member.broker_id for member in partition.row.isr}


async def level(made: Cluster, name: str) -> None:
    """Returns once all replicas end alike and know it."""

    def is_level() -> bool:
        replicas = made.replicas(name).values()
        ends = {(each.log.log_end_offset, each.high_watermark) for each in replicas}
        return len(ends) == 1 and all(end == watermark for end, watermark in ends)

    await eventually(is_level)


async def test_what_is_acknowledged_is_on_every_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create("t")
        for number in range(50):
            await produce(made, "t", f"value {number}")
        await level(made, "t")
        replicas = made.replicas("t")
        assert len(replicas) == 3
        assert len({bytes_of(each) for each in replicas.values()}) == 1


async def test_a_dead_leader_takes_no_acknowledged_record_with_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create("t")
        for number in range(20):
            await produce(made, "t", f"before {number}")
        first = await made.leader("t")
        before = bytes_of(first.topics.by_name("t").partition(0))
        await made.kill(first.broker_id)
        await eventually(lambda: any(each.leadership is not None for each in made.replicas("t").values()))
        await produce(made, "t", "after")
        await level(made, "t")
        assert all(bytes_of(each).startswith(before) for each in made.replicas("t").values())
        await made.start(first.broker_id)
        leader = await made.leader("t")
        await eventually(lambda: isr_of(leader.topics.by_name("t").partition(0)) == {1, 2, 3})
        await level(made, "t")
        assert len({bytes_of(each) for each in made.replicas("t").values()}) == 1


async def test_an_idempotent_producer_goes_on_with_the_next_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create("t")
        first = await made.leader("t")
        data = batch("once", producer_id=4, sequence=0)
        appended = append(first.topics.by_name("t").partition(0), bytearray(data))
        await acknowledged(first.context, first.topics.by_name("t").partition(0), appended, acks=-1, timeout_ms=5_000)
        await made.kill(first.broker_id)
        second = await made.leader("t")
        partition = second.topics.by_name("t").partition(0)
        again = append(partition, bytearray(data), acks=1)
        assert again.base_offset == appended.base_offset
        assert partition.log.log_end_offset == 1


async def test_a_follower_that_is_cut_off_leaves_and_comes_back(tmp_path: Path) -> None:
    async with cluster(tmp_path, replica_lag_time_max_ms="500") as made:
        await made.create("t")
        await produce(made, "t", "a")
        leader = await made.leader("t")
        partition = leader.topics.by_name("t").partition(0)
        away = next(broker_id for broker_id in made.brokers if broker_id != leader.broker_id)
        made.channels.unplug(away)
        appended = append(partition, batch("b"))
        await acknowledged(leader.context, partition, appended, acks=-1, timeout_ms=8_000)
        assert away not in isr_of(partition)
        assert leader.counters.isr_shrinks == 1
        made.channels.plug(away)
        await eventually(lambda: isr_of(partition) == {1, 2, 3})
        await level(made, "t")
        assert leader.counters.isr_expands == 1


async def test_too_few_in_sync_replicas_refuse_before_and_after_the_append(tmp_path: Path) -> None:
    async with cluster(tmp_path, replica_lag_time_max_ms="500") as made:
        await made.create("t")
        await produce(made, "t", "a")
        leader = await made.leader("t")
        partition = leader.topics.by_name("t").partition(0)
        others = [broker_id for broker_id in made.brokers if broker_id != leader.broker_id]
        for broker_id in others:
            made.channels.unplug(broker_id)
        appended = append(partition, batch("b"))
        with pytest.raises(RequestTimedOut):
            await acknowledged(leader.context, partition, appended, acks=-1, timeout_ms=50)
        for broker_id in others:
            await made.kill(broker_id)
        await eventually(lambda: partition.is_under_min_isr)
        with pytest.raises(NotEnoughReplicasAfterAppend):
            await acknowledged(leader.context, partition, appended, acks=-1, timeout_ms=50)
        with pytest.raises(NotEnoughReplicas):
            append(partition, batch("c"))
        assert len(partition.row.isr) == 2 if partition.row else False
        assert partition.high_watermark == 1


async def test_a_leader_that_was_replaced_unawares_acknowledges_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create("t")
        await produce(made, "t", "a")
        zombie = await made.leader("t")
        partition = zombie.topics.by_name("t").partition(0)
        zombie_epoch = partition.leader_epoch
        async with asyncio.timeout(10):
            appended = append(partition, batch("never"))
            # The others have taken it, so that it is the fence that counts and not the distance.
            waiting = asyncio.ensure_future(
                acknowledged(zombie.context, partition, appended, acks=-1, timeout_ms=5_000)
            )
            await waiting
        await zombie.hand_over()
        await eventually(lambda: partition.leader_epoch > zombie_epoch)
        with pytest.raises(NotLeader):
            append(partition, batch("b"))
        leader = await made.leader("t")
        assert leader is not zombie


def question(partition: Partition, follower: Broker, *, epoch: int, offset: int) -> FetchRequest:
    asked = FetchPartition(0, epoch, offset, -1, 0, 1 << 20)
    topic = FetchTopic(None, partition.topic_partition.topic_id, [asked])
    shown = follower.registration.incarnation_id
    return FetchRequest(
        follower.broker_id, follower.broker_epoch, 0, 1, 1 << 20, 0, 0, -1, [topic], replica_incarnation=shown
    )


async def test_a_fetch_of_another_leader_epoch_is_told_so_and_not_noted(tmp_path: Path) -> None:
    async with cluster(tmp_path, count=2, default_replication_factor="1", min_insync_replicas="1") as made:
        await made.create("t")
        leader = await made.leader("t")
        follower = next(each for each in made.brokers.values() if each is not leader)
        partition = leader.topics.by_name("t").partition(0)
        await produce(made, "t", "a")
        for epoch, name in ((partition.leader_epoch + 1, "UnknownLeaderEpoch"), (partition.leader_epoch, None)):
            found = leader.replication.answers.look(question(partition, follower, epoch=epoch, offset=1), is_first=True)
            (entry,) = found.entries()
            assert type(entry.error).__name__ == (name or "ReplicaNotAvailable")
        assert partition.leadership is not None
        assert partition.leadership.fetched_by(follower.broker_id) is None


async def test_a_follower_whose_leader_changes_under_a_fetch_follows_the_next_one(tmp_path: Path) -> None:
    async with cluster(tmp_path, replica_fetch_wait_max_ms="5000") as made:
        await made.create("t")
        await produce(made, "t", "a")
        first = await made.leader("t")
        await first.hand_over()  # Both followers wait for an answer of up to five seconds.
        second = await made.leader("t")
        assert second is not first
        async with asyncio.timeout(4):
            await produce(made, "t", "b")
        await level(made, "t")


async def test_a_replica_whose_disk_was_wiped_begins_where_the_store_ends(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create("t", configs={"segment.bytes": "300", "local.retention.bytes": "1"})
        for number in range(30):
            await produce(made, "t", f"value {number}")
        leader = await made.leader("t")
        partition = leader.topics.by_name("t").partition(0)
        await eventually(lambda: partition.log.local_log_start_offset >= 20)
        wiped = next(broker_id for broker_id in made.brokers if broker_id != leader.broker_id)
        await made.kill(wiped)
        await made.wipe(wiped)
        cold_reads = leader.counters.fetched_cold_bytes
        await made.start(wiped)
        await eventually(lambda: isr_of(partition) == {1, 2, 3})
        await level(made, "t")
        replica = made.replicas("t")[wiped]
        assert replica.log.local_log_start_offset >= 20
        assert leader.counters.fetched_cold_bytes == cold_reads
        await produce(made, "t", "after")


async def test_the_next_leader_goes_on_uploading_where_the_last_one_stopped(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create("t", configs={"segment.bytes": "400"})
        for number in range(20):
            await produce(made, "t", f"before {number}")
        first = await made.leader("t")
        await eventually(lambda: first.topics.by_name("t").partition(0).cold_end_offset >= 15)
        await made.kill(first.broker_id)
        second = await made.leader("t")
        for number in range(20):
            await produce(made, "t", f"after {number}")
        partition = second.topics.by_name("t").partition(0)
        await eventually(lambda: partition.cold_end_offset >= 35)
        segments = partition.committed
        assert [each.base_offset for each in segments[1:]] == [each.end_offset for each in segments[:-1]]


async def test_consumers_in_a_rack_are_sent_to_the_follower_there(tmp_path: Path) -> None:
    from tiered.broker.replication.nearest_replica import nearest_replica

    async with cluster(tmp_path, count=0) as made:
        for broker_id, rack in ((1, "a"), (2, "b"), (3, "c")):
            await made.start(broker_id, rack=rack)
        await made.create("t")
        appended = await produce(made, "t", "x")
        leader = await made.leader("t")
        partition = leader.topics.by_name("t").partition(0)
        other = "b" if leader.rack != "b" else "c"

        def nearest(rack: str, offset: int) -> int | None:
            return nearest_replica(leader.context, leader.image, partition, rack=rack, fetch_offset=offset)

        expected = {"a": 1, "b": 2, "c": 3}[other]
        await eventually(lambda: nearest(other, appended.end_offset) == expected)
        assert nearest(leader.rack or "", 0) is None
        assert nearest("elsewhere", 0) is None
        assert nearest(other, appended.end_offset + 1) is None


async def test_the_number_of_connections_to_a_leader_changes_at_run_time(tmp_path: Path) -> None:
    async with cluster(tmp_path, count=3) as made:
        await made.create("spread", partitions=4)
        broker = made.brokers[1]

        def lines() -> set[int]:
            return {number for each in made.brokers.values() for _, number in each.replication._fetchers}

        await produce(made, "spread", "before")
        assert lines() == {0}
        step = ConfigChange(name="num.replica.fetchers", operation=ConfigOperation.SET, value="2")
        await broker.admin.alter_broker("", [step], keep_others=True, validate_only=False)
        await eventually(lambda: lines() == {0, 1})
        await produce(made, "spread", "after")
