"""A stable group goes on with its next coordinator: same members, same generation or epoch, nobody rebalances."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.unit.broker.context import SetClock
from tests.unit.broker.groups.coordinators import Coordinating, coordinating, joining, sync, topic
from tiered.broker.groups import stored_members
from tiered.broker.groups.classic_group import ClassicGroup
from tiered.broker.groups.consumer_group import ConsumerGroup
from tiered.broker.groups.values import JoinResult, LeavingMember
from tiered.errors import CoordinatorNotAvailable, IllegalGeneration, RebalanceInProgress, UnknownMember
from tiered.meta import groups as stored_groups
from tiered.meta.groups import GroupRow
from tiered.rules.groups.assignors import NO_PARTITIONS, Partitions
from tiered.rules.groups.consumer_heartbeat import Heartbeat, HeartbeatAnswer
from tiered.rules.groups.consumer_member import LEAVE, LEAVE_FOR_A_WHILE, Member
from tiered.rules.groups.group_state import GroupState
from tiered.rules.security.principal import Principal
from tiered.wire.consumer_protocol import Assignment, encode_assignment

Next = Callable[[], AbstractAsyncContextManager[Coordinating]]
JOIN = Heartbeat(
    group_id="g", member_id="m", epoch=0, client_id="c", client_host="h", rebalance_timeout_ms=10_000,
    topics=frozenset({"orders"}), owned=NO_PARTITIONS,
)  # fmt: skip


@pytest.fixture
def coordinator(tmp_path: Path) -> Next:
    """Each is the next one: the same broker after a restart that wrote what was due."""

    @asynccontextmanager
    async def following() -> AsyncIterator[Coordinating]:
        async with coordinating(tmp_path, group_initial_rebalance_delay_ms="0") as made:
            yield made

    return following


async def loaded(broker: Coordinating, group_id: str = "g") -> None:
    """Nobody asks for the group."""
    async with asyncio.timeout(20):
        while broker.groups.is_loading(group_id):
            await asyncio.sleep(0.01)


async def stored(broker: Coordinating, *, is_stable: bool = True) -> GroupRow:
    async with asyncio.timeout(20):
        while True:
            row = await broker.database.read(lambda conn: stored_groups.load(conn, "g"))
            if row is not None and broker.groups.offsets.commits.due("g") is None:
                assert (row.members is not None) is is_stable
                return row
            await asyncio.sleep(0.01)


async def put_back(broker: Coordinating, row: GroupRow) -> None:
    """As if nothing had been written since."""
    await broker.database.run(
        lambda conn: conn.execute(
            text("UPDATE consumer_group SET members = :members, generation = :generation, empty_since_ms = NULL"),
            {"members": row.members, "generation": row.generation},
        )
    )


def assert_given_back(broker: Coordinating) -> None:
    """What restored members took."""
    broker.groups.begin_stop()
    assert broker.groups.memory.taken_bytes == 0


# Classic groups


async def classic_pair(broker: Coordinating) -> tuple[JoinResult, JoinResult]:
    """A leader and a static member, each with its own id as its assignment."""
    classic = broker.groups.classic
    async with asyncio.timeout(20):
        found = await asyncio.gather(
            classic.join(joining(protocols=("range", "sticky"))), classic.join(joining("i", protocols=("range",)))
        )
    leader = next(each for each in found if each.member_id == each.leader)
    other = next(each for each in found if each is not leader)
    await classic.sync(
        sync(leader.member_id, 1, **{each.member_id: each.member_id.encode() for each in (leader, other)})
    )
    return leader, other


async def test_classic_members_go_on_in_their_generation_with_their_assignments(coordinator: Next) -> None:
    async with coordinator() as first:
        joined = await classic_pair(first)
        await stored(first)
        before = (await first.groups.describe("g"), first.groups.find("g"))
        rebalances = first.context.counters.group_rebalances
        assert rebalances == 1
    async with coordinator() as second:
        classic = second.groups.classic
        static = next(each.member_id for each in before[0].members if each.instance_id)
        for each in joined:
            instance_id = "i" if each.member_id == static else None
            await classic.heartbeat("g", member_id=each.member_id, instance_id=instance_id, generation=1)
            request = replace(sync(each.member_id, 1), instance_id=instance_id)
            assert (await classic.sync(request)).assignment == each.member_id.encode()
            await second.groups.check_commit("g", each.member_id, instance_id, 1)
        assert await second.groups.describe("g") == before[0]
        was, now = before[1], second.groups.find("g")
        assert isinstance(was, ClassicGroup)
        assert isinstance(now, ClassicGroup)
        for member in now.members.values():
            assert member.session.is_set
            assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (60_000, 60_000)
        assert {each.member_id: each.protocol_names for each in now.members.values()} == {
            joined[0].member_id: ("range", "sticky"),
            joined[1].member_id: ("range",),
        }
        assert second.context.counters.group_rebalances == 0
        assert_given_back(second)


async def test_a_static_member_that_comes_back_to_another_coordinator_disturbs_nobody(coordinator: Next) -> None:
    async with coordinator() as first:
        leader, other = await classic_pair(first)
        await stored(first)
    static = next(each for each in (leader, other) if each.member_id.startswith("i-"))
    async with coordinator() as second:
        back = await second.groups.classic.join(joining("i", protocols=("range",)))
        assert (back.generation, back.member_id != static.member_id) == (1, True)
        await stored(second)
    async with coordinator() as third:
        request = replace(sync(back.member_id, 1), instance_id="i")
        assert (await third.groups.classic.sync(request)).assignment == static.member_id.encode()
        assert third.context.counters.group_rebalances == 0


async def test_whoever_does_not_come_along_is_missed_though_nobody_asks_for_the_group(coordinator: Next) -> None:
    async with coordinator() as first:
        short = replace(joining(), session_timeout_ms=6_000)
        alone = await first.groups.classic.join(short)
        await first.groups.classic.sync(sync(alone.member_id, 1))
        await stored(first)
    async with coordinator() as second:
        await loaded(second)
        group = second.groups.find("g")
        assert isinstance(group, ClassicGroup)
        group.members[alone.member_id].session.set(10)
        async with asyncio.timeout(20):
            while group.member_count:
                await asyncio.sleep(0.01)
        row = await stored(second, is_stable=False)
        assert row.empty_since_ms is not None
        assert (row.generation, second.context.counters.group_members_expired) == (2, 1)


async def test_a_group_that_is_rebalancing_comes_back_empty_and_its_members_join_anew(coordinator: Next) -> None:
    async with coordinator() as first:
        leader, _ = await classic_pair(first)
        await stored(first)
        await first.groups.classic.leave("g", [LeavingMember(member_id="", instance_id="i")])
        row = await stored(first, is_stable=False)
        assert (row.generation, row.empty_since_ms) == (1, None)
        with pytest.raises(RebalanceInProgress):
            await first.groups.classic.heartbeat("g", member_id=leader.member_id, instance_id=None, generation=1)
    async with coordinator() as second:
        with pytest.raises(UnknownMember):
            await second.groups.classic.heartbeat("g", member_id=leader.member_id, instance_id=None, generation=1)
        row = await stored(second, is_stable=False)
        assert row.empty_since_ms is not None, "so its offsets can expire"
        assert (await second.groups.classic.join(joining())).generation == 2


async def test_a_member_of_a_later_generation_shows_that_what_was_stored_is_old(coordinator: Next) -> None:
    async with coordinator() as first:
        leader, _ = await classic_pair(first)
        old = await stored(first)
        await first.groups.classic.leave("g", [LeavingMember(member_id="", instance_id="i")])
        request = replace(joining(protocols=("range", "sticky")), member_id=leader.member_id)
        assert (await first.groups.classic.join(request)).generation == 2
        await stored(first, is_stable=False)
    async with coordinator() as second:
        await loaded(second)
        await put_back(second, old)
    async with coordinator() as third:
        with pytest.raises(UnknownMember):
            await third.groups.classic.heartbeat("g", member_id=leader.member_id, instance_id=None, generation=2)
        group = third.groups.find("g")
        assert isinstance(group, ClassicGroup)
        assert (group.state, group.member_count) == (GroupState.EMPTY, 0)
        assert (await stored(third, is_stable=False)).generation == 2, "nor is a generation given out twice"


async def test_a_stranger_with_a_later_generation_empties_no_group(coordinator: Next) -> None:
    async with coordinator() as first:
        leader, _ = await classic_pair(first)
        await stored(first)
    async with coordinator() as second:
        with pytest.raises(UnknownMember):
            await second.groups.classic.heartbeat("g", member_id="stranger", instance_id=None, generation=9)
        with pytest.raises(IllegalGeneration):
            await second.groups.classic.heartbeat("g", member_id=leader.member_id, instance_id=None, generation=0)
        await second.groups.classic.heartbeat("g", member_id=leader.member_id, instance_id=None, generation=1)


# What cannot be read, or is not there


@pytest.mark.parametrize("members", [b"", b"no members", b"x\x9c\x03\x00\x00\x00\x00\x01"])
async def test_a_group_whose_stored_members_cannot_be_read_is_empty_and_the_log_says_so(
    coordinator: Next, members: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with coordinator() as first:
        leader, _ = await classic_pair(first)
        row = await stored(first)
        await put_back(first, replace(row, members=members))
    with caplog.at_level(logging.WARNING, logger="tiered.broker.groups.stored_members"):
        async with coordinator() as second:
            await loaded(second)
            with pytest.raises(UnknownMember):
                await second.groups.classic.heartbeat("g", member_id=leader.member_id, instance_id=None, generation=1)
            assert (await stored(second, is_stable=False)).empty_since_ms is not None
            assert (await second.groups.classic.join(joining())).generation == 2
    assert "cannot be read" in caplog.text


async def test_members_of_another_generation_than_their_group_are_not_believed(coordinator: Next) -> None:
    """A broker of a version that knew nothing of members has coordinated the group meanwhile."""
    async with coordinator() as first:
        leader, _ = await classic_pair(first)
        await put_back(first, replace(await stored(first), generation=2))
    async with coordinator() as second:
        with pytest.raises(UnknownMember):
            await second.groups.classic.heartbeat("g", member_id=leader.member_id, instance_id=None, generation=1)
        assert (await second.groups.classic.join(joining())).generation == 3


async def test_members_that_take_too_much_are_not_stored_and_join_anew(
    coordinator: Next, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stored_members, "MAX_BYTES", 500)
    async with coordinator() as first:
        await classic_pair(first)
        row = await stored(first, is_stable=False)
        assert row.empty_since_ms is None
    assert "too many to be stored" in caplog.text


async def test_heartbeats_write_nothing(coordinator: Next) -> None:
    async with coordinator() as first:
        leader, _ = await classic_pair(first)
        await stored(first)
        numbers = []
        for _ in range(2):
            row = await first.database.read(
                lambda conn: conn.execute(text("SELECT slot_epoch, commit_number FROM consumer_group")).one()
            )
            numbers.append(tuple(row))
            for _ in range(20):
                await first.groups.classic.heartbeat("g", member_id=leader.member_id, instance_id=None, generation=1)
            assert first.groups.offsets.commits.due("g") is None
        assert numbers[0] == numbers[1]


# KIP-848 groups


async def consumers(broker: Coordinating, *members: Heartbeat) -> list[HeartbeatAnswer]:
    """They join, and do what they are told until the group is stable."""
    answers = {each.member_id: await broker.groups.consumer.heartbeat(each) for each in members}
    owned = {name: answer.assignment or NO_PARTITIONS for name, answer in answers.items()}
    async with asyncio.timeout(20):
        while broker.groups.counts() != {("consumer", "Stable"): 1}:
            for each in members:
                answer = await broker.groups.consumer.heartbeat(beat(each, answers[each.member_id].epoch, owned))
                answers[each.member_id] = answer
                if answer.assignment is not None:
                    owned[each.member_id] = answer.assignment
    return list(answers.values())


def beat(member: Heartbeat, epoch: int, owned: Mapping[str, Partitions] | None = None) -> Heartbeat:
    has = None if owned is None else owned[member.member_id]
    return Heartbeat(
        group_id="g", member_id=member.member_id, instance_id=member.instance_id, epoch=epoch, client_id="c",
        client_host="h", owned=has,
    )  # fmt: skip


def members_of(broker: Coordinating) -> dict[str, Member]:
    group = broker.groups.find("g")
    assert isinstance(group, ConsumerGroup)
    return {member.member_id: member for member in group.state}


async def test_consumers_go_on_in_their_epochs_with_their_partitions(coordinator: Next) -> None:
    one = replace(JOIN, member_id="one", rack="r", assignor="range")
    two = replace(JOIN, member_id="two", instance_id="i", topics=frozenset(), pattern="ord.*")
    three = replace(JOIN, member_id="three", instance_id="away")
    async with coordinator() as first:
        epochs = {each.member_id: each.epoch for each in await consumers(first, one, two, three)}
        await first.groups.consumer.heartbeat(replace(beat(three, LEAVE_FOR_A_WHILE)))
        row = await stored(first)
        before, described = members_of(first), await first.groups.describe("g")
    async with coordinator() as second:
        await loaded(second)
        assert await second.groups.describe("g") == described
        after = members_of(second)
        assert {name: replace(each, unconfirmed=NO_PARTITIONS) for name, each in after.items()} == {
            name: replace(each, unconfirmed=NO_PARTITIONS) for name, each in before.items()
        }
        for each in (one, two):
            answer = await second.groups.consumer.heartbeat(beat(each, epochs[each.member_id]))
            assert answer.epoch == epochs[each.member_id]
            assert answer.assignment == before[each.member_id].assigned, "told once, for it may not have heard"
            answer = await second.groups.consumer.heartbeat(beat(each, epochs[each.member_id]))
            assert answer.assignment is None
        back = await second.groups.consumer.heartbeat(replace(three, member_id="three again"))
        assert (back.epoch, back.assignment) == (row.generation, before["three"].assigned)
        await second.groups.check_commit("g", "one", None, epochs["one"])
        assert (await stored(second)).generation == row.generation


@pytest.mark.parametrize("pattern", ["", "ord.*"])
async def test_a_full_heartbeat_after_a_restart_is_no_other_subscription(coordinator: Next, pattern: str) -> None:
    full = replace(JOIN, pattern=pattern, principal=Principal("User", "alice"), host="127.0.0.1")
    async with coordinator() as first:
        (answer,) = await consumers(first, full)
        await stored(first)
        owned = members_of(first)["m"].assigned
    async with coordinator() as second:
        again = await second.groups.consumer.heartbeat(replace(full, epoch=answer.epoch, owned=owned))
        assert (again.epoch, again.assignment) == (answer.epoch, owned)
        group = second.groups.find("g")
        assert isinstance(group, ConsumerGroup)
        assert group.state.epoch == answer.epoch


async def test_members_of_both_protocols_in_one_group_go_on(coordinator: Next) -> None:
    async with coordinator() as first:
        joined = await first.groups.classic.join(joining(topic="orders"))
        held = encode_assignment(Assignment(partitions={"orders": (0, 1, 2)}))
        await first.groups.classic.sync(sync(joined.member_id, joined.generation, **{joined.member_id: held}))
        answer = await first.groups.consumer.heartbeat(replace(JOIN, topics=frozenset({"nothing yet"})))
        request = replace(joining(topic="orders"), member_id=joined.member_id)
        epoch = (await first.groups.classic.join(request)).generation
        has = (await first.groups.classic.sync(sync(joined.member_id, epoch))).assignment
        assert (await first.groups.consumer.heartbeat(beat(JOIN, answer.epoch))).epoch == epoch
        await stored(first)
    async with coordinator() as second:
        await second.groups.classic.heartbeat("g", member_id=joined.member_id, instance_id=None, generation=epoch)
        assert (await second.groups.classic.sync(sync(joined.member_id, epoch))).assignment == has
        assert (await second.groups.consumer.heartbeat(beat(JOIN, epoch))).epoch == epoch
        assert members_of(second)[joined.member_id].classic is not None


async def test_topics_that_changed_meanwhile_give_a_restored_group_another_epoch(coordinator: Next) -> None:
    async with coordinator() as first:
        (answer,) = await consumers(first, JOIN)
        await stored(first)
    async with coordinator() as second:
        orders = second.topics.by_name("orders")
        second.topics.put(replace(topic("orders", orders.topic_id), partition_count=5))
        group_before = second.groups.find("g")
        assert group_before is None or group_before.generation == answer.epoch
        clock = second.context.clock
        assert isinstance(clock, SetClock)
        await second.groups.consumer.heartbeat(beat(JOIN, answer.epoch))
        clock.waited_ms += 10_000
        later = await second.groups.consumer.heartbeat(beat(JOIN, answer.epoch))
        assert later.epoch == answer.epoch + 1
        assert later.assignment == {orders.topic_id: frozenset(range(5))}


async def test_a_member_of_a_later_epoch_shows_that_what_was_stored_is_old(coordinator: Next) -> None:
    """Partitions may have other owners since: nobody gets any before all have heard of it."""
    two = replace(JOIN, member_id="two")
    async with coordinator() as first:
        (alone,) = await consumers(first, JOIN)
        old = await stored(first)
        await first.groups.consumer.heartbeat(replace(JOIN, epoch=LEAVE))
        (after,) = await consumers(first, two)
        assert after.epoch > alone.epoch
        await stored(first)
    async with coordinator() as second:
        await loaded(second)
        await put_back(second, old)
    async with coordinator() as third:
        await loaded(third)
        clock = third.context.clock
        assert isinstance(clock, SetClock)
        clock.waited_ms += 10_000
        with pytest.raises(UnknownMember):
            await third.groups.consumer.heartbeat(beat(two, after.epoch))
        assert members_of(third) == {}
        again = await third.groups.consumer.heartbeat(JOIN)
        assert not again.assignment, "two may not have stopped yet"
        with pytest.raises(UnknownMember):
            await third.groups.consumer.heartbeat(beat(two, after.epoch))


async def test_a_silent_consumer_leaves_a_group_that_nobody_asks_for(coordinator: Next) -> None:
    async with coordinator() as first:
        await consumers(first, JOIN)
        await stored(first)
    async with coordinator() as second:
        await loaded(second)
        group = second.groups.find("g")
        assert isinstance(group, ConsumerGroup)
        group.timers.touch("m", 10)
        async with asyncio.timeout(20):
            while group.member_count:
                await asyncio.sleep(0.01)
        assert (await stored(second, is_stable=False)).empty_since_ms is not None
        assert_given_back(second)


async def test_a_consumer_group_on_its_way_comes_back_empty_and_its_members_join_anew(coordinator: Next) -> None:
    async with coordinator() as first:
        (answer,) = await consumers(first, JOIN)
        await stored(first)
        await first.groups.consumer.heartbeat(replace(JOIN, member_id="two"))
        await stored(first, is_stable=False)
    async with coordinator() as second:
        with pytest.raises(UnknownMember):
            await second.groups.consumer.heartbeat(beat(JOIN, answer.epoch))
        assert (await second.groups.consumer.heartbeat(JOIN)).epoch > answer.epoch


async def test_consumers_heartbeats_write_nothing(coordinator: Next) -> None:
    async with coordinator() as first:
        (answer,) = await consumers(first, JOIN)
        await stored(first)
        owned = {"m": members_of(first)["m"].assigned}
        for says in (None, owned, None):
            await first.groups.consumer.heartbeat(beat(JOIN, answer.epoch, says))
            assert first.groups.offsets.commits.due("g") is None


async def test_a_classic_member_that_rejoins_a_consumer_group_as_it_was_writes_nothing(coordinator: Next) -> None:
    async with coordinator() as first:
        (answer,) = await consumers(first, JOIN)
        joined = await first.groups.classic.join(joining("i", topic="nothing yet"))
        while (answer := await first.groups.consumer.heartbeat(beat(JOIN, answer.epoch))).epoch < joined.generation:
            pass
        await stored(first)
        rejoining = replace(joining("i", topic="nothing yet"), member_id=joined.member_id)
        assert (await first.groups.classic.join(rejoining)).generation == joined.generation
        assert first.groups.offsets.commits.due("g") is None
        await first.groups.classic.join(replace(rejoining, rebalance_timeout_ms=7_000))
        assert first.groups.offsets.commits.due("g") is not None


async def test_a_thousand_members_are_stored_and_restored(coordinator: Next) -> None:
    names = [f"member-{number:04}" for number in range(1000)]
    async with coordinator() as first:
        answers = [first.groups.classic.join(joining(name)) for name in names]
        async with asyncio.timeout(60):
            found = await asyncio.gather(*answers)
        leader = next(each for each in found if each.members)
        request = sync(leader.member_id, 1, **{each.member_id: b"some partitions" for each in found})
        static = next(each.instance_id for each in leader.members if each.member_id == leader.member_id)
        await first.groups.classic.sync(replace(request, instance_id=static))
        row = await stored(first)
        assert row.members is not None
        assert len(row.members) < 100_000
    async with coordinator() as second:
        await loaded(second)
        group = second.groups.find("g")
        assert isinstance(group, ClassicGroup)
        assert (group.state, group.member_count, group.generation) == (GroupState.STABLE, 1000, 1)


async def test_while_sql_is_away_a_group_that_is_not_loaded_is_not_said_to_be_unknown(
    coordinator: Next, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator() as first:
        leader, _ = await classic_pair(first)
        await stored(first)
    async with coordinator() as second:
        offsets = second.groups.offsets
        kept = offsets.load_group

        async def away(_: str) -> GroupRow | None:
            raise CoordinatorNotAvailable("SQL is away")

        monkeypatch.setattr(offsets, "load_group", away)
        with pytest.raises(CoordinatorNotAvailable):
            await second.groups.classic.heartbeat("g", member_id=leader.member_id, instance_id=None, generation=1)
        assert second.groups.is_loading("g")
        monkeypatch.setattr(offsets, "load_group", kept)
        await second.groups.classic.heartbeat("g", member_id=leader.member_id, instance_id=None, generation=1)
        await loaded(second)
