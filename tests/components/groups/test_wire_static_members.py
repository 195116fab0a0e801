"""wire.md 32: static members, who keep their place over a restart, and leaving in a batch."""

import pytest

from tests.broker_process import BrokerProcess
from tests.components.group_members import Member, describe, rebalance
from tests.support.classic_groups import (
    FENCED_INSTANCE,
    ILLEGAL_GENERATION,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER,
    broker,
    until,
)
from tiered.wire.consumer_protocol import Subscription, encode_subscription

__all__ = ["broker"]


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_member_that_comes_back_keeps_its_assignment_without_a_rebalance(
    broker: BrokerProcess, version: int
) -> None:
    group_id = f"static-{version}"
    with (
        Member(broker, group_id, version=version, instance_id="a") as one,
        Member(broker, group_id, version=version, instance_id="b") as two,
    ):
        leader = rebalance(one, two)
        for gone in (one, two):
            with Member(broker, group_id, version=version, instance_id=gone.instance_id) as back:
                answer = back.ask_join()
                assert (answer.error_code, answer.generation_id) == (0, 1)
                assert back.member_id != gone.member_id
                was_leader = gone is leader
                if version >= 9:
                    # It leads again, and is told that there is nothing to assign.
                    assert (back.is_leader, answer.skip_assignment) == (was_leader, was_leader)
                    assert len(answer.members) == (2 if was_leader else 0)
                else:
                    # A client that knows no better must not think that it leads.
                    assert not back.is_leader
                    assert answer.members == ()
                found = back.sync()
                assert (found.error_code, found.assignment) == (0, gone.member_id.encode())
                assert gone.heartbeat() == FENCED_INSTANCE
                assert gone.sync().error_code == FENCED_INSTANCE
                assert gone.ask_join().error_code == FENCED_INSTANCE
                assert back.heartbeat() == 0
        assert describe(broker, group_id).group_state == "Stable"


def test_a_static_member_that_comes_back_wanting_other_topics_rebalances(broker: BrokerProcess) -> None:
    wanted = [{"range": encode_subscription(Subscription(topics=(topic,)))} for topic in ("first", "second")]
    with Member(broker, "static-other", instance_id="a", protocols=wanted[0]) as one:
        rebalance(one)
        with Member(broker, "static-other", instance_id="a", protocols=wanted[1]) as back:
            assert back.join().generation_id == 2


def test_the_waiting_join_of_a_fenced_static_member_is_answered(broker: BrokerProcess) -> None:
    with (
        Member(broker, "fenced-waiting", instance_id="a") as first,
        Member(broker, "fenced-waiting", instance_id="a") as second,
    ):
        first.begin_join()
        until(lambda: len(describe(broker, "fenced-waiting").members) == 1)
        second.begin_join()
        assert first.end_join().error_code == FENCED_INSTANCE
        assert second.end_join().error_code == 0


def test_members_leave_in_a_batch_static_ones_by_their_instance(broker: BrokerProcess) -> None:
    with (
        Member(broker, "batch", instance_id="a") as one,
        Member(broker, "batch", instance_id="b") as two,
        Member(broker, "batch") as three,
    ):
        rebalance(one, two, three)
        answer = three.leave(
            ("", "a"), (one.member_id, "b"), ("", "unknown"), ("stranger", None), (three.member_id, None)
        )
        assert answer.error_code == 0
        assert [each.error_code for each in answer.members] == [0, FENCED_INSTANCE, UNKNOWN_MEMBER, UNKNOWN_MEMBER, 0]
        assert two.heartbeat() == REBALANCE_IN_PROGRESS
        assert [each.group_instance_id for each in describe(broker, "batch").members] == ["b"]
        assert two.join().generation_id == 2


def test_the_last_member_and_one_that_was_only_given_an_id_leave_together(broker: BrokerProcess) -> None:
    with Member(broker, "together", rebalance_timeout_ms=60_000) as one, Member(broker, "together") as half:
        rebalance(one)
        half.get_id()
        with Member(broker, "together", rebalance_timeout_ms=60_000) as two:
            two.get_id()
            two.begin_join()
            until(lambda: one.heartbeat() == REBALANCE_IN_PROGRESS)
            answer = half.leave((one.member_id, None), (two.member_id, None), (half.member_id, None))
            assert [each.error_code for each in answer.members] == [0, 0, 0]
            assert two.end_join().error_code == UNKNOWN_MEMBER
        assert describe(broker, "together").group_state == "Empty"


def test_static_members_outlast_a_rebalance_that_they_miss(broker: BrokerProcess) -> None:
    """Their partitions wait for them until their sessions end; dynamic ones lose theirs with the rebalance."""
    with (
        Member(broker, "missing", instance_id="a", session_timeout_ms=30_000, rebalance_timeout_ms=1000) as static,
        Member(broker, "missing", session_timeout_ms=30_000, rebalance_timeout_ms=1000) as silent,
        Member(broker, "missing", session_timeout_ms=30_000, rebalance_timeout_ms=1000) as awake,
    ):
        rebalance(static, silent, awake)
        awake.protocols = {"range": b"other"}
        answer = awake.join()
        assert answer.generation_id == 2
        assert {each.member_id for each in answer.members} == {static.member_id, awake.member_id}
        assert silent.heartbeat() == UNKNOWN_MEMBER
        assert static.heartbeat() == ILLEGAL_GENERATION


# 33
