"""Who is in a classic group: by member ids and by instance ids, and what it takes of memory."""

import pytest

from tests.unit.broker.groups.coordinators import joining
from tiered.broker.groups.classic_roster import Roster, wanted_topics
from tiered.broker.groups.memory import GroupMemory
from tiered.errors import CoordinatorNotAvailable, FencedInstance, InconsistentProtocol, UnknownMember


def expired(member_id: str) -> None:
    raise AssertionError(member_id)


async def test_a_static_member_keeps_its_place_under_another_id_and_the_old_one_is_fenced() -> None:
    memory = GroupMemory(lambda: 1 << 20)
    roster = Roster("g", memory.purse(), protocol_type="")
    member = roster.add("a-1", joining("a"), expired)
    roster.add("b-1", joining(topic="other"), expired)
    roster.rename(member, "a-2")
    assert (roster.leader, roster.known("a-2", "a")) == ("a-2", member)
    with pytest.raises(FencedInstance):
        roster.known("a-1", "a")
    with pytest.raises(UnknownMember):
        roster.known("c", None)
    assert wanted_topics(roster.members.values()) == frozenset({"t", "other"})
    roster.assign({"a-2": b"12", "nobody": b"345"})
    roster.clear(UnknownMember("gone"))
    assert memory.taken_bytes == 0


async def test_a_member_fits_when_all_others_support_one_of_its_protocols() -> None:
    roster = Roster("g", GroupMemory(lambda: 1 << 20).purse(), protocol_type="")
    only = roster.add("a", joining(protocols=("range", "sticky")), expired)
    roster.check_protocols(joining(protocols=("sticky",)), None)
    with pytest.raises(InconsistentProtocol, match=r"partition\.assignment\.strategy"):
        roster.check_protocols(joining(protocols=("mine",)), None)
    roster.check_protocols(joining(protocols=("mine",)), instead_of=only)
    roster.clear(UnknownMember("gone"))


async def test_who_is_refused_for_want_of_memory_is_not_in() -> None:
    memory = GroupMemory(lambda: 100)
    roster = Roster("g", memory.purse(), protocol_type="")
    with pytest.raises(CoordinatorNotAvailable):
        roster.add("a", joining(), expired)
    with pytest.raises(CoordinatorNotAvailable):
        roster.add_pending("p", 1_000, expired)
    assert (roster.members, roster.pending, roster.leader, memory.taken_bytes) == ({}, {}, None, 0)
