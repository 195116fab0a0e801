"""Classic and new members in one group: the upgrade to KIP-848 and the way back, as they are on the wire."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.components.group_members import METADATA, Alive, Member, describe, groups, rebalance
from tests.components.new_members import NewMember, create_topic, described, settle
from tiered.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)

ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, UNKNOWN_MEMBER, REBALANCE_IN_PROGRESS = 22, 23, 25, 27
GROUP_ID_NOT_FOUND, FENCED_INSTANCE, UNRELEASED_INSTANCE = 69, 82, 111
SETTINGS = {
    "group.consumer.session.timeout.ms": 30_000,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.initial.rebalance.delay.ms": 100,
    "group.min.session.timeout.ms": 500,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("groups") / "data", settings=SETTINGS).start()
    create_topic(process, "six", 6)
    yield process
    process.ensure_stopped()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class ClassicMember(Member):
    """A consumer with the cooperative protocol, or (`eager`) one that gives up everything before it joins."""

    def __init__(self, broker: BrokerProcess, group_id: str, *, eager: bool = False, **options: Any) -> None:
        super().__init__(broker, group_id, **options)
        self.eager = eager
        self.has: set[int] = set()
        self.tell()

    def tell(self) -> None:
        owned = {"six": tuple(sorted(self.has))} if self.has and not self.eager else {}
        subscription = Subscription(
            topics=("six",), owned_partitions=owned, generation=self.generation, version=0 if self.eager else 3
        )
        self.protocols = {"range" if self.eager else "cooperative-sticky": encode_subscription(subscription)}

    def rejoin(self) -> None:
        """Joins again and follows its assignment."""
        self.tell()
        answer = self.join()
        assert answer.leader == "", "the broker assigns"
        assert answer.members == ()
        self.fetch_assignment()

    def fetch_assignment(self) -> None:
        answer = self.sync()
        assert answer.error_code == 0, answer
        self.take(answer.assignment)

    def take(self, assignment: bytes) -> None:
        decoded = decode_assignment(assignment)
        assert decoded.version == (0 if self.eager else 3), "in the version that it speaks"
        self.has = set(decoded.partitions.get("six", ()))

    def follow(self) -> bool:
        """One heartbeat and what follows from it; whether it had to join again."""
        code = self.heartbeat()
        if code == REBALANCE_IN_PROGRESS:
            self.rejoin()
            return True
        assert code == 0, code
        return False


def classic_group(*members: ClassicMember) -> None:
    """A classic group whose leader gives each its share of the six."""
    shares = {id(member): set(range(6)[number :: len(members)]) for number, member in enumerate(members)}

    def assignment(member: Member) -> bytes:
        assert isinstance(member, ClassicMember)
        return encode_assignment(
            Assignment(partitions={"six": tuple(sorted(shares[id(member)]))}, version=0 if member.eager else 3)
        )

    rebalance(*members, assignments=assignment)
    for member in members:
        member.has = shares[id(member)]


def follow_all(classic: list[ClassicMember], new: list[NewMember]) -> None:
    """Everybody follows until nobody has to any more. At no time does anybody use what another one uses."""
    for _ in range(12):
        before = ([member.has for member in classic], [(member.epoch, member.partitions) for member in new])
        moved = False
        for member in classic:
            moved = member.follow() or moved
            no_doubles(classic, new)
        for each in new:
            each.obey()
            no_doubles(classic, new)
        after = ([member.has for member in classic], [(member.epoch, member.partitions) for member in new])
        if not moved and before == after:
            return
    raise AssertionError("the group does not come to rest")


def no_doubles(classic: list[ClassicMember], new: list[NewMember]) -> None:
    used = [each for member in classic for each in member.has]
    used += [each for member in new for held in member.owned.values() for each in held]
    assert len(used) == len(set(used)), used


@pytest.mark.parametrize("eager", [False, True], ids=["cooperative", "eager"])
def test_a_classic_group_goes_on_when_the_first_new_member_joins_and_when_it_leaves(
    broker: BrokerProcess, eager: bool
) -> None:
    group_id = f"both-{eager}"
    with (
        ClassicMember(broker, group_id, eager=eager) as one,
        ClassicMember(broker, group_id, eager=eager) as two,
        NewMember(broker, group_id, topics=["six"]) as new,
    ):
        classic_group(one, two)
        generation = one.generation
        had = [one.has, two.has]
        assert new.join().member_epoch == generation + 1
        assert new.partitions == set(), "those who were here still have everything"
        assert [one.has, two.has] == had
        follow_all([one, two], [new])
        assert sorted(map(len, (one.has, two.has, new.partitions))) == [2, 2, 2]
        assert {*one.has, *two.has, *new.partitions} == set(range(6))
        assert all(len(now & before) == 2 for now, before in zip((one.has, two.has), had, strict=True)), "sticky"
        found = described(broker, group_id)
        assert (found.group_state, sorted(each.member_type for each in found.members)) == ("Stable", [0, 0, 1])
        assert groups(broker)[group_id].group_type == "consumer"
        assert (one.heartbeat(), two.heartbeat()) == (0, 0)
        # And back.
        epoch = one.generation
        new.ask(member_epoch=-1)
        new.owned = {}
        assert groups(broker)[group_id].group_type == "classic"
        assert one.heartbeat() == two.heartbeat() == REBALANCE_IN_PROGRESS
        one.tell()
        two.tell()
        classic_group(one, two)
        assert one.generation == epoch + 1
        assert describe(broker, group_id).group_state == "Stable"


def test_classic_members_join_a_group_of_the_new_protocol(broker: BrokerProcess) -> None:
    with (
        NewMember(broker, "joined", topics=["six"]) as new,
        ClassicMember(broker, "joined") as one,
        ClassicMember(broker, "joined", protocols={"sticky": b""}) as two,
    ):
        new.join()
        new.obey()
        one.rejoin()
        assert one.has == set()
        follow_all([one], [new])
        assert (len(one.has), len(new.partitions)) == (3, 3)
        two.protocols = {"sticky": b"no subscription"}
        assert two.ask_join().error_code == INCONSISTENT_PROTOCOL
        two.protocols = {"other-than-cooperative": next(iter(one.protocols.values()))}
        assert two.ask_join().error_code == INCONSISTENT_PROTOCOL
        two.protocol_type = "connect"
        assert two.ask_join().error_code == INCONSISTENT_PROTOCOL
        assert one.heartbeat(generation_id=one.generation + 1) == ILLEGAL_GENERATION
        assert one.heartbeat(member_id="somebody") == UNKNOWN_MEMBER
        assert one.sync(generation_id=one.generation - 1).error_code == ILLEGAL_GENERATION
        assert one.sync(protocol_name="range").error_code == INCONSISTENT_PROTOCOL
        assert one.leave().error_code == 0
        settle(new)
        assert new.partitions == set(range(6))


def test_a_rolling_upgrade_and_its_way_back_never_give_a_partition_to_two(broker: BrokerProcess) -> None:
    olds = [ClassicMember(broker, "rolling") for _ in range(3)]
    classic_group(*olds)
    news: list[NewMember] = []
    for _ in range(3):
        gone = olds.pop(0)
        gone.leave()
        gone.connection.close()
        if not news:
            # The first leaves a group that is still classic: the others rebalance among themselves.
            classic_group(*olds)
        news.append(NewMember(broker, "rolling", topics=["six"]))
        news[-1].join()
        follow_all(olds, news)
        assert {each for member in olds for each in member.has} | {
            each for member in news for each in member.partitions
        } == set(range(6))
    assert described(broker, "rolling").group_state == "Stable"
    for _ in range(3):
        gone_new = news.pop(0)
        old = ClassicMember(broker, "rolling")
        old.rejoin()
        olds.append(old)
        follow_all(olds, [*news, gone_new])
        gone_new.ask(member_epoch=-1)
        gone_new.connection.close()
        if news:
            follow_all(olds, news)
    assert groups(broker)["rolling"].group_type == "classic"
    assert {member.heartbeat() for member in olds} == {REBALANCE_IN_PROGRESS}
    for member in olds:
        member.tell()
    classic_group(*olds)
    for member in olds:
        member.connection.close()


def test_a_classic_member_that_is_silent_or_does_not_rejoin_is_thrown_out(broker: BrokerProcess) -> None:
    with (
        ClassicMember(broker, "expires", session_timeout_ms=800) as silent,
        ClassicMember(broker, "expires", rebalance_timeout_ms=900) as deaf,
        NewMember(broker, "expires", topics=["six"]) as new,
    ):
        classic_group(silent, deaf)
        new.join()
        with Alive(deaf):
            deadline = time.monotonic() + 30
            while new.partitions != set(range(6)):
                assert time.monotonic() < deadline
                new.obey()
                time.sleep(0.05)
        assert deaf.heartbeat() == UNKNOWN_MEMBER
        assert silent.heartbeat() == UNKNOWN_MEMBER


def test_commits_of_classic_members_carry_their_generation(broker: BrokerProcess) -> None:
    with ClassicMember(broker, "commits") as old, NewMember(broker, "commits", topics=["six"]) as new:
        classic_group(old)
        new.join()
        ids = {"member_id": old.member_id, "generation_id_or_member_epoch": old.generation}
        assert new.commit("six", 4, version=8, **ids) == 0, "it does not know of the change yet"
        follow_all([old], [new])
        assert new.commit("six", 5, version=8, **ids) == ILLEGAL_GENERATION
        assert new.commit("six", 5, version=8, **(ids | {"generation_id_or_member_epoch": old.generation})) == 0
        assert new.commit("six", 6) == 0


def test_a_static_member_is_upgraded_in_its_place(broker: BrokerProcess) -> None:
    with (
        ClassicMember(broker, "static", instance_id="a") as old,
        ClassicMember(broker, "static", instance_id="b") as other,
        NewMember(broker, "static", topics=["six"], instance_id="a") as new,
    ):
        classic_group(old, other)
        had, kept = old.has, other.has
        new.join()
        assert new.partitions == had, "at once: static members don't leave"
        assert old.heartbeat() == FENCED_INSTANCE
        follow_all([other], [new])
        assert other.has == kept
        # Back again: the new one still lives, so the classic one takes over as classic static members do.
        with ClassicMember(broker, "static", instance_id="a") as back:
            back.tell()
            back.begin_join()
            until(lambda: other.heartbeat() == REBALANCE_IN_PROGRESS)
            other.tell()
            other.begin_join()
            assert {back.end_join().error_code, other.end_join().error_code} == {0}
            assert new.ask().error_code in (FENCED_INSTANCE, UNKNOWN_MEMBER)
        assert groups(broker)["static"].group_type == "classic"


def test_only_groups_of_consumers_are_changed(broker: BrokerProcess) -> None:
    with Member(broker, "connectors", protocol_type="connect") as worker:
        rebalance(worker)
        with NewMember(broker, "connectors", topics=["six"]) as new:
            assert new.ask(**new.everything()).error_code == GROUP_ID_NOT_FOUND
        assert worker.heartbeat() == 0
    with Member(broker, "strange") as strange:
        rebalance(strange, assignments=lambda _: b"\x00\x00")
        with NewMember(broker, "strange", topics=["six"]) as new:
            answer = new.ask(**new.everything())
            assert answer.error_code == GROUP_ID_NOT_FOUND
            assert "assignor" in answer.error_message
        assert strange.heartbeat() == 0


@pytest.mark.parametrize(("assignor", "changes"), [("cooperative-sticky", True), ("stream", False)])
def test_user_data_of_a_sticky_assignor_is_no_hindrance_and_of_another_it_is(
    broker: BrokerProcess, assignor: str, changes: bool
) -> None:
    """librdkafka's sticky assignors send some; Kafka Streams cannot do without its own."""
    group_id = f"user-data-{assignor}"
    with Member(broker, group_id, protocols={assignor: METADATA}) as old:
        held = Assignment(partitions={"six": (0, 1)}, user_data=b"opaque")
        rebalance(old, assignments=lambda _: encode_assignment(held))
        with NewMember(broker, group_id, topics=["six"]) as new:
            assert new.ask(**new.everything()).error_code == (0 if changes else GROUP_ID_NOT_FOUND)
            if changes:
                assert new.partitions == {2, 3, 4, 5}, "the other two are in use"


