"""What is checked of a classic member's request before a group is asked, or made."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker.groups.coordinators import Coordinating, coordinating, joining, sync
from tiered.broker.groups.classic import MAX_LEAVING, ClassicGroups
from tiered.broker.groups.values import GroupKind, LeavingMember
from tiered.errors import (
    InconsistentProtocol,
    InvalidRequest,
    InvalidSessionTimeout,
    TieredError,
    UnknownMember,
)
from tiered.rules.groups.consumer_heartbeat import MAX_NAME_CHARS


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Coordinating]:
    async with coordinating(tmp_path, group_initial_rebalance_delay_ms="0") as made:
        yield made


@pytest.mark.parametrize(
    ("altered", "refusal"),
    [
        ({"session_timeout_ms": 5_999}, InvalidSessionTimeout),
        ({"session_timeout_ms": 1_800_001}, InvalidSessionTimeout),
        ({"protocol_type": ""}, InconsistentProtocol),
        ({"protocols": ()}, InconsistentProtocol),
        ({"member_id": "m" * (MAX_NAME_CHARS + 1)}, InvalidRequest),
        ({"instance_id": "zero\0byte"}, InvalidRequest),
        ({"member_id": "of a group that went"}, UnknownMember),
    ],
)
async def test_a_request_that_is_refused_makes_no_group(
    broker: Coordinating, altered: dict[str, Any], refusal: type[TieredError]
) -> None:
    with pytest.raises(refusal):
        await ClassicGroups(broker.groups).join(replace(joining(), **altered))
    assert broker.groups.find("g") is None
    assert broker.groups.memory.taken_bytes == 0


@pytest.mark.parametrize("names", [{"instance_id": "i" * MAX_NAME_CHARS}, {"client_id": "zero\0byte"}])
async def test_a_member_can_come_back_with_the_id_that_it_was_given(
    broker: Coordinating, names: dict[str, Any]
) -> None:
    groups, request = ClassicGroups(broker.groups), replace(joining(), **names)
    first = await groups.join(request)
    assert (await groups.join(replace(request, member_id=first.member_id))).member_id == first.member_id


async def test_nobody_is_a_member_of_a_group_that_is_not_there(broker: Coordinating) -> None:
    groups = ClassicGroups(broker.groups)
    with pytest.raises(UnknownMember):
        await groups.heartbeat("g", member_id="m", instance_id=None, generation=1)
    with pytest.raises(UnknownMember):
        await groups.sync(sync("m", 1))
    answers = await groups.leave("g", [LeavingMember(member_id=each, instance_id=None) for each in "ab"])
    assert [type(each) for each in answers] == [UnknownMember] * 2
    with pytest.raises(InvalidRequest):
        await groups.leave("g", [LeavingMember(member_id="m", instance_id=None)] * (MAX_LEAVING + 1))


async def test_a_group_that_comes_back_from_sql_goes_on_above_its_generation(broker: Coordinating) -> None:
    """A member of the coordinator before must not be taken for one of the new generation."""
    broker.groups.offsets.note_group("g", kind=GroupKind.CLASSIC, protocol_type="consumer", generation=7, is_empty=True)
    assert (await ClassicGroups(broker.groups).join(joining())).generation == 8
