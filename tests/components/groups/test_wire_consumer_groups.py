"""wire.md 39: KIP-848 groups, as they are on the wire."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.broker_process import BrokerProcess
from tests.components.group_members import describe, groups
from tests.components.new_members import (
    NewMember,
    create_topic,
    delete_topic,
    described,
    grow_topic,
    settle,
)

INVALID_REQUEST, UNKNOWN_MEMBER, INVALID_GROUP, GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED = 42, 25, 24, 69, 81
FENCED_INSTANCE, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE, UNSUPPORTED_ASSIGNOR, STALE_MEMBER_EPOCH = (
    82, 110, 111, 112, 113,
)  # fmt: skip
INVALID_REGULAR_EXPRESSION = 128
SESSION_MS = 1500
SETTINGS = {
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.max.size": 4,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Silent members are thrown out soon."""
    process = BrokerProcess(tmp_path_factory.mktemp("groups") / "data", settings=SETTINGS).start()
    create_topic(process, "six", 6)
    yield process
    process.ensure_stopped()


def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# Joining and reconciling


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_beats_and_leaves_in_every_version(broker: BrokerProcess, version: int) -> None:
    with NewMember(broker, f"versions-{version}", version=version, topics=["six"]) as member:
        answer = member.join()
        assert (answer.member_epoch, answer.heartbeat_interval) == (1, 300)
        assert member.partitions == set(range(6))
        assert member.beat().assignment is None, "as before"
        assert member.obey().assignment is None
        assert member.ask(member_epoch=-1).member_epoch == -1
        assert member.ask(member_epoch=1).error_code == UNKNOWN_MEMBER


def test_the_broker_makes_the_id_of_a_version_0_member_that_has_none(broker: BrokerProcess) -> None:
    with NewMember(broker, "made", version=0, topics=["six"]) as member:
        member.member_id = ""
        assert member.join().member_id
        member.beat()
    with NewMember(broker, "made-1", version=1, topics=["six"]) as member:
        assert member.ask(**member.everything(), member_id="").error_code == INVALID_REQUEST


def test_a_partition_changes_hands_only_after_its_owner_has_given_it_up(broker: BrokerProcess) -> None:
    with NewMember(broker, "hands", topics=["six"]) as one, NewMember(broker, "hands", topics=["six"]) as two:
        one.join()
        one.obey()
        assert two.join().member_epoch == 2
        assert two.partitions == set()
        one.beat()
        assert one.epoch == 1, "it stays in its epoch while it has something to give up"
        assert one.partitions == {0, 1, 2}
        for _ in range(3):
            one.beat()
            two.beat(tell=True)
            assert two.partitions == set()
        assert described(broker, "hands").group_state == "Reconciling"
        one.obey()
        assert one.epoch == 2
        two.beat()
        assert (two.epoch, two.partitions) == (2, {3, 4, 5})
        assert described(broker, "hands").group_state == "Stable"


