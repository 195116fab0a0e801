"""Offsets that are sent with transactions: who may, in which order they are written, and who sees them when."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.contracts.stored_transactions import PRODUCER, begin, decided
from tests.unit.broker.groups.coordinators import Coordinating, coordinating, joining
from tiered.broker.groups.committed_offsets import OffsetEntry
from tiered.broker.groups.offsets_topic import TENURE_SHIFT
from tiered.broker.groups.values import Fence
from tiered.errors import (
    CoordinatorNotAvailable,
    FencedInstance,
    IllegalGeneration,
    InvalidRequest,
    NotCoordinator,
    ProducerFenced,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMember,
)
from tiered.ids import TopicPartition
from tiered.rules.groups.assignors import NO_PARTITIONS
from tiered.rules.groups.consumer_heartbeat import Heartbeat
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Coordinating]:
    async with coordinating(
        tmp_path, group_initial_rebalance_delay_ms="0", tiered_offset_commit_linger_ms="100"
    ) as made:
        await asyncio.to_thread(begin, made.database)
        yield made


def fence(broker: Coordinating, group_id: str = "billing") -> Fence:
    slot = broker.groups.slot(group_id)
    return Fence(group_id=group_id, slot=slot, tenure=broker.groups.slots.tenure(slot), generation=0)


def key(broker: Coordinating, partition: int = 0) -> TopicPartition:
    return TopicPartition(broker.topics.by_name("orders").topic_id, partition)


def entry(broker: Coordinating, offset: int, partition: int = 0) -> OffsetEntry:
    return OffsetEntry(topic_id=key(broker).topic_id, partition=partition, offset=offset)


def send(
    broker: Coordinating, offset: int, *, partition: int = 0, epoch: int = 3, of: Fence | None = None
) -> "asyncio.Future[None]":
    return broker.groups.offsets.submit_with_transaction(
        of or fence(broker),
        [entry(broker, offset, partition)],
        transactional_id=f"t{PRODUCER}",
        producer=ProducerIdAndEpoch(PRODUCER, epoch),
    )


async def decide(broker: Coordinating) -> None:
    await broker.database.run(lambda conn: decided(conn, committed=(PRODUCER,)))


async def offsets(broker: Coordinating) -> dict[int, int]:
    found = await broker.groups.offsets.fetch("billing")
    return {partition.partition: row.committed_offset for partition, row in found.items()}


async def unstable(broker: Coordinating, *wanted: int) -> set[int]:
    keys = [key(broker, each) for each in wanted] if wanted else None
    found = await broker.groups.offsets.fetch_stable("billing", keys)
    return {each.partition for each in found.unstable}


async def test_offsets_of_an_open_transaction_are_unstable_and_then_the_groups(broker: Coordinating) -> None:
    await broker.groups.offsets.commit(fence(broker), [entry(broker, 5)])
    await asyncio.gather(send(broker, 7), send(broker, 8, partition=1))
    assert (await offsets(broker), await unstable(broker), await unstable(broker, 0, 2)) == ({0: 5}, {0, 1}, {0, 1})
    await decide(broker)
    assert (await offsets(broker), await unstable(broker)) == ({0: 7, 1: 8}, set())


async def test_reading_waits_for_offsets_that_are_on_their_way_with_a_transaction(broker: Coordinating) -> None:
    on_its_way = send(broker, 7)
    assert await unstable(broker) == {0}
    assert on_its_way.done()


@pytest.mark.parametrize("name", ["", "zero\0byte", "t" * 2001])
async def test_what_is_no_transactional_id_reaches_no_write_that_others_share(broker: Coordinating, name: str) -> None:
    """PostgreSQL fails a statement with a zero byte in it, and with that all commits of the transaction."""
    with pytest.raises(InvalidRequest):
        broker.groups.offsets.submit_with_transaction(
            fence(broker),
            [entry(broker, 7)],
            transactional_id=name,
            producer=ProducerIdAndEpoch(PRODUCER, 3),
        )


async def test_plain_commits_and_those_of_transactions_share_one_write(broker: Coordinating) -> None:
    plain = broker.groups.offsets.submit(fence(broker), [entry(broker, 5)])
    fenced = send(broker, 6, epoch=2)
    sent = send(broker, 7, partition=1)
    await asyncio.wait([plain, fenced, sent])
    assert isinstance(fenced.exception(), ProducerFenced), "and the others do not suffer from it"
    query = "SELECT commit_number FROM group_offset UNION ALL SELECT commit_number FROM transaction_offset"
    numbers = await broker.database.run(lambda conn: conn.execute(text(query)).scalars().all())
    assert len(numbers) == 2
    assert len(set(numbers)) == 1


async def test_a_write_whose_slot_epoch_is_over_is_repeated_under_the_new_one(broker: Coordinating) -> None:
    statement = text("UPDATE coordinator_slot SET slot_epoch = slot_epoch + 1")
    await broker.database.run(lambda conn: conn.execute(statement))
    with pytest.raises(CoordinatorNotAvailable):
        await send(broker, 7)
    await send(broker, 8)
    await decide(broker)
    assert await offsets(broker) == {0: 8}


async def test_a_fence_of_a_lost_slot_sends_nothing(broker: Coordinating) -> None:
    old = Fence(group_id="billing", slot=fence(broker).slot, tenure=0, generation=0)
    with pytest.raises(NotCoordinator):
        await send(broker, 7, of=old)


async def test_a_decision_is_news_to_readers_of_the_offsets_topic(broker: Coordinating) -> None:
    topic, slot = broker.groups.offsets_topic, broker.groups.slot("billing")
    await send(broker, 7)
    log = await topic.loaded(slot)
    assert log.end_offset == log.start_offset, "what waits is nobody's offset"
    await decide(broker)
    broker.groups.offsets_decided(slot)
    await topic.tick()
    assert log.end_offset == log.start_offset + 1
    assert log.start_offset >> TENURE_SHIFT == broker.groups.slots.tenure(slot)


# Who may: KIP-447


async def check(broker: Coordinating, member_id: str = "", generation: int = -1, instance_id: str | None = None) -> int:
    """The generation to which the permission is bound."""
    given = await broker.groups.check_commit("g", member_id, instance_id, generation, is_transactional=True)
    return given.generation


async def test_whoever_names_no_member_sends_offsets_beside_a_classic_groups_members(broker: Coordinating) -> None:
    assert await check(broker) == -1
    await broker.groups.classic.join(joining())
    assert await check(broker) == -1
    with pytest.raises(UnknownMember):
        await broker.groups.check_commit("g", "", None, -1)


async def test_a_classic_member_sends_offsets_of_its_generation_also_while_the_assignment_is_made(
    broker: Coordinating,
) -> None:
    joined = await broker.groups.classic.join(joining("i"))
    with pytest.raises(RebalanceInProgress):
        await broker.groups.check_commit("g", joined.member_id, None, joined.generation)
    assert await check(broker, joined.member_id, joined.generation, "i") == joined.generation
    for member_id, generation, instance_id, refused in (
        (joined.member_id, joined.generation - 1, None, IllegalGeneration),
        (joined.member_id, -1, None, IllegalGeneration),
        ("somebody", joined.generation, None, UnknownMember),
        ("somebody", joined.generation, "i", FencedInstance),
    ):
        with pytest.raises(refused):
            await check(broker, member_id, generation, instance_id)


async def test_a_member_of_a_new_group_sends_offsets_of_its_epoch(broker: Coordinating) -> None:
    member = await broker.groups.consumer.heartbeat(
        Heartbeat(
            group_id="g",
            member_id="m",
            epoch=0,
            rebalance_timeout_ms=10_000,
            topics=frozenset({"orders"}),
            pattern=None,
            owned=NO_PARTITIONS,
        )
    )
    assert await check(broker, "m", member.epoch) == -1, "other members' changes do not void it"
    assert await check(broker) == -1
    for member_id, epoch, refused in (("m", member.epoch + 1, StaleMemberEpoch), ("somebody", 1, UnknownMember)):
        with pytest.raises(refused):
            await check(broker, member_id, epoch)


async def test_nobody_is_in_a_generation_of_a_group_that_is_not_there(broker: Coordinating) -> None:
    with pytest.raises(IllegalGeneration):
        await check(broker, "m", 1)
