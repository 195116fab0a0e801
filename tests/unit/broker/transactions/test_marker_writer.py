"""Markers in the partitions that a broker leads: what is answered when, of real replicas."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.transactions import append_marker, write
from tests.unit.broker.context import surroundings
from tests.unit.broker.replication.replicas import EPOCHS, TOPIC_ID, replica, row, tell
from tiered.broker.groups.slots import HeldSlots
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import OFFSETS_TOPIC, Topic, Topics
from tiered.broker.transactions.broker_channel import ProducersMarker
from tiered.broker.transactions.marker_writer import MOST_TOGETHER, MarkerWriter
from tiered.config import TopicConfig
from tiered.errors import NotLeader, TransactionCoordinatorFenced, UnknownTopicOrPartition
from tiered.formats.control_record import MarkerType, TransactionMarker
from tiered.ids import InSyncReplica, TopicId, TopicPartition
from tiered.meta.coordinator_slots import SlotRow
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch

HERE, SOLE = TopicPartition(TOPIC_ID, 0), TopicPartition(TopicId(UUID(int=98)), 0)
OFFSETS = TopicId(UUID(int=99))


def marker(*partitions: TopicPartition, coordinator_epoch: int = 5, producer_id: int = 7) -> ProducersMarker:
    return ProducersMarker(
        marker=TransactionMarker(type=MarkerType.COMMIT, coordinator_epoch=coordinator_epoch),
        producer=ProducerIdAndEpoch(producer_id, 0),
        raises_epoch=False,
        partitions=partitions,
    )


def topic(
    name: str, topic_id: TopicId, partition_count: int, *partitions: Partition, is_internal: bool = False
) -> Topic:
    return Topic(
        name=name,
        topic_id=topic_id,
        partition_count=partition_count,
        config=TopicConfig(),
        overrides={},
        partitions=partitions,
        is_internal=is_internal,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    leader: Partition
    writer: MarkerWriter
    topics: Topics
    decided: list[int]

    def fetched(self, offset: int) -> None:
        for broker_id in (2, 3):
            self.leader.note_fetch(InSyncReplica(broker_id, EPOCHS[broker_id]), offset, 0.0)


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Writing]:
    """Partition 0 of `t` has two followers, that of `sole` has none; this broker holds slot 3 of groups."""
    async with surroundings(tmp_path) as around:
        leader = replica(tmp_path, 1)
        tell(leader, row())
        topics, slots = Topics(), HeldSlots()
        topics.put(topic("t", TOPIC_ID, 2, leader))
        alone = replica(tmp_path / "sole", 1, min_insync_replicas=1)
        tell(alone, row(isr=(1,), replicas=(1,)))
        topics.put(topic("sole", SOLE.topic_id, 1, alone))
        topics.put(topic(OFFSETS_TOPIC, OFFSETS, 50, is_internal=True))
        slots.learn(
            [SlotRow(slot=3, broker_id=1, broker_epoch=101, slot_epoch=1, change_number=1)],
            broker_id=1,
            broker_epoch=101,
        )
        decided: list[int] = []
        writer = MarkerWriter(context=around.context, topics=topics, slots=slots, offsets_decided=decided.append)
        yield Writing(leader=leader, writer=writer, topics=topics, decided=decided)


async def test_a_marker_is_answered_once_every_in_sync_replica_has_it(made: Writing) -> None:
    told = asyncio.ensure_future(made.writer.write([marker(HERE)]))
    await asyncio.sleep(0.01)
    assert (made.leader.log.log_end_offset, told.done()) == (1, False)
    made.fetched(1)
    assert await told == [{HERE: None}]


async def test_a_repeated_marker_is_not_written_again_and_waits_for_the_first(made: Writing) -> None:
    first = asyncio.ensure_future(made.writer.write([marker(HERE)]))
    second = asyncio.ensure_future(made.writer.write([marker(HERE)]))
    await asyncio.sleep(0.01)
    assert (made.leader.log.log_end_offset, second.done()) == (1, False)
    made.fetched(1)
    assert [await first, await second] == [[{HERE: None}]] * 2


async def test_a_marker_that_no_other_machine_has_is_answered_once_it_is_on_disk(made: Writing) -> None:
    """Or a power loss would leave its transaction open: its coordinator has forgotten it."""
    sole = made.topics.by_name("sole").partition(0)
    assert await made.writer.write([marker(SOLE)]) == [{SOLE: None}]
    assert (sole.log.log_end_offset, sole.log.flushed_offset) == (1, 1)
    told = asyncio.ensure_future(made.writer.write([marker(HERE)]))
    await asyncio.sleep(0.01)
    made.fetched(1)
    assert await told == [{HERE: None}]
    assert made.leader.log.flushed_offset == 0, "with followers nobody waits for a disk"


async def test_a_marker_that_stands_and_is_not_on_disk_is_flushed_before_it_is_answered(made: Writing) -> None:
    sole = made.topics.by_name("sole").partition(0)
    append_marker(sole, marker(SOLE).marker, marker(SOLE).producer)
    assert await made.writer.write([marker(SOLE)]) == [{SOLE: None}]
    assert (sole.log.log_end_offset, sole.log.flushed_offset) == (1, 1)


async def test_each_marker_and_partition_succeeds_or_fails_for_itself(made: Writing) -> None:
    elsewhere, gone = TopicPartition(TOPIC_ID, 1), TopicPartition(TopicId(UUID(int=8)), 0)
    ours, theirs = TopicPartition(OFFSETS, 3), TopicPartition(OFFSETS, 4)
    told = asyncio.ensure_future(
        made.writer.write([marker(HERE, elsewhere, gone), marker(HERE, ours, theirs, producer_id=8)])
    )
    await asyncio.sleep(0.01)
    made.fetched(2)
    first, second = await told
    assert first[HERE] is None
    assert isinstance(first[elsewhere], NotLeader)
    assert isinstance(first[gone], UnknownTopicOrPartition)
    assert (second[HERE], second[ours], made.decided) == (None, None, [3])
    assert isinstance(second[theirs], NotLeader)


async def test_a_coordinator_of_before_is_refused_and_leadership_that_goes_is_no_success(made: Writing) -> None:
    first = asyncio.ensure_future(made.writer.write([marker(HERE)]))
    await asyncio.sleep(0.01)
    (older,) = await made.writer.write([marker(HERE, coordinator_epoch=4)])
    assert isinstance(older[HERE], TransactionCoordinatorFenced)
    tell(made.leader, row(leader=2, epoch=1))
    (lost,) = await first
    assert isinstance(lost[HERE], NotLeader)


async def test_markers_of_one_partition_wait_for_the_last_of_them_and_fail_together(made: Writing) -> None:
    markers = [marker(HERE, producer_id=7), marker(HERE, producer_id=8)]
    told = asyncio.ensure_future(made.writer.write(markers))
    await asyncio.sleep(0.01)
    made.fetched(1)
    await asyncio.sleep(0.01)
    assert (made.leader.log.log_end_offset, told.done(), len(made.leader.acknowledgements)) == (2, False, 1)
    tell(made.leader, row(leader=2, epoch=1))
    assert [isinstance(each[HERE], NotLeader) for each in await told] == [True, True]


async def test_markers_that_come_together_are_one_write_and_end_each_of_their_transactions(made: Writing) -> None:
    sole = made.topics.by_name("sole").partition(0)
    for producer_id in range(3):
        write(sole, producer_id)
    changes = list[Partition]()
    sole._changed = changes.append
    await made.writer.write([marker(SOLE, producer_id=producer_id) for producer_id in range(3)])
    assert (len(changes), sole.log.log_end_offset, sole.last_stable_offset) == (1, 6, 6)


async def test_of_two_markers_of_one_producer_the_second_is_judged_by_what_the_first_leaves(made: Writing) -> None:
    """X7: it may be of an epoch that has ended by then."""
    newer, older = marker(SOLE, coordinator_epoch=6), marker(SOLE, coordinator_epoch=5)
    (first, second) = await made.writer.write([newer, older])
    assert first == {SOLE: None}
    assert isinstance(second[SOLE], TransactionCoordinatorFenced)
    assert made.topics.by_name("sole").partition(0).log.log_end_offset == 1


async def test_more_markers_than_go_together_are_all_written(made: Writing) -> None:
    count = 2 * MOST_TOGETHER + 1
    outcomes = await made.writer.write([marker(SOLE, producer_id=producer_id) for producer_id in range(count)])
    assert outcomes == [{SOLE: None}] * count
    assert made.topics.by_name("sole").partition(0).log.log_end_offset == count