def test_members_are_asked_to_come_back_sooner_while_partitions_change_hands(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    process = make_broker().start()
    create_topic(process, "six", 6)
    with NewMember(process, "soon", topics=["six"]) as one, NewMember(process, "soon", topics=["six"]) as two:
        assert one.join().heartbeat_interval == 5000
        one.obey()
        assert two.join().heartbeat_interval == 1000
        assert one.beat().heartbeat_interval == 1000
        settle(one, two)
        until(lambda: one.beat().heartbeat_interval == two.beat().heartbeat_interval == 5000)


def test_an_assignor_may_be_chosen_and_must_exist(broker: BrokerProcess) -> None:
    create_topic(broker, "seven", 7)
    with NewMember(broker, "ranged", topics=["six", "seven"], assignor="range") as one:
        one.join()
        with NewMember(broker, "ranged", topics=["six", "seven"]) as two:
            two.join()
            settle(one, two)
            assert sorted(map(sorted, one.assigned.values())) == [[0, 1, 2], [0, 1, 2, 3]]
        assert described(broker, "ranged").assignor_name == "range"
    with NewMember(broker, "ranged", topics=["six"], assignor="best") as other:
        answer = other.ask(**other.everything())
        assert answer.error_code == UNSUPPORTED_ASSIGNOR
        assert "uniform, range" in answer.error_message


def test_a_group_that_is_full_takes_no_more(broker: BrokerProcess) -> None:
    members = [NewMember(broker, "full", topics=["six"]) for _ in range(5)]
    for member in members[:4]:
        member.join()
    assert members[4].ask(**members[4].everything()).error_code == GROUP_MAX_SIZE_REACHED
    members[0].ask(member_epoch=-1)
    members[4].join()
    for member in members:
        member.connection.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"member_epoch": -3},
        {"rebalance_timeout": -1},
        {"topic_partitions": None},
        {"subscribed_topic_names": None},
        {"instance_id": ""},
        {"member_epoch": -2},
        {"member_id": "x" * 2000},
    ],
)
def test_what_contradicts_itself_is_refused_with_a_reason(broker: BrokerProcess, changes: dict[str, object]) -> None:
    with NewMember(broker, "shapes", topics=["six"]) as member:
        answer = member.ask(**(member.everything() | changes))
        assert answer.error_code == INVALID_REQUEST
        assert answer.error_message
        assert member.ask(group_id="", **member.everything()).error_code == INVALID_GROUP


# Epochs


def test_a_member_may_join_that_subscribes_to_nothing_yet(broker: BrokerProcess) -> None:
    for names, pattern in (([], None), (None, ""), ([], "")):
        with NewMember(broker, "nothing-yet", topics=names, pattern=pattern) as member:
            assert member.join().assignment.topic_partitions == ()
            assert member.ask(member_epoch=-1).error_code == 0


def test_stale_epochs_are_fenced_and_the_fenced_member_joins_again(broker: BrokerProcess) -> None:
    with NewMember(broker, "stale", topics=["six"]) as one, NewMember(broker, "stale", topics=["six"]) as two:
        one.join()
        one.obey()
        two.join()
        settle(one, two)
        assert one.ask(member_epoch=one.epoch + 1).error_code == FENCED_MEMBER_EPOCH
        assert one.ask(member_epoch=one.epoch - 1).error_code == FENCED_MEMBER_EPOCH, "it does not say what it owns"
        one.join()
        assert one.partitions == {0, 1, 2}


def test_an_answer_that_was_lost_is_given_again(broker: BrokerProcess) -> None:
    with NewMember(broker, "lost", topics=["six"]) as one, NewMember(broker, "lost", topics=["six"]) as two:
        one.join()
        one.obey()
        two.join()
        one.beat()
        one.owned = one.assigned
        before = one.epoch
        one.beat(tell=True)
        assert one.epoch == before + 1
        # As if that answer had not arrived: the same again.
        one.epoch, one.assigned = before, {}
        answer = one.beat(tell=True)
        assert (answer.member_epoch, one.partitions) == (before + 1, {0, 1, 2})


def test_an_unknown_member_is_told_so(broker: BrokerProcess) -> None:
    with NewMember(broker, "nobody-here", topics=["six"]) as member:
        assert member.ask(member_epoch=7).error_code == UNKNOWN_MEMBER
        assert member.ask(member_epoch=-1).error_code == UNKNOWN_MEMBER


def test_a_stable_group_goes_on_after_a_restart_in_its_epoch(make_broker: Callable[..., BrokerProcess]) -> None:
    process = make_broker(settings=SETTINGS).start()
    create_topic(process, "six", 6)
    with NewMember(process, "g", topics=["six"]) as member:
        member.join()
        member.join(subscribed_topic_names=["six", "other"])
        assert member.commit("six", 3) == 0
        epoch = member.epoch
        assert epoch >= 2
    process.stop()
    process.start()
    with NewMember(process, "g", topics=["six"]) as again:
        again.member_id, again.epoch = member.member_id, epoch
        assert again.beat().member_epoch == epoch
        assert again.partitions == set(range(6)), "it is told once what it has"
        assert again.fetch_offset("six") == (0, 3)
        assert again.commit("six", 4) == 0
        assert again.ask(member_id="stranger").error_code == UNKNOWN_MEMBER


