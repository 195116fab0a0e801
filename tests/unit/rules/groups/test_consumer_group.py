"""KIP-848 groups: no partition with two owners, always converging, epochs that never go back."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from tiered.errors import FencedInstance, FencedMemberEpoch, UnknownMember, UnreleasedInstance
from tiered.ids import TopicId
from tiered.rules.groups.assignors import NO_PARTITIONS, Partitions
from tiered.rules.groups.consumer_group import ConsumerGroupPhase, ConsumerGroupState, TopicFacts, hash_of
from tiered.rules.groups.consumer_member import Member, MemberState, Pattern, check_epoch, common, minus, union

A, B = TopicId(UUID(int=1)), TopicId(UUID(int=2))


def catalogue(**counts: int) -> dict[str, TopicFacts]:
    return {name: TopicFacts({"a": A, "b": B}[name], count) for name, count in counts.items()}


def joined(group: ConsumerGroupState, member_id: str, *topics: str, **facts: object) -> Member:
    group.subscribe(Member(member_id=member_id, topics=frozenset(topics or ("a",)), **facts))  # type: ignore[arg-type]
    group.retarget()
    return group.reconcile(member_id, NO_PARTITIONS)


def made(**counts: int) -> ConsumerGroupState:
    group = ConsumerGroupState()
    group.look_at_topics(catalogue(**(counts or {"a": 4})), {})
    return group


def a(*partitions: int) -> Partitions:
    return {A: frozenset(partitions)} if partitions else {}


# Examples


def test_the_first_member_gets_everything_at_once() -> None:
    group = made()
    member = joined(group, "m1")
    assert (member.epoch, member.state, member.assigned) == (1, MemberState.STABLE, a(0, 1, 2, 3))
    assert group.phase is ConsumerGroupPhase.STABLE


def test_members_that_want_the_same_share_one_set_of_names() -> None:
    """A thousand members with a thousand topics each would be compared name by name at each join otherwise."""
    group = made(a=4, b=4)
    for number in range(3):
        joined(group, f"same-{number}", "a", "b")
        joined(group, f"other-{number}", "a")
    group.subscribe(replace(group.member("other-2"), topics=frozenset(["a", "b"])))
    assert len({id(member.topics) for member in group}) == 2


def test_a_newcomer_waits_until_the_owner_has_given_up_its_share() -> None:
    group = made()
    joined(group, "m1")
    second = joined(group, "m2")
    assert (second.state, second.assigned) == (MemberState.UNRELEASED_PARTITIONS, {})
    first = group.reconcile("m1", None)
    assert (first.epoch, first.state) == (1, MemberState.UNREVOKED_PARTITIONS)
    assert group.reconcile("m2", None).assigned == {}, "the first still uses them"
    before = group.phase
    assert before is ConsumerGroupPhase.RECONCILING
    first = group.reconcile("m1", first.assigned)
    assert (first.epoch, first.state) == (2, MemberState.STABLE)
    second = group.reconcile("m2", None)
    assert (second.epoch, second.state) == (2, MemberState.STABLE)
    assert not common(first.assigned, second.assigned)
    assert union(first.assigned, second.assigned) == a(0, 1, 2, 3)
    assert group.phase is ConsumerGroupPhase.STABLE


def test_a_member_that_does_not_say_what_it_owns_has_given_up_nothing() -> None:
    group = made()
    joined(group, "m1")
    joined(group, "m2")
    for _ in range(3):
        assert group.reconcile("m1", None).state is MemberState.UNREVOKED_PARTITIONS
    assert group.reconcile("m1", a(0, 1, 2, 3)).state is MemberState.UNREVOKED_PARTITIONS


def test_a_full_heartbeat_takes_nothing_back_that_the_member_may_be_about_to_use() -> None:
    """librdkafka repeats its last confirmation there, while its application is still taking what it was given."""
    group = made()
    joined(group, "m1")
    joined(group, "m2")
    kept: Partitions = {}
    for _ in range(3):
        first = group.reconcile("m1", {}, is_certain=False)
        assert first.state is MemberState.UNREVOKED_PARTITIONS
        assert group.reconcile("m2", None).assigned == {}
        kept = first.assigned
    group.reconcile("m1", kept, is_certain=False)
    assert group.reconcile("m2", None).assigned == minus(a(0, 1, 2, 3), kept)


def test_partitions_of_a_member_that_was_thrown_out_are_free() -> None:
    group = made()
    joined(group, "m1")
    joined(group, "m2")
    group.remove("m1")
    group.retarget()
    assert group.reconcile("m2", None).assigned == a(0, 1, 2, 3)


def test_more_partitions_of_a_topic_are_a_new_epoch_and_an_unrelated_topic_is_none() -> None:
    group = made(a=2)
    joined(group, "m1")
    epoch = group.epoch
    group.look_at_topics(catalogue(a=2, b=7), {})
    assert group.epoch == epoch
    group.look_at_topics(catalogue(a=3, b=7), {})
    assert group.epoch == epoch + 1
    assert group.phase is ConsumerGroupPhase.ASSIGNING
    group.retarget()
    assert group.reconcile("m1", None).assigned == a(0, 1, 2)


def test_a_pattern_subscribes_to_the_topics_that_it_matches() -> None:
    group = made(a=2, b=1)
    group.look_at_topics(catalogue(a=2, b=1), {Pattern("^b"): frozenset({"b"})})
    member = joined(group, "m1", "a", pattern=Pattern("^b"))
    assert member.assigned == {A: frozenset({0, 1}), B: frozenset({0})}
    assert group.is_subscribed_to("b")
    group.look_at_topics(catalogue(a=2, b=1), {Pattern("^b"): frozenset()})
    group.retarget()
    assert group.reconcile("m1", a(0, 1)).assigned == a(0, 1)


def test_an_older_epoch_is_let_through_only_for_an_answer_that_was_lost() -> None:
    member = Member(member_id="m1", epoch=5, previous_epoch=4, assigned=a(0, 1))
    check_epoch(member, 5, None)
    check_epoch(member, 4, a(0))
    for epoch, owned in ((4, None), (4, a(0, 2)), (3, a(0)), (6, a(0))):
        with pytest.raises(FencedMemberEpoch, match="join again"):
            check_epoch(member, epoch, owned)


def test_a_static_member_finds_its_partitions_again_without_a_new_epoch() -> None:
    group = made()
    old = joined(group, "m1", instance_id="i1")
    joined(group, "m2")
    with pytest.raises(UnreleasedInstance, match="in use"):
        group.replace_static("i1", "m3")
    group.leave_for_a_while(group.member("m1"))
    epoch = group.epoch
    back = group.replace_static("i1", "m3")
    assert (back.assigned, back.epoch) == (old.assigned, 0)
    assert group.reconcile("m3", NO_PARTITIONS).epoch == epoch == group.epoch
    with pytest.raises(FencedInstance):
        group.static_member("i1", "m1")
    with pytest.raises(UnknownMember):
        group.static_member("i9", "m1")


def test_a_static_member_that_is_away_keeps_others_off_its_partitions() -> None:
    group = made()
    joined(group, "m1", instance_id="i1")
    group.leave_for_a_while(group.member("m1"))
    assert joined(group, "m2").assigned == {}
    group.remove("m1")
    group.retarget()
    assert group.reconcile("m2", None).assigned == a(0, 1, 2, 3)


def test_the_assignor_is_the_one_that_most_members_ask_for() -> None:
    group = made()
    joined(group, "m1", assignor="range")
    assert group.assignor == "range"
    joined(group, "m2", assignor="uniform")
    joined(group, "m3", assignor="uniform")
    assert group.assignor == "uniform"
    for member_id in ("m1", "m2", "m3"):
        group.subscribe(replace(group.member(member_id), assignor=None))
    group.retarget()
    assert group.assignor == "uniform"


def test_an_empty_group_goes_on_above_its_last_epoch() -> None:
    group = ConsumerGroupState(epoch=41)
    group.look_at_topics(catalogue(a=1), {})
    assert group.phase is ConsumerGroupPhase.EMPTY
    assert joined(group, "m1").epoch == 42


def test_a_restored_group_goes_on_in_its_epoch_unless_its_topics_are_others() -> None:
    before = made(a=4)
    joined(before, "m1", "a", "b")
    for counts, more in (({"a": 4}, 0), ({"a": 5}, 1), ({"a": 4, "b": 1}, 1), ({}, 1)):
        after = ConsumerGroupState(epoch=before.epoch)
        after.restore(
            before,
            assignor="range",
            topics_hash=hash_of(before.subscribed),
            known_topics=catalogue(**counts),
            matches={},
        )
        assert (after.epoch, after.assignor) == (before.epoch + more, "range")
        assert after.owner(A, 3) == "m1"
        assert after.phase is (ConsumerGroupPhase.ASSIGNING if more else ConsumerGroupPhase.STABLE)


def test_a_group_is_not_settled_while_a_member_that_is_away_lacks_some_of_its_target() -> None:
    group = made(a=4)
    joined(group, "m1", instance_id="i1")
    assert group.is_settled
    group.look_at_topics(catalogue(a=5), {})
    group.leave_for_a_while(group.member("m1"))
    group.retarget()
    assert group.phase is ConsumerGroupPhase.STABLE
    assert not group.is_settled


# Whatever happens


class Client:
    """A well-behaved member: it stops using what is revoked some time later, and says so with its next heartbeat."""

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.wanted: Partitions = {}
        self.using: Partitions = {}
        self.confirmed: Partitions = {}
        self.said: Partitions | None = None
        self.must_confirm = False

    def heard(self, member: Member) -> None:
        assert member.epoch >= self.epoch or self.epoch == 0, "epochs never go back"
        self.epoch = member.epoch
        if member.assigned != self.wanted:
            self.wanted = member.assigned
            self.must_confirm = True

    def obey(self) -> None:
        """Gives up first, and takes only what it was given."""
        self.using = self.confirmed = self.wanted
        if self.must_confirm:
            self.must_confirm, self.said = False, None


class Groups(RuleBasedStateMachine):
    """Members join, stay, fall silent, leave, come back; answers are lost; topics grow; targets come late."""

    members = Bundle("members")

    @initialize(count=st.integers(1, 6))
    def begin(self, count: int) -> None:
        self.group = ConsumerGroupState(epoch=3)
        self.counts = {"a": count, "b": 2}
        self.clients: dict[str, Client] = {}
        self.away: dict[str, Client] = {}
        self.made = 0
        self.highest = 0
        self.group.look_at_topics(catalogue(**self.counts), {})

    def _epoch_never_goes_back(self) -> None:
        assert self.group.epoch >= self.highest
        self.highest = self.group.epoch

    @rule(
        target=members, topics=st.sets(st.sampled_from("ab"), min_size=1), static=st.booleans(), at_once=st.booleans()
    )
    def join(self, topics: set[str], static: bool, at_once: bool) -> Client:
        self.made += 1
        client = Client(f"m{self.made}", f"i{self.made}" if static else None)
        self.clients[client.member_id] = client
        self.group.subscribe(
            Member(member_id=client.member_id, instance_id=client.instance_id, topics=frozenset(topics))
        )
        if at_once:
            self.group.retarget()
        client.said = {}
        client.heard(self.group.reconcile(client.member_id, {}))
        return client

    @rule(client=members, obeys=st.booleans(), is_lost=st.booleans())
    def heartbeat(self, client: Client, obeys: bool, is_lost: bool) -> None:
        if client.member_id not in self.clients:
            return
        self._heartbeat(client, obeys=obeys, is_lost=is_lost)

    def _heartbeat(self, client: Client, *, obeys: bool = True, is_lost: bool = False) -> None:
        if obeys:
            client.obey()
        owned = None if client.confirmed == client.said else client.confirmed
        try:
            check_epoch(self.group.member(client.member_id), client.epoch, owned or client.confirmed)
        except FencedMemberEpoch:
            # Two answers were lost, or it had not given up everything yet: it gives up all and joins again.
            client.using, client.confirmed, client.wanted, client.epoch, owned = {}, {}, {}, 0, {}
        member = self.group.reconcile(client.member_id, client.confirmed if is_lost else owned)
        client.said = None if is_lost else client.confirmed
        if not is_lost:
            client.heard(member)

    @rule(client=members)
    def begin_to_use_what_was_given(self, client: Client) -> None:
        """The application is told before the broker is."""
        if client.member_id in self.clients:
            client.using = union(client.using, client.wanted)

    @rule(client=members)
    def repeat_everything(self, client: Client) -> None:
        """A full heartbeat, after some error: what was confirmed last is in it."""
        if client.member_id in self.clients and client.wanted:
            try:
                check_epoch(self.group.member(client.member_id), client.epoch, client.confirmed)
            except FencedMemberEpoch:
                return
            client.heard(self.group.reconcile(client.member_id, client.confirmed, is_certain=False))

    @rule(client=members, topics=st.sets(st.sampled_from("ab")))
    def resubscribe(self, client: Client, topics: set[str]) -> None:
        if client.member_id in self.clients:
            self.group.subscribe(replace(self.group.member(client.member_id), topics=frozenset(topics)))

    @rule(client=consumes(members))
    def leave(self, client: Client) -> None:
        if self.clients.pop(client.member_id, None) is not None:
            self.group.remove(client.member_id)

    @rule(client=members)
    def leave_for_a_while(self, client: Client) -> None:
        if client.member_id in self.clients and client.instance_id is not None:
            del self.clients[client.member_id]
            client.using = {}
            self.away[client.instance_id] = client
            self.group.leave_for_a_while(self.group.member(client.member_id))

    @rule(target=members, data=st.data())
    def come_back(self, data: st.DataObject) -> Client:
        instance_id = data.draw(st.sampled_from([*sorted(self.away), ""]))
        if not instance_id:
            return Client("nobody", None)
        del self.away[instance_id]
        self.made += 1
        client = Client(f"m{self.made}", instance_id)
        self.clients[client.member_id] = client
        self.group.replace_static(instance_id, client.member_id)
        client.heard(self.group.reconcile(client.member_id, {}))
        return client

    @rule(grown=st.integers(1, 3))
    def grow(self, grown: int) -> None:
        self.counts["a"] = min(12, self.counts["a"] + grown)
        self.group.look_at_topics(catalogue(**self.counts), {})

    @rule()
    def delete_or_create_b(self) -> None:
        self.counts = {"a": self.counts["a"]} if "b" in self.counts else {**self.counts, "b": 3}
        self.group.look_at_topics(catalogue(**self.counts), {})

    @rule()
    def retarget(self) -> None:
        self.group.retarget()

    @precondition(lambda self: self.group.is_settled)
    @rule(grown=st.integers(0, 1))
    def go_on_with_another_coordinator(self, grown: int) -> None:
        """It knows what was stored, but not what each member has said of that, and perhaps of more partitions."""
        self.counts["a"] = min(12, self.counts["a"] + grown)
        before, self.group = self.group, ConsumerGroupState(epoch=self.group.epoch)
        self.group.restore(
            [replace(member, unconfirmed=member.assigned) for member in before],
            assignor=before.assignor,
            topics_hash=hash_of(before.subscribed),
            known_topics=catalogue(**self.counts),
            matches={},
        )
        assert (self.group.epoch > before.epoch) is (self.group.subscribed != before.subscribed)
        assert {member.member_id: self.group.target_of(member.member_id) for member in before} == {
            member.member_id: before.target_of(member.member_id) for member in before
        }

    @invariant()
    def no_partition_is_used_by_two(self) -> None:
        used = [
            (topic, each) for client in self.clients.values() for topic in client.using for each in client.using[topic]
        ]
        assert len(used) == len(set(used))
        self._epoch_never_goes_back()

    @invariant()
    def whoever_uses_a_partition_is_its_owner(self) -> None:
        for client in self.clients.values():
            for topic, partitions in client.using.items():
                assert {self.group.owner(topic, each) for each in partitions} == {client.member_id}

    def teardown(self) -> None:
        for client in self.away.values():
            self.group.remove(client.member_id)
        for _ in range(4):
            self.group.retarget()
            for client in self.clients.values():
                self._heartbeat(client)
        if not self.clients:
            assert self.group.phase is ConsumerGroupPhase.EMPTY
            return
        assert self.group.phase is ConsumerGroupPhase.STABLE
        epoch = self.group.epoch
        subscribed = {name for member in self.group for name in member.topics if name in self.counts}
        held: Partitions = {}
        for client in self.clients.values():
            client.obey()
            held = union(held, client.using)
            assert client.epoch == epoch
            assert client.using == self.group.target_of(client.member_id)
        wanted = {facts.topic_id: frozenset(range(facts.partition_count)) for facts in self._facts(subscribed)}
        assert not minus(wanted, held)
        assert not minus(held, wanted)

    def _facts(self, names: set[str]) -> list[TopicFacts]:
        found = catalogue(**self.counts)
        return [found[name] for name in names]


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=settings().max_examples * 4, stateful_step_count=40, deadline=None)