def test_empty_groups_are_taken_over_both_ways_with_their_offsets(broker: BrokerProcess) -> None:
    with NewMember(broker, "handed-over", topics=["six"]) as new:
        assert new.commit("six", 7, member_id="", generation_id_or_member_epoch=-1) == 0
        assert groups(broker)["handed-over"].group_type == "classic"
        new.join()
        assert new.fetch_offset("six") == (0, 7)
        epoch = new.epoch
        new.ask(member_epoch=-1)
    with ClassicMember(broker, "handed-over") as old:
        classic_group(old)
        assert old.generation > epoch
        assert groups(broker)["handed-over"].group_type == "classic"
        old.leave()
    until(lambda: groups(broker)["handed-over"].group_state == "Empty")
    with NewMember(broker, "handed-over", topics=["six"]) as new:
        assert new.join().member_epoch > old.generation
        assert new.fetch_offset("six") == (0, 7)


def test_an_id_that_was_only_given_out_is_no_hindrance_and_stays_good(broker: BrokerProcess) -> None:
    with ClassicMember(broker, "given-out") as old, NewMember(broker, "given-out", topics=["six"]) as new:
        old.get_id()
        assert new.join().error_code == 0
        given = old.member_id
        assert (old.ask_join().error_code, old.member_id) == (0, given)
        settle(new)
        assert old.sync().error_code == 0


def test_a_tool_may_remove_members_of_both_protocols(broker: BrokerProcess) -> None:
    with (
        ClassicMember(broker, "removed") as old,
        NewMember(broker, "removed", topics=["six"]) as new,
        Member(broker, "removed") as tool,
    ):
        classic_group(old)
        new.join()
        answer = tool.leave((new.member_id, None), (old.member_id, None), ("nobody", None))
        assert [each.error_code for each in answer.members] == [0, 0, UNKNOWN_MEMBER]
        assert new.ask().error_code == UNKNOWN_MEMBER
        assert groups(broker)["removed"].group_state == "Empty"