# Time-outs


def test_a_silent_member_is_thrown_out_after_its_session(broker: BrokerProcess) -> None:
    with NewMember(broker, "silent", topics=["six"]) as one, NewMember(broker, "silent", topics=["six"]) as two:
        one.join()
        two.join()
        until(lambda: two.beat() and two.partitions == set(range(6)))
        assert one.ask().error_code == UNKNOWN_MEMBER


def test_a_member_that_does_not_give_up_in_time_is_thrown_out(broker: BrokerProcess) -> None:
    with (
        NewMember(broker, "stubborn", topics=["six"], rebalance_timeout_ms=600) as one,
        NewMember(broker, "stubborn", topics=["six"]) as two,
    ):
        one.join()
        two.join()
        deadline = time.monotonic() + 30
        while (answer := one.ask()).error_code == 0:
            assert time.monotonic() < deadline
            two.beat()
            time.sleep(0.05)
        assert answer.error_code == UNKNOWN_MEMBER
        two.beat()
        assert two.partitions == set(range(6))


# Static members


def test_a_static_member_is_back_with_its_partitions_and_no_epoch_passes(broker: BrokerProcess) -> None:
    with (
        NewMember(broker, "static", topics=["six"], instance_id="a") as one,
        NewMember(broker, "static", topics=["six"], instance_id="b") as two,
    ):
        one.join()
        two.join()
        settle(one, two)
        epoch, had = one.epoch, one.partitions
        with NewMember(broker, "static", topics=["six"], instance_id="a") as back:
            assert back.ask(**back.everything()).error_code == UNRELEASED_INSTANCE
            assert one.ask(member_epoch=-2).member_epoch == -2
            two.beat()
            assert (two.epoch, len(two.partitions)) == (epoch, 3), "nobody takes what it left"
            back.join()
            assert (back.epoch, back.partitions) == (epoch, had)
            assert one.ask(member_epoch=epoch).error_code == FENCED_INSTANCE
            assert one.ask(member_epoch=epoch, instance_id=None).error_code == UNKNOWN_MEMBER


def test_a_static_member_that_stays_away_loses_its_partitions(broker: BrokerProcess) -> None:
    with (
        NewMember(broker, "away", topics=["six"], instance_id="a") as one,
        NewMember(broker, "away", topics=["six"], instance_id="b") as two,
    ):
        one.join()
        two.join()
        settle(one, two)
        one.ask(member_epoch=-2)
        until(lambda: two.beat() and two.partitions == set(range(6)))


# Topics


def test_new_partitions_and_topics_reach_the_members(broker: BrokerProcess) -> None:
    create_topic(broker, "grows", 2)
    with NewMember(broker, "growing", topics=["grows", "later"]) as member:
        member.join()
        member.obey()
        assert member.partitions == {0, 1}
        grow_topic(broker, "grows", 5)
        member.beat()
        assert (member.epoch, member.partitions) == (2, set(range(5)))
        later = create_topic(broker, "later", 1)
        member.obey()
        assert member.assigned[later] == {0}
        delete_topic(broker, "later")
        member.obey()
        settle(member)
        assert later not in member.assigned
        again = create_topic(broker, "later", 2)
        settle(member)
        assert member.assigned[again] == {0, 1}


def test_a_pattern_subscribes_to_what_matches_it_as_a_whole_now_and_later(broker: BrokerProcess) -> None:
    create_topic(broker, "logs-a", 1)
    create_topic(broker, "my-logs-b", 1)
    with NewMember(broker, "patterned", pattern="logs-[a-z]+") as member:
        member.join()
        assert len(member.assigned) == 1
        later = create_topic(broker, "logs-c", 2)
        member.obey()
        assert member.assigned[later] == {0, 1}
        assert described(broker, "patterned").members[0].subscribed_topic_regex == "logs-[a-z]+"
        # A pattern may be taken back, and names may stand beside it.
        answer = member.ask(subscribed_topic_names=["six"], subscribed_topic_regex="", topic_partitions={})
        assert answer.error_code == 0
        assert member.partitions == set(range(6))


