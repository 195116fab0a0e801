"""The coordinator between its groups and SQL: what happens while it waits, and what its memory is counted for."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import Connection

from tests.unit.broker.groups.coordinators import Coordinating, coordinating
from tiered.broker.groups import patterns
from tiered.broker.groups.classic_group import ClassicGroup
from tiered.broker.groups.committed_offsets import OffsetEntry
from tiered.broker.groups.consumer_group import ConsumerGroup
from tiered.broker.groups.values import GroupKind, JoinRequest, LeavingMember, MemberProtocol
from tiered.errors import CoordinatorNotAvailable, GroupNotEmpty, NotCoordinator
from tiered.ids import TopicPartition
from tiered.meta.engine import Database
from tiered.meta.groups import GroupRow
from tiered.rules.groups.assignors import NO_PARTITIONS
from tiered.rules.groups.consumer_heartbeat import Heartbeat
from tiered.rules.groups.consumer_member import LEAVE
from tiered.wire.consumer_protocol import Subscription, encode_subscription

T = TypeVar("T")
METADATA = encode_subscription(Subscription(topics=("orders",)))


class LateDatabase(Database):
    """The real one, some of whose answers take longer."""

    delays_s: Sequence[float] = ()

    async def read(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None) -> T:
        delay_s, self.delays_s = sum(self.delays_s[:1]), self.delays_s[1:]
        answer = await super().read(fn, deadline_ms=deadline_ms)
        await asyncio.sleep(delay_s)
        return answer


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Coordinating]:
    async with coordinating(tmp_path, sql=LateDatabase, group_initial_rebalance_delay_ms="0") as made:
        yield made


@asynccontextmanager
async def slow_sql(broker: Coordinating) -> AsyncIterator[None]:
    """A transaction that takes all of this block: it has the turn, and SQLite does one at a time."""
    begun, over = threading.Event(), threading.Event()

    def wait(_: Connection) -> None:
        begun.set()
        over.wait(20)

    task = asyncio.ensure_future(broker.groups.offsets.commits.exclusively([], wait))
    assert await asyncio.to_thread(begun.wait, 20)
    try:
        yield
    finally:
        over.set()
        task.add_done_callback(lambda done: done.exception())


async def a_few_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def heartbeat(member_id: str, *, group_id: str = "billing", epoch: int = 0, pattern: str | None = None) -> Heartbeat:
    return Heartbeat(
        group_id=group_id,
        member_id=member_id,
        epoch=epoch,
        rebalance_timeout_ms=10_000,
        topics=frozenset() if pattern else frozenset({"orders"}),
        pattern=pattern,
        owned=NO_PARTITIONS,
    )


def joining(member_id: str = "", *, instance_id: str | None = None, group_id: str = "billing") -> JoinRequest:
    return JoinRequest(
        group_id=group_id,
        member_id=member_id,
        instance_id=instance_id,
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(MemberProtocol(name="range", metadata=METADATA),),
        requires_known_member_id=False,
        supports_skipping_assignment=True,
    )


async def commit(broker: Coordinating, offset: int, member_id: str = "", epoch: int = -1) -> None:
    fence = await broker.groups.check_commit("billing", member_id, None, epoch)
    topic_id = broker.topics.by_name("orders").topic_id
    await broker.groups.offsets.commit(fence, [OffsetEntry(topic_id=topic_id, partition=0, offset=offset)])


async def committed(broker: Coordinating) -> list[int]:
    return [each.committed_offset for each in (await broker.groups.offsets.fetch("billing")).values()]


def given_back(broker: Coordinating) -> bool:
    """Whether nothing is counted any more once all groups are forgotten."""
    broker.groups.begin_stop()
    return broker.groups.memory.taken_bytes == 0


async def test_commits_that_wait_for_their_group_to_be_read_are_stored_in_their_order(broker: Coordinating) -> None:
    """The first may be of a connection that its client has given up, and the second what it sent on the next one."""
    assert isinstance(broker.database, LateDatabase)
    broker.database.delays_s = [0.3, 0.1, 0.0]
    await asyncio.gather(*(commit(broker, offset) for offset in (1, 2, 3)))
    assert await committed(broker) == [3]


async def test_a_group_that_members_join_while_it_is_being_deleted_stays_with_what_they_commit(
    broker: Coordinating,
) -> None:
    await commit(broker, 1)
    async with slow_sql(broker):
        deleting = asyncio.ensure_future(broker.groups.delete_group("billing"))
        await a_few_turns()
        member = await broker.groups.consumer.heartbeat(heartbeat("m"))
        committing = asyncio.ensure_future(commit(broker, 2, "m", member.epoch))
        await a_few_turns()
        assert not deleting.done()
    with pytest.raises(GroupNotEmpty):
        await deleting
    await committing
    assert await committed(broker) == [2]


async def test_offsets_that_members_commit_while_older_ones_are_being_deleted_stay(broker: Coordinating) -> None:
    await commit(broker, 1)
    partition = TopicPartition(broker.topics.by_name("orders").topic_id, 0)

    def refuse() -> None:
        raise GroupNotEmpty("somebody came")

    with pytest.raises(GroupNotEmpty):
        await broker.groups.offsets.delete("billing", [partition], check=refuse)
    assert await committed(broker) == [1]


async def test_a_group_that_was_being_read_when_the_broker_stopped_is_not_taken_in(broker: Coordinating) -> None:
    async with slow_sql(broker):
        joined = asyncio.ensure_future(broker.groups.classic.join(joining(group_id="late")))
        await a_few_turns()
        broker.groups.begin_stop()
    with pytest.raises(NotCoordinator):
        await joined
    assert broker.groups.find("late") is None


async def test_what_sql_cannot_digest_of_one_group_stops_no_other(broker: Coordinating) -> None:
    """A check constraint refuses the first row; on PostgreSQL a zero byte would do."""
    slot = broker.groups.slot("poison")
    poison = GroupRow(group_id="poison", slot=slot, kind="?", protocol_type="", generation=1, empty_since_ms=None)
    broker.groups.offsets.commits.changed(poison)
    broker.groups.offsets.note_group(
        "billing", kind=GroupKind.CLASSIC, protocol_type="consumer", generation=7, is_empty=True
    )
    async with asyncio.timeout(20):
        while broker.groups.offsets.commits.due("billing") or not await committed(broker):
            try:
                await commit(broker, 1)
            except CoordinatorNotAvailable:
                continue  # It was in one batch with the row.
    stored = await broker.groups.offsets.load_group("billing")
    assert stored is not None
    assert stored.generation == 7


async def test_a_group_turns_classic_though_memory_is_full(broker: Coordinating) -> None:
    """Its classic members are in already; refused, they would be in a group that nothing ever moves again."""
    coordinator = broker.groups
    classic = await coordinator.classic.join(joining(instance_id="i" * 1000))
    new = await coordinator.consumer.heartbeat(heartbeat("new"))
    assert isinstance(coordinator.find("billing"), ConsumerGroup)
    free_bytes = broker.settings.groups.tiered_group_memory_bytes - coordinator.memory.taken_bytes
    coordinator.memory.take(free_bytes)
    await coordinator.consumer.heartbeat(replace(heartbeat("new"), epoch=LEAVE))
    group = coordinator.find("billing")
    assert isinstance(group, ClassicGroup)
    assert list(group.members) == [classic.member_id]
    assert new.epoch > classic.generation
    coordinator.memory.take(-free_bytes)
    assert given_back(broker)


async def test_an_empty_group_stays_what_it_is_where_there_is_no_memory_for_another(broker: Coordinating) -> None:
    coordinator = broker.groups
    await coordinator.consumer.heartbeat(heartbeat("new"))
    await coordinator.consumer.heartbeat(replace(heartbeat("new"), epoch=LEAVE))
    free_bytes = broker.settings.groups.tiered_group_memory_bytes - coordinator.memory.taken_bytes
    coordinator.memory.take(free_bytes)
    with pytest.raises(CoordinatorNotAvailable):
        await coordinator.classic.join(joining())
    coordinator.memory.take(-free_bytes)
    group = coordinator.find("billing")
    assert isinstance(group, ConsumerGroup)
    assert group.summary().state == "Empty", "and not Dead"
    assert (await coordinator.classic.join(joining())).generation > 1
    assert given_back(broker)


async def test_memory_is_given_back_when_members_change_their_ids_and_their_protocols(broker: Coordinating) -> None:
    coordinator = broker.groups
    first = await coordinator.classic.join(joining(instance_id="a"))
    second = asyncio.ensure_future(coordinator.classic.join(joining(instance_id="a" * 900)))
    await a_few_turns()
    back = await coordinator.classic.join(joining(first.member_id, instance_id="a"))
    stays = await second
    await coordinator.classic.leave("billing", [LeavingMember(member_id="", instance_id="a")])
    upgraded = replace(heartbeat("n" * 500), instance_id="a" * 900)
    await coordinator.consumer.heartbeat(upgraded)
    assert {back.generation, stays.generation} == {2}
    await coordinator.classic.join(joining(instance_id="b"))
    await coordinator.consumer.heartbeat(replace(upgraded, epoch=LEAVE))
    await coordinator.classic.leave("billing", [LeavingMember(member_id="", instance_id="b")])
    assert given_back(broker)


async def test_a_pattern_is_not_forgotten_before_its_member_is_in(
    broker: Coordinating, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its first heartbeat brings the pattern: forgotten then, the member would never get a partition."""
    monkeypatch.setattr(patterns, "MAX_PATTERNS", 1)
    answers = await asyncio.gather(
        *(
            broker.groups.consumer.heartbeat(heartbeat("m", group_id=f"group-{number}", pattern=f"orders|{number}"))
            for number in range(3)
        ),
        return_exceptions=True,
    )
    refused = [each for each in answers if isinstance(each, CoordinatorNotAvailable)]
    assert len(refused) == 2
    assert all(each.assignment for each in answers if not isinstance(each, BaseException))
