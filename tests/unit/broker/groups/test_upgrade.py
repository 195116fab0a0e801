"""A group that changes its protocol: its members keep what they have, or it stays what it is."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.broker.groups.coordinators import Coordinating, coordinating, joining, sync
from tiered.broker.groups import consumer_classic, upgrade
from tiered.broker.groups.classic_group import ClassicGroup
from tiered.broker.groups.consumer_group import ConsumerGroup
from tiered.errors import GroupNotFound, IllegalGeneration
from tiered.wire.consumer_protocol import Assignment, encode_assignment


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Coordinating]:
    async with coordinating(tmp_path, group_initial_rebalance_delay_ms="0") as made:
        yield made


async def classic(broker: Coordinating, *, assignor: str = "range", user_data: bytes | None = None) -> ClassicGroup:
    """One member, which has partition 1."""
    joined = await broker.groups.classic.join(joining(topic="orders", protocols=(assignor,)))
    held = encode_assignment(Assignment(partitions={"orders": (1,)}, user_data=user_data))
    await broker.groups.classic.sync(sync(joined.member_id, joined.generation, **{joined.member_id: held}))
    group = broker.groups.find("g")
    assert isinstance(group, ClassicGroup)
    return group


async def test_a_member_has_the_same_partitions_in_the_same_epoch_there_and_back(broker: Coordinating) -> None:
    group = await classic(broker)
    (member_id,) = group.members
    made = upgrade.to_consumer(broker.groups, group)
    (member,) = made.state
    assert broker.groups.consumer.named(member.assigned) == {"orders": (1,)}
    assert (member.member_id, member.epoch) == (member_id, group.generation)
    consumer_classic.heartbeat(made, member_id, None, member.epoch)
    with pytest.raises(IllegalGeneration):
        consumer_classic.heartbeat(made, member_id, None, member.epoch + 1)
    back = upgrade.to_classic(broker.groups, made, generation=member.epoch)
    assert list(back.members) == [member_id]
    assert back.state.value == "PreparingRebalance"
    back.close()


async def test_what_an_assignor_of_its_own_says_means_nothing_to_the_other_protocol(broker: Coordinating) -> None:
    group = await classic(broker, assignor="streams", user_data=b"tasks")
    with pytest.raises(GroupNotFound, match="assignor of its own"):
        upgrade.to_consumer(broker.groups, group)
    assert group.state.value == "Stable"


async def test_a_classic_member_finds_an_empty_group_of_the_other_protocol_turned_classic(broker: Coordinating) -> None:
    broker.groups.adopt(ConsumerGroup(broker.groups, "g", epoch=7))
    joined = await broker.groups.classic.join(replace(joining(), client_id="c"))
    assert joined.generation == 8
    assert isinstance(broker.groups.find("g"), ClassicGroup)
