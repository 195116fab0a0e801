"""Listeners of a tail that stand above what their broker knows to be committed, as after a change of leaders."""

import asyncio
from pathlib import Path

from tests.components.replication.brokers import cluster, eventually, produce
from tests.support.partition_appends import append, batch
from tiered.broker.broker import Broker
from tiered.broker.people.record_reader import StoredRecord
from tiered.broker.people.tail import Event, LocalTopicTail, TailRecords


def follow(broker: Broker, offset: int) -> LocalTopicTail:
    def value(stored: StoredRecord) -> bytes:
        return stored.record.value or b""

    topic = broker.topics.by_name("t")
    return LocalTopicTail(
        topic,
        context=broker.context,
        topics=broker.topics,
        records=broker.records,
        positions={0: offset},
        committed_only=False,
        wanted=None,
        render=lambda partition: value,
    )


async def turns_of_others(tail: LocalTopicTail, within_ms: float) -> tuple[Event | None, int]:
    """What the tail gives, and how often somebody else had his turn until then."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    counting = asyncio.create_task(count())
    try:
        return await tail.next(within_ms), turns
    finally:
        counting.cancel()


async def test_a_listener_above_the_high_watermark_waits_and_holds_nobody_up(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create("t")
        await produce(made, "t", "a")
        leader = await made.leader("t")
        partition = leader.topics.by_name("t").partition(0)
        others = [broker_id for broker_id in made.brokers if broker_id != leader.broker_id]
        for broker_id in others:
            made.channels.unplug(broker_id)
        append(partition, batch("b"))
        assert partition.high_watermark == 1
        tail = follow(leader, 2)
        event, turns = await turns_of_others(tail, 500)
        assert event is None
        assert turns > 5
        for broker_id in others:
            made.channels.plug(broker_id)
        append(partition, batch("c"))
        event = await tail.next(10_000)
        assert isinstance(event, TailRecords)
        assert event.records == ((2, b"c"),)


async def test_a_listener_above_the_end_of_a_follower_waits_for_it_and_skips_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create("t")
        await produce(made, "t", "a")
        leader = await made.leader("t")
        follower = next(broker for broker in made.brokers.values() if broker is not leader)
        replica = follower.topics.by_name("t").partition(0)
        await eventually(lambda: replica.high_watermark == 1)
        tail = follow(follower, 2)
        event, turns = await turns_of_others(tail, 500)
        assert event is None
        assert turns > 5
        assert tail.positions == {0: 2}
        await produce(made, "t", "b", "c")
        event = await tail.next(10_000)
        assert isinstance(event, TailRecords)
        assert event.records == ((2, b"c"),)


async def test_a_listener_above_the_end_of_a_leader_is_told_that_the_log_ends_below(tmp_path: Path) -> None:
    async with cluster(tmp_path, count=1, default_replication_factor="1", min_insync_replicas="1") as made:
        await made.create("t")
        await produce(made, "t", "a")
        tail = follow(await made.leader("t"), 7)
        event = await tail.next(1_000)
        assert event is not None
        assert getattr(event, "reason", "") == "truncated"
        assert tail.positions == {0: 1}
