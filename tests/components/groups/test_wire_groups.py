"""wire.md 31, 33, 34 and 36: the classic group protocol, on the wire; its static members have a file of their own."""

import time
from collections.abc import Callable
from uuid import UUID

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.group_members import Alive, Member, delete, describe, groups, rebalance
from tests.support.classic_groups import (
    GROUP_MAX_SIZE_REACHED,
    ILLEGAL_GENERATION,
    INCONSISTENT_PROTOCOL,
    INVALID_GROUP,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    SETTINGS,
    UNKNOWN_MEMBER,
    broker,
    until,
)
from tests.support.topics import create
from tests.support.wire_offsets import Partitions, commit

__all__ = ["broker"]


# Every version


@pytest.mark.parametrize("version", range(10))
def test_two_members_join_sync_and_leave_in_every_version(broker: BrokerProcess, version: int) -> None:
    group_id = f"versions-{version}"
    with Member(broker, group_id, version=version) as one, Member(broker, group_id, version=version) as two:
        leader = rebalance(one, two)
        other = two if leader is one else one
        assert one.generation == two.generation == 1
        assert [one.heartbeat(), two.heartbeat()] == [0, 0]
        answer = other.leave()
        assert answer.error_code == 0
        assert [each.error_code for each in getattr(answer, "members", ())] == [0] * (version >= 3)
        assert leader.heartbeat() == REBALANCE_IN_PROGRESS
        assert leader.leave().error_code == 0
        until(lambda: describe(broker, group_id).group_state == "Empty")


def test_the_leader_alone_gets_the_members_and_what_they_sent(broker: BrokerProcess) -> None:
    with (
        Member(broker, "leader-knows", protocols={"range": b"one"}) as one,
        Member(broker, "leader-knows", protocols={"range": b"two"}) as two,
    ):
        one.get_id()
        two.get_id()
        one.begin_join()
        two.begin_join()
        answers = {one.end_join().member_id: one, two.end_join().member_id: two}
        assert set(answers) == {one.member_id, two.member_id}
        leader, other = (one, two) if one.is_leader else (two, one)
        assert leader.leader == other.leader == leader.member_id
        # Asking again before the assignment is there repeats the answer: the first may have been lost.
        again = leader.ask_join()
        assert {(each.member_id, each.metadata) for each in again.members} == {
            (one.member_id, b"one"),
            (two.member_id, b"two"),
        }
        assert other.ask_join().members == ()
        assert again.generation_id == 1
        assert (again.protocol_type, again.protocol_name) == ("consumer", "range")


# 31: KIP-394


@pytest.mark.parametrize("version", range(10))
def test_a_new_member_gets_its_id_first_from_version_4_on(broker: BrokerProcess, version: int) -> None:
    with Member(broker, f"known-{version}", version=version) as member:
        answer = member.ask_join()
        assert answer.error_code == (MEMBER_ID_REQUIRED if version >= 4 else 0)
        assert answer.member_id.startswith("raw-")
        if version >= 4:
            assert answer.generation_id == -1
            given = member.member_id
            assert member.join().member_id == given


def test_an_id_that_was_not_given_here_is_unknown(broker: BrokerProcess) -> None:
    with Member(broker, "not-given") as first, Member(broker, "not-given") as stranger:
        stranger.member_id = "raw-of-another-life"
        assert stranger.ask_join().error_code == UNKNOWN_MEMBER
        first.join()
        assert stranger.ask_join().error_code == UNKNOWN_MEMBER


def test_an_id_that_does_not_come_back_expires_and_holds_nobody_up(broker: BrokerProcess) -> None:
    with (
        Member(broker, "half-way", session_timeout_ms=40_000, rebalance_timeout_ms=40_000) as member,
        Member(broker, "half-way", session_timeout_ms=1000) as half,
    ):
        rebalance(member)
        half.get_id()
        # The rebalance waits for whoever was given an id, but not longer than its session time-out.
        member.protocols = {"range": b"other"}
        started = time.monotonic()
        answer = member.join()
        assert answer.generation_id == 2
        assert time.monotonic() - started < 30
        assert half.ask_join().error_code == UNKNOWN_MEMBER


# 32: KIP-345, KIP-814


def test_the_protocol_type_is_opaque_and_no_common_protocol_is_refused(broker: BrokerProcess) -> None:
    with Member(broker, "opaque", protocol_type="sr", protocols={"v0": b"\x00", "v1": b"\x01"}) as one:
        rebalance(one)
        with Member(broker, "opaque", protocol_type="consumer", protocols={"v0": b""}) as other_type:
            assert other_type.ask_join().error_code == INCONSISTENT_PROTOCOL
        with Member(broker, "opaque", protocol_type="sr", protocols={"v2": b""}) as other_protocol:
            assert other_protocol.ask_join().error_code == INCONSISTENT_PROTOCOL
        with Member(broker, "opaque", protocol_type="", protocols={"v0": b""}) as no_type:
            assert no_type.ask_join().error_code == INCONSISTENT_PROTOCOL
        found = describe(broker, "opaque")
        assert (found.protocol_type, found.protocol_data, found.group_state) == ("sr", "v0", "Stable")


