"""How the members of a classic group come from one generation to the next."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.broker.groups.coordinators import Coordinating, coordinating, joining, sync
from tiered.broker.groups.classic_group import ClassicGroup
from tiered.broker.groups.values import LeavingMember
from tiered.errors import IllegalGeneration, RebalanceInProgress


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Coordinating]:
    async with coordinating(tmp_path, group_initial_rebalance_delay_ms="0") as made:
        yield made


async def test_whoever_waits_gets_the_leaders_assignment_and_joins_again_when_somebody_leaves(
    broker: Coordinating,
) -> None:
    group = ClassicGroup(broker.groups, "g", generation=4)
    first = group.join(replace(joining(), client_id="first"))
    assert isinstance(first, asyncio.Future)
    leader = (await first).member_id
    second = group.join(replace(joining(), client_id="second"))
    assert isinstance(second, asyncio.Future)
    with pytest.raises(RebalanceInProgress):
        group.heartbeat(leader, None, 5)
    again = group.join(replace(joining(), member_id=leader))
    assert isinstance(again, asyncio.Future)
    told, other = await again, (await second).member_id
    assert (told.generation, told.leader, {each.member_id for each in told.members}) == (6, leader, {leader, other})
    waiting = group.sync(sync(other, 6))
    assert isinstance(waiting, asyncio.Future)
    group.sync(sync(leader, 6, **{leader: b"mine", other: b"theirs"}))
    assert (await waiting).assignment == b"theirs"
    with pytest.raises(IllegalGeneration):
        group.heartbeat(other, None, 5)
    assert group.leave([LeavingMember(member_id=leader, instance_id=None)]) == [None]
    with pytest.raises(RebalanceInProgress):
        group.heartbeat(other, None, 6)
    group.close()


async def test_a_group_without_members_notes_that_it_is_empty_under_a_later_generation(broker: Coordinating) -> None:
    group = ClassicGroup(broker.groups, "g")
    joined = group.join(joining())
    assert isinstance(joined, asyncio.Future)
    member_id = (await joined).member_id
    group.leave([LeavingMember(member_id=member_id, instance_id=None)])
    stored = await broker.groups.offsets.load_group("g")
    assert stored is not None
    assert (stored.generation, stored.empty_since_ms is None, group.is_empty) == (2, False, True)
    group.close()