def test_internal_topics_match_no_pattern(broker: BrokerProcess) -> None:
    with NewMember(broker, "internal", pattern="__.*") as member:
        member.join()
        assert member.assigned == {}


@pytest.mark.parametrize("pattern", ["((", "a{5000}", "(?=a)", "(a)\\1", "x" * 5000, "\\"])
def test_what_is_no_pattern_is_refused(broker: BrokerProcess, pattern: str) -> None:
    with NewMember(broker, "bad-patterns", pattern=pattern) as member:
        answer = member.ask(**member.everything())
        assert answer.error_code == INVALID_REGULAR_EXPRESSION
        assert "pattern" in answer.error_message


def test_a_hostile_pattern_holds_nobody_up(broker: BrokerProcess) -> None:
    create_topic(broker, "a" * 200 + ".", 1)
    with NewMember(broker, "hostile", pattern="(a|a)*(a+)+(a*)*b") as member:
        # Python's re would not come back from this one in this life.
        assert member.join().assignment is not None


# Offsets


def test_commits_carry_the_member_epoch(broker: BrokerProcess) -> None:
    with NewMember(broker, "commits", topics=["six"]) as one, NewMember(broker, "commits", topics=["six"]) as two:
        assert one.commit("six", 1, member_id="", generation_id_or_member_epoch=-1) == 0, "nobody is in it yet"
        one.join()
        one.obey()
        assert one.commit("six", 5) == 0
        assert one.commit("six", 6, generation_id_or_member_epoch=-1) == STALE_MEMBER_EPOCH
        assert one.commit("six", 6, generation_id_or_member_epoch=one.epoch + 1) == STALE_MEMBER_EPOCH
        assert one.commit("six", 6, member_id="somebody") == UNKNOWN_MEMBER
        assert one.commit("six", 6, member_id="", generation_id_or_member_epoch=-1) == UNKNOWN_MEMBER
        two.join()
        assert one.commit("six", 7) == 0, "it is still in its epoch, whatever others do"
        assert one.fetch_offset("six") == (0, 7)
        assert one.fetch_offset("six", member_epoch=99)[0] == STALE_MEMBER_EPOCH
        assert one.fetch_offset("six", member_id="somebody")[0] == UNKNOWN_MEMBER
        assert one.fetch_offset("six", member_id=None, member_epoch=-1) == (0, 7)


# Showing


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_is_described_with_its_members_and_epochs(broker: BrokerProcess, version: int) -> None:
    group_id = f"described-{version}"
    with NewMember(broker, group_id, topics=["six"], instance_id="i") as member:
        member.join(rack_id="r1")
        found = described(broker, group_id, version=version)
        assert (found.error_code, found.group_state, found.group_epoch, found.assignment_epoch) == (0, "Stable", 1, 1)
        assert found.assignor_name == "uniform"
        (seen,) = found.members
        assert (seen.member_id, seen.instance_id, seen.rack_id, seen.member_epoch) == (member.member_id, "i", "r1", 1)
        assert (seen.client_id, seen.client_host, seen.subscribed_topic_names) == ("raw", "/127.0.0.1", ("six",))
        for assignment in (seen.assignment, seen.target_assignment):
            (topic,) = assignment.topic_partitions
            assert (topic.topic_name, topic.partitions) == ("six", tuple(range(6)))
        if version >= 1:
            assert seen.member_type == 1
        listed = groups(broker)[group_id]
        assert (listed.group_type, listed.group_state) == ("consumer", "Stable")
        assert describe(broker, group_id).error_code == GROUP_ID_NOT_FOUND
    until(lambda: described(broker, group_id).group_state == "Empty")
    assert described(broker, "there-is-none").error_code == GROUP_ID_NOT_FOUND