def test_the_protocol_that_most_members_like_best_of_the_common_ones_is_chosen(broker: BrokerProcess) -> None:
    liked = [("a", "b", "c"), ("c", "b"), ("c", "b"), ("c", "b"), ("b", "c")]
    members = [Member(broker, "votes", protocols=dict.fromkeys(names, b"")) for names in liked]
    rebalance(*members)
    assert describe(broker, "votes").protocol_data == "c"
    for member in members:
        member.connection.close()


def test_a_sync_for_another_protocol_than_the_chosen_one_is_refused(broker: BrokerProcess) -> None:
    with Member(broker, "other-protocol") as member:
        member.join()
        assert member.sync(protocol_type="consumer", protocol_name="sticky").error_code == INCONSISTENT_PROTOCOL
        assert member.sync(protocol_type="connect", protocol_name="range").error_code == INCONSISTENT_PROTOCOL
        answer = member.sync({member.member_id: b"mine"}, protocol_type="consumer", protocol_name="range")
        assert (answer.error_code, answer.assignment) == (0, b"mine")
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


# 34


def test_session_timeouts_outside_the_bounds_are_refused(broker: BrokerProcess) -> None:
    for timeout_ms in (999, 1_800_001, 0, -1):
        with Member(broker, "bounds", session_timeout_ms=timeout_ms) as member:
            assert member.ask_join().error_code == INVALID_SESSION_TIMEOUT


# 35: KIP-62


def test_who_may_commit_depends_on_the_groups_state(broker: BrokerProcess) -> None:
    topic = create(broker, "commits")
    with Member(broker, "commits", rebalance_timeout_ms=60_000) as member, RawConnection(broker) as stranger:

        def code(connection: RawConnection, generation: int, member_id: str) -> int:
            offsets: dict[str | UUID, Partitions] = {topic: {0: 1}}
            return commit(connection, "commits", offsets, generation=generation, member_id=member_id)[topic, 0]

        assert code(stranger, 0, "") == ILLEGAL_GENERATION
        assert code(stranger, -1, "") == 0, "an empty group's offsets are anybody's"
        member.join()
        assert code(member.connection, 1, member.member_id) == REBALANCE_IN_PROGRESS
        assert member.sync({member.member_id: b"all"}).error_code == 0
        assert code(member.connection, 1, member.member_id) == 0
        assert code(member.connection, 0, member.member_id) == ILLEGAL_GENERATION
        assert code(member.connection, -1, member.member_id) == ILLEGAL_GENERATION
        assert code(stranger, 1, "stranger") == UNKNOWN_MEMBER
        assert code(stranger, -1, "") == UNKNOWN_MEMBER
        with Member(broker, "commits") as other:
            other.get_id()
            other.begin_join()
            until(lambda: member.heartbeat() == REBALANCE_IN_PROGRESS)
            assert code(member.connection, 1, member.member_id) == 0, "before it rejoins it saves what it has done"
            member.begin_join()
            assert (member.end_join().error_code, other.end_join().error_code) == (0, 0)
            for each in (member, other):
                assert each.leave().error_code == 0
        until(lambda: describe(broker, "commits").group_state == "Empty")
        assert code(stranger, -1, "") == 0


def test_another_generation_is_illegal_and_another_group_unknown(broker: BrokerProcess) -> None:
    with Member(broker, "generations") as member:
        rebalance(member)
        for generation in (0, 2, -1):
            assert member.heartbeat(generation_id=generation) == ILLEGAL_GENERATION
            assert member.sync(generation_id=generation).error_code == ILLEGAL_GENERATION
        assert member.heartbeat(group_id="nobody-knows") == UNKNOWN_MEMBER
        assert member.sync(group_id="nobody-knows").error_code == UNKNOWN_MEMBER
        assert member.heartbeat(member_id="stranger") == UNKNOWN_MEMBER
        assert member.heartbeat(group_instance_id="stranger") == UNKNOWN_MEMBER
        with Member(broker, "nobody-knows") as stranger:
            answer = stranger.leave(("x", None), ("y", None))
            assert answer.error_code == 0, "each member has an error of its own"
            assert [(each.member_id, each.error_code) for each in answer.members] == [
                ("x", UNKNOWN_MEMBER),
                ("y", UNKNOWN_MEMBER),
            ]
        with Member(broker, "nobody-knows", version=2) as stranger:
            assert stranger.leave().error_code == UNKNOWN_MEMBER


def test_the_empty_group_id_and_one_that_sql_cannot_keep_are_invalid(broker: BrokerProcess) -> None:
    for group_id in ("", "x" * 2001, "nul\0"):
        with Member(broker, group_id) as member:
            assert member.ask_join().error_code == INVALID_GROUP
            assert member.heartbeat() == INVALID_GROUP
            assert member.sync().error_code == INVALID_GROUP
            assert member.leave().error_code == INVALID_GROUP
    assert delete(broker, "") == [INVALID_GROUP]


