"""The waits of a rebalance: whom it gathers, and who has left when a wait is over."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.broker.groups.coordinators import Coordinating, coordinating, joining
from tiered.broker.groups.classic_rebalance import ClassicRebalance
from tiered.errors import NotCoordinator, UnknownMember
from tiered.rules.groups.group_state import GroupEvent, GroupState

SOON_MS = 20


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Coordinating]:
    async with coordinating(tmp_path, group_initial_rebalance_delay_ms=str(SOON_MS)) as made:
        yield made


@pytest.fixture
async def rebalance(broker: Coordinating) -> AsyncIterator[ClassicRebalance]:
    made = ClassicRebalance(broker.groups, "g", generation=0, protocol_type="consumer")
    yield made
    made.close(NotCoordinator("the test is over"))
    assert broker.groups.memory.taken_bytes == 0


async def stable(rebalance: ClassicRebalance, *member_ids: str, timeout_ms: int = SOON_MS) -> None:
    """So many members, who have their assignments; those whose names begin with "static" are."""
    answers = [
        rebalance.add(
            each,
            replace(joining(each if each.startswith("static") else None), rebalance_timeout_ms=timeout_ms),
        )
        for each in member_ids
    ]
    async with asyncio.timeout(20):
        await asyncio.gather(*answers)
    rebalance.assign({each: each.encode() for each in member_ids})
    for each in member_ids:
        rebalance.synced(each)


async def test_who_joins_an_empty_group_one_after_the_other_is_in_one_generation(rebalance: ClassicRebalance) -> None:
    first = rebalance.add("a", joining())
    await asyncio.sleep(0)
    second = rebalance.add("b", joining())
    async with asyncio.timeout(20):
        leader, follower = await asyncio.gather(first, second)
    assert (leader.generation, follower.generation, leader.leader, follower.leader) == (1, 1, "a", "a")
    assert ([each.member_id for each in leader.members], list(follower.members)) == (["a", "b"], [])


async def test_who_does_not_join_again_in_time_has_left_unless_it_is_static(rebalance: ClassicRebalance) -> None:
    await stable(rebalance, "comes", "stays away", "static, away")
    answer = await rebalance.await_rebalance(rebalance.roster.members["comes"], "it has other topics")
    assert list(rebalance.roster.members) == ["comes", "static, away"]
    assert (answer.generation, rebalance.state) == (2, GroupState.COMPLETING_REBALANCE)
    assert [each.member_id for each in answer.members] == ["comes", "static, away"]


async def test_who_never_asks_for_its_assignment_has_left_and_the_others_join_again(
    rebalance: ClassicRebalance,
) -> None:
    request = replace(joining(), rebalance_timeout_ms=SOON_MS)
    await asyncio.gather(rebalance.add("asks", request), rebalance.add("is silent", request))
    rebalance.assign({"asks": b"mine", "is silent": b"nobody's"})
    rebalance.synced("asks")
    async with asyncio.timeout(20):
        while rebalance.state is GroupState.STABLE:
            await asyncio.sleep(0.001)
    assert (rebalance.state, list(rebalance.roster.members)) == (GroupState.PREPARING_REBALANCE, ["asks"])


async def test_a_session_that_ends_while_the_member_waits_for_us_is_no_silence(
    rebalance: ClassicRebalance, broker: Coordinating, caplog: pytest.LogCaptureFixture
) -> None:
    """But for a new one: its client may be long gone, and would hold the group up with every rebalance."""
    caplog.set_level(logging.INFO)
    await stable(rebalance, "a", "b", timeout_ms=60_000)
    waits = rebalance.await_rebalance(rebalance.roster.members["a"], "it has other topics")
    new = rebalance.add("new", joining())
    rebalance.expired("a")
    rebalance.expired("new")
    assert list(rebalance.roster.members) == ["a", "b"]
    assert isinstance(new.exception(), UnknownMember)
    rebalance.expired("b")
    async with asyncio.timeout(20):
        assert (await waits).generation == 2
    assert broker.context.counters.group_members_expired == 2
    assert (
        "group g: member b (client c at h) was silent for its session time-out of 60000 ms and has left" in caplog.text
    )


async def test_a_group_whose_last_member_has_gone_is_empty_in_a_generation_of_its_own(
    rebalance: ClassicRebalance,
) -> None:
    await stable(rebalance, "a")
    rebalance.drop(rebalance.roster.members["a"], rebalance.roster.unknown("a"))
    rebalance.changed(GroupEvent.MEMBER_REMOVED, "it left")
    assert (rebalance.state, rebalance.generation, rebalance.protocol_name) == (GroupState.EMPTY, 2, "")
