"""The way of a KIP-848 member's heartbeat to its group, and the topics that it may mean."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.unit.broker.context import SetClock
from tests.unit.broker.groups.coordinators import PARTITIONS, Coordinating, coordinating, joining
from tiered.broker.groups.classic_group import ClassicGroup
from tiered.broker.groups.consumer import ConsumerGroups
from tiered.broker.groups.consumer_group import PAUSE_PER_TARGET
from tiered.broker.groups.values import GroupKind
from tiered.broker.host.resource_configs import ResourceConfigs
from tiered.errors import GroupNotFound, InvalidRequest, UnknownMember
from tiered.ids import TopicId
from tiered.rules.groups.assignors import NO_PARTITIONS
from tiered.rules.groups.consumer_heartbeat import Heartbeat

HEARTBEAT = Heartbeat(
    group_id="g", member_id="m", epoch=0, rebalance_timeout_ms=10_000, topics=frozenset({"orders"}),
    owned=NO_PARTITIONS,
)  # fmt: skip


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Coordinating]:
    async with coordinating(tmp_path, group_initial_rebalance_delay_ms="0") as made:
        yield made


async def test_a_group_from_another_coordinator_gives_nothing_away_until_its_members_could_hear_of_it(
    broker: Coordinating,
) -> None:
    """They may use their partitions until their next heartbeats tell them that nobody knows them."""
    groups, clock = broker.groups.consumer, broker.context.clock
    assert isinstance(clock, SetClock)
    broker.groups.offsets.note_group(
        "g", kind=GroupKind.CONSUMER, protocol_type="consumer", generation=7, is_empty=True
    )
    groups.slots_gained([broker.groups.slot("g")])
    first = await groups.heartbeat(HEARTBEAT)
    assert first.epoch > 7
    assert not first.assignment
    interval_ms = ResourceConfigs(lambda: broker.settings).group("g").consumer_heartbeat_interval_ms
    clock.waited_ms += interval_ms // 2
    assert not (await groups.heartbeat(replace(HEARTBEAT, member_id="second"))).assignment
    clock.waited_ms += interval_ms
    assert (await groups.heartbeat(replace(HEARTBEAT, member_id="third"))).assignment


@pytest.mark.parametrize("work_ms", [4, 60])
async def test_a_target_that_took_much_work_delays_the_next_one_and_no_other_does(
    broker: Coordinating, work_ms: int
) -> None:
    groups, clock = broker.groups.consumer, broker.context.clock
    assert isinstance(clock, SetClock)
    clock.work_between_looks_ms = work_ms
    assert (await groups.heartbeat(HEARTBEAT)).assignment, "the first one is made at once"
    group = await groups.group("g")
    second = replace(HEARTBEAT, member_id="second")
    joined = await groups.heartbeat(second)
    assert (group.state.target_epoch == group.state.epoch) == (work_ms == 4)
    clock.waited_ms += PAUSE_PER_TARGET * work_ms
    await groups.heartbeat(replace(second, epoch=joined.epoch, topics=None, owned=None))
    assert group.state.target_epoch == group.state.epoch


async def test_the_log_names_the_client_of_a_member_that_was_silent(
    broker: Coordinating, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await broker.groups.consumer.heartbeat(replace(HEARTBEAT, client_id="app", client_host="/10.0.0.7"))
    group = await broker.groups.consumer.group("g")
    group.timers.touch("m", 10)
    async with asyncio.timeout(20):
        while group.member_count:
            await asyncio.sleep(0.01)
    assert "group g: member m (client app at /10.0.0.7) was silent for its session time-out and has left" in caplog.text


async def test_only_who_joins_makes_a_group_or_changes_its_protocol(broker: Coordinating) -> None:
    groups = broker.groups.consumer
    with pytest.raises(UnknownMember):
        await groups.heartbeat(replace(HEARTBEAT, epoch=3))
    assert broker.groups.find("g") is None
    joined = await broker.groups.classic.join(joining(topic="orders"))
    with pytest.raises(UnknownMember):
        await groups.heartbeat(replace(HEARTBEAT, epoch=3))
    found = broker.groups.find("g")
    assert isinstance(found, ClassicGroup)
    assert list(found.members) == [joined.member_id]
    with pytest.raises(GroupNotFound, match="describe it as a classic one"):
        await groups.group("g")


async def test_a_member_cannot_change_its_rebalance_time_out_to_what_none_has(broker: Coordinating) -> None:
    """What is stored of it is read by the next coordinator, which takes none of a group's members if one cannot be."""
    groups = broker.groups.consumer
    answer = await groups.heartbeat(HEARTBEAT)
    for time_out_ms in (0, -7):
        with pytest.raises(InvalidRequest):
            await groups.heartbeat(replace(HEARTBEAT, epoch=answer.epoch, rebalance_timeout_ms=time_out_ms))
    assert (await groups.group("g")).state.member("m").rebalance_timeout_ms == HEARTBEAT.rebalance_timeout_ms


async def test_a_member_that_names_no_pattern_keeps_its_last(broker: Coordinating) -> None:
    groups = broker.groups.consumer
    answer = await groups.heartbeat(replace(HEARTBEAT, topics=frozenset(), pattern="ord.*"))
    assert answer.assignment
    later = replace(HEARTBEAT, epoch=answer.epoch, topics=None, pattern=None)
    assert groups.pattern_of(later).text == "ord.*"
    await groups.heartbeat(replace(later, topics=frozenset(), pattern=""))
    assert not groups.pattern_of(later)


async def test_partitions_of_topics_that_do_not_exist_are_left_out_by_name_and_by_id(broker: Coordinating) -> None:
    groups, orders = ConsumerGroups(broker.groups), broker.topics.by_name("orders").topic_id
    assert groups.by_id({"orders": (2, -1, 0, PARTITIONS), "gone": (0,)}) == {orders: frozenset({0, 2})}
    assert groups.by_id({"orders": (PARTITIONS,)}) == {}
    assert groups.named({orders: frozenset({2, 0}), TopicId(UUID(int=9)): frozenset({0})}) == {"orders": (0, 2)}