def test_a_stable_group_goes_on_after_a_restart_and_generations_do(make_broker: Callable[..., BrokerProcess]) -> None:
    restarted = make_broker(settings=SETTINGS).start()
    with Member(restarted, "restarted") as member:
        rebalance(member)
        member.protocols = {"range": b"other"}
        rebalance(member)
        assert member.generation == 2
        assert groups(restarted)["restarted"].group_state == "Stable"
        # A group that is empty and has no offsets may be forgotten altogether.
        topic = create(restarted, "kept")
        position = {"generation": 2, "member_id": member.member_id}
        assert commit(member.connection, "restarted", {topic: {0: 7}}, **position) == {(topic, 0): 0}  # type: ignore[arg-type]
        assert restarted.stop() == 0
    restarted.start()
    with Member(restarted, "restarted", protocols=member.protocols) as again:
        again.member_id, again.generation = member.member_id, member.generation
        assert again.heartbeat() == 0
        assert groups(restarted)["restarted"].group_state == "Stable"
        assert again.sync().assignment == member.member_id.encode()
        assert again.heartbeat(member_id="stranger") == UNKNOWN_MEMBER
        assert commit(again.connection, "restarted", {topic: {0: 8}}, **position) == {(topic, 0): 0}  # type: ignore[arg-type]
        assert again.join().generation_id == 3, "a leader that joins again wants a rebalance"
        restarted.kill()
    restarted.start()
    with Member(restarted, "restarted") as third:
        third.member_id, third.generation = member.member_id, 3
        assert third.heartbeat() == UNKNOWN_MEMBER, "the rebalance was not complete"
        assert groups(restarted)["restarted"].group_state == "Empty"
        third.member_id = ""
        assert third.join().generation_id == 4


# Bounds


def test_more_members_than_group_max_size_are_refused(make_broker: Callable[..., BrokerProcess]) -> None:
    small = make_broker(settings=SETTINGS | {"group.max.size": 2}).start()
    with Member(small, "full") as one, Member(small, "full") as two, Member(small, "full") as three:
        rebalance(one, two)
        assert three.ask_join().error_code == GROUP_MAX_SIZE_REACHED
        assert [one.heartbeat(), two.heartbeat()] == [0, 0]
        assert two.leave().error_code == 0
        three.get_id()
        three.begin_join()
        until(lambda: one.heartbeat() == REBALANCE_IN_PROGRESS)
        one.begin_join()
        assert {one.end_join().error_code, three.end_join().error_code} == {0}


def test_groups_together_take_no_more_memory_than_they_may(make_broker: Callable[..., BrokerProcess]) -> None:
    small = make_broker(settings=SETTINGS | {"tiered.group.memory.bytes": 2 << 20}).start()
    with (
        Member(small, "large", protocols={"range": b"x" * 900_000}) as large,
        Member(small, "late", protocols={"range": b"x" * 300_000}) as late,
    ):
        rebalance(large)
        late.get_id()
        assert late.ask_join().error_code == 15, "COORDINATOR_NOT_AVAILABLE: it may try again"
        assert large.sync({large.member_id: b"y" * 200_000}).error_code == 0, "a stable group ignores assignments"
        assert large.leave().error_code == 0
        until(lambda: describe(small, "large").group_state == "Empty")
        assert late.join().error_code == 0
        # What a leader sends is counted too.
        assert late.sync({late.member_id: b"y" * 2_000_000}).error_code == 15
        assert late.sync({late.member_id: b"y" * 1000}).error_code == 0


def test_members_of_one_user_with_large_subscriptions_wait_for_each_other(broker: BrokerProcess) -> None:
    """Their requests are large ones, of which a user has one at a time decoded and answered."""
    for size in (30_000, 300_000):
        large = {"range": b"x" * size}
        with (
            Member(broker, f"large-{size}", protocols=large) as one,
            Member(broker, f"large-{size}", protocols=large) as two,
        ):
            started = time.monotonic()
            rebalance(one, two, assignments=lambda member: member.member_id.encode() * 1_000)
            assert time.monotonic() - started < 8, "the second one need not wait until the first one gives up"


def test_members_that_wait_hear_at_once_that_the_broker_stops(make_broker: Callable[..., BrokerProcess]) -> None:
    stopping = make_broker(settings={"group.initial.rebalance.delay.ms": 60_000}).start()
    with Member(stopping, "stopping") as member:
        member.get_id()
        member.begin_join()
        until(lambda: describe(stopping, "stopping").group_state == "PreparingRebalance")
        started = time.monotonic()
        assert stopping.stop() == 0
        assert time.monotonic() - started < 45
        assert member.end_join().error_code == NOT_COORDINATOR


def test_only_the_silent_expire_while_others_send_heartbeats(broker: BrokerProcess) -> None:
    with (
        Member(broker, "expiry", session_timeout_ms=1000, instance_id="a") as static,
        Member(broker, "expiry", session_timeout_ms=1000) as awake,
    ):
        rebalance(static, awake)
        with Alive(awake):
            until(lambda: len(describe(broker, "expiry").members) == 1)
        assert describe(broker, "expiry").members[0].member_id == awake.member_id
