"""wire.md 35: who is silent, slow or gone costs its group no more than the time-outs say."""

import time
from collections.abc import Callable

from tests.broker_process import BrokerProcess
from tests.components.group_members import Member, describe, join_together, rebalance
from tests.support.classic_groups import REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER, broker, until

__all__ = ["broker"]


def test_heartbeats_announce_a_rebalance_and_a_join_waits_for_the_rebalance_timeout(broker: BrokerProcess) -> None:
    with (
        Member(broker, "waits", session_timeout_ms=30_000, rebalance_timeout_ms=2000) as slow,
        Member(broker, "waits", session_timeout_ms=30_000, rebalance_timeout_ms=500) as new,
    ):
        rebalance(slow)
        new.get_id()
        started = time.monotonic()
        new.begin_join()
        until(lambda: slow.heartbeat() == REBALANCE_IN_PROGRESS)
        assert slow.sync().error_code == REBALANCE_IN_PROGRESS
        answer = new.end_join()
        assert time.monotonic() - started > 1.9, "it waits for the longest rebalance time-out of the members"
        assert [each.member_id for each in answer.members] == [new.member_id]
        assert slow.heartbeat() == UNKNOWN_MEMBER


def test_a_rejoin_ends_the_wait_at_once(broker: BrokerProcess) -> None:
    with (
        Member(broker, "at-once", rebalance_timeout_ms=60_000) as one,
        Member(broker, "at-once", rebalance_timeout_ms=60_000) as two,
    ):
        rebalance(one)
        assert rebalance(one, two) in (one, two)
        assert one.generation == 2


def test_a_silent_member_leaves_after_its_session_timeout(broker: BrokerProcess) -> None:
    with (
        Member(broker, "silent", session_timeout_ms=10_000) as awake,
        Member(broker, "silent", session_timeout_ms=1500) as silent,
    ):
        rebalance(awake, silent)
        started = time.monotonic()
        until(lambda: awake.heartbeat() == REBALANCE_IN_PROGRESS)
        assert time.monotonic() - started > 1.0
        assert [each.member_id for each in describe(broker, "silent").members] == [awake.member_id]
        assert awake.join().generation_id == 2
        assert silent.heartbeat(generation_id=2) == UNKNOWN_MEMBER


def test_a_member_whose_connection_breaks_while_it_waits_stays_for_its_session(broker: BrokerProcess) -> None:
    """It may come back with its id; if it does not, the group goes on without it after its session time-out."""
    with Member(broker, "broken", session_timeout_ms=30_000, rebalance_timeout_ms=30_000) as staying:
        rebalance(staying)
        broken = Member(broker, "broken", session_timeout_ms=1500, rebalance_timeout_ms=30_000)
        broken.get_id()
        broken.begin_join()
        until(lambda: len(describe(broker, "broken").members) == 2)
        broken.connection.close()
        assert len(describe(broker, "broken").members) == 2
        # Nobody gets the answer that this produces, and the session ends 1.5 s after the connection.
        assert staying.join().generation_id == 2
        until(lambda: len(describe(broker, "broken").members) == 1)
        assert staying.join().generation_id == 3


def test_a_sync_that_never_comes_costs_the_member_its_place_after_the_rebalance_timeout(broker: BrokerProcess) -> None:
    with (
        Member(broker, "no-sync", session_timeout_ms=30_000, rebalance_timeout_ms=1500) as one,
        Member(broker, "no-sync", session_timeout_ms=30_000, rebalance_timeout_ms=1500) as two,
    ):
        leads = join_together(one, two)
        follows = two if leads is one else one
        assert leads.sync({}).error_code == 0
        until(lambda: leads.heartbeat() == REBALANCE_IN_PROGRESS)
        assert follows.heartbeat() == UNKNOWN_MEMBER
        assert [each.member_id for each in leads.join().members] == [leads.member_id]


def test_a_leader_that_never_syncs_is_replaced(broker: BrokerProcess) -> None:
    with (
        Member(broker, "lost-leader", session_timeout_ms=2000) as one,
        Member(broker, "lost-leader", session_timeout_ms=2000) as two,
    ):
        leader = join_together(one, two)
        other = two if leader is one else one
        leader.connection.close()
        other.begin_sync()
        assert other.end_sync().error_code == REBALANCE_IN_PROGRESS
        time.sleep(0.5)  # It was silent because it waited: its session begins only now
        answer = other.join()
        assert (other.is_leader, len(answer.members)) == (True, 1)
        assert other.sync({other.member_id: b"all"}).assignment == b"all"


def test_a_leader_that_leaves_hands_over_and_waiting_syncs_rejoin(broker: BrokerProcess) -> None:
    with Member(broker, "leader-leaves") as one, Member(broker, "leader-leaves") as two:
        leader = join_together(one, two)
        other = two if leader is one else one
        other.begin_sync()
        assert leader.leave().error_code == 0
        assert other.end_sync().error_code == REBALANCE_IN_PROGRESS
        other.join()
        assert other.is_leader


def test_a_follower_that_rejoins_unchanged_disturbs_nobody_and_the_leader_does(broker: BrokerProcess) -> None:
    with Member(broker, "rejoin") as one, Member(broker, "rejoin") as two:
        leader = rebalance(one, two)
        other = two if leader is one else one
        assert other.join().generation_id == 1
        assert leader.heartbeat() == 0
        leader.begin_join()
        until(lambda: other.heartbeat() == REBALANCE_IN_PROGRESS)
        other.begin_join()
        assert {leader.end_join().generation_id, other.end_join().generation_id} == {2}


def test_an_empty_group_waits_for_more_members_and_each_one_prolongs_the_wait(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    slow = make_broker(settings={"group.initial.rebalance.delay.ms": 1500}).start()
    with Member(slow, "delayed") as one, Member(slow, "delayed") as two, Member(slow, "delayed") as three:
        for member in (one, two, three):
            member.get_id()
        started = time.monotonic()
        one.begin_join()
        time.sleep(0.7)  # In the middle of the first wait, which is therefore followed by a second one
        two.begin_join()
        three.begin_join()
        assert {member.end_join().generation_id for member in (one, two, three)} == {1}
        assert time.monotonic() - started > 2.9


# 36
