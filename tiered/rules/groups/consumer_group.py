"""A KIP-848 group: its members, its epochs, its target, and the partitions that each member may use now.

Owns the group's state and every decision about it; time-outs and answers are `broker.groups.consumer`'s work.
No partition is ever given to two members: it is free only once the member that had it has said that it gave it up,
or was thrown out. Pure: nothing here reads a clock or waits.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from tiered.errors import FencedInstance, UnknownMember, UnreleasedInstance
from tiered.ids import TopicId
from tiered.rules.groups import assignors
from tiered.rules.groups.assignors import NO_PARTITIONS, Partitions, Subscriber
from tiered.rules.groups.consumer_member import (
    LEAVE_FOR_A_WHILE,
    Member,
    MemberState,
    Pattern,
    minus,
    reconciled,
    union,
)


class ConsumerGroupPhase(StrEnum):
    """How a group stands. The values are Kafka's names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The facts about one topic that a target depends on."""

    topic_id: TopicId
    partition_count: int


KnownTopics = Mapping[str, TopicFacts]
Matches = Mapping[Pattern, frozenset[str]]
"""Patterns and the names of the topics that each of them means."""


def hash_of(topics: KnownTopics) -> str:
    """Another one for other topics, and for other numbers of their partitions."""
    facts = sorted((name, each.topic_id.hex, each.partition_count) for name, each in topics.items())
    return hashlib.sha256(repr(facts).encode()).hexdigest()


class ConsumerGroupState:
    """Changed by its one owner. `epoch` grows with every reason for another target, and never goes back."""

    def __init__(self, *, epoch: int = 0) -> None:
        self.epoch = epoch
        self.target_epoch = epoch
        self.assignor = assignors.UNIFORM
        self._members: dict[str, Member] = {}
        self._instances: dict[str, str] = {}
        self._target: dict[str, Partitions] = {}
        self._owners: dict[TopicId, dict[int, str]] = {}
        self._known_topics: KnownTopics = {}
        self._matches: Matches = {}

    # Looking

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def find(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def member(self, member_id: str) -> Member:
        """The member, or UnknownMember."""
        member = self._members.get(member_id)
        if member is None:
            raise UnknownMember(f"the group has no member {member_id!r}; join again with epoch 0")
        return member

    def instance(self, instance_id: str) -> Member | None:
        """The static member of this instance id."""
        member_id = self._instances.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def target_of(self, member_id: str) -> Partitions:
        return self._target.get(member_id, NO_PARTITIONS)

    def owner(self, topic_id: TopicId, partition: int) -> str | None:
        """The member that uses the partition, or may not have stopped using it yet."""
        return self._owners.get(topic_id, {}).get(partition)

    @property
    def phase(self) -> ConsumerGroupPhase:
        if not self._members:
            return ConsumerGroupPhase.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupPhase.ASSIGNING
        settled = all(
            member.state is MemberState.STABLE and member.epoch in (self.target_epoch, LEAVE_FOR_A_WHILE)
            for member in self._members.values()
        )
        return ConsumerGroupPhase.STABLE if settled else ConsumerGroupPhase.RECONCILING

    @property
    def is_settled(self) -> bool:
        """Stable, and who is away has what its target gives it, too: what members have is all that there is to know."""
        return self.phase is ConsumerGroupPhase.STABLE and all(
            member.assigned == self.target_of(member.member_id) for member in self._members.values()
        )

    @property
    def patterns(self) -> frozenset[Pattern]:
        """Every pattern that a member subscribes to."""
        return frozenset(member.pattern for member in self._members.values() if member.pattern)

    @property
    def all_classic(self) -> bool:
        """Whether members are left, and none of them of the new protocol."""
        return bool(self._members) and all(member.classic is not None for member in self._members.values())

    @property
    def subscribed(self) -> KnownTopics:
        """The topics that members subscribe to, and that there are."""
        return self._facts()

    def count_partitions(self, *, with_member: Member) -> int:
        """Of all topics that the members and this one, as it is here, subscribe to."""
        others = (member for member in self._members.values() if member.member_id != with_member.member_id)
        subscriptions = {(member.topics, member.pattern) for member in (*others, with_member)}
        names = set[str]().union(*(self._names_of(*each, self._matches) for each in subscriptions))
        return sum(facts.partition_count for name in names if (facts := self._known_topics.get(name)))

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self._names_of(*each, self._matches) for each in self._subscriptions())

    # Members

    def known(self, member_id: str, instance_id: str | None) -> Member:
        """A member, static where it names its instance. Raises UnknownMember, FencedInstance."""
        return self.member(member_id) if instance_id is None else self.static_member(instance_id, member_id)

    def static_member(self, instance_id: str, member_id: str) -> Member:
        """The member of this instance id, which must be `member_id`.

        Raises UnknownMember when nobody has the instance id, FencedInstance when somebody else has.
        """
        member = self.instance(instance_id)
        if member is None:
            raise UnknownMember(f"no member has the instance id {instance_id!r}; join again with epoch 0")
        if member.member_id != member_id:
            raise FencedInstance(
                f"another process has taken over the instance id {instance_id!r}; stop this one, or give it another id"
            )
        return member

    def replace_static(self, instance_id: str, member_id: str) -> Member:
        """The newcomer takes the place, the target and the partitions of the member that is away.

        Raises UnreleasedInstance while that one has not left.
        """
        before = self.instance(instance_id)
        assert before is not None
        if not before.is_away:
            raise UnreleasedInstance(
                f"the instance id {instance_id!r} is in use by member {before.member_id}: "
                "stop that one first, or wait for its session to time out"
            )
        return self._take_place(before, member_id)

    def take_over_static(self, instance_id: str, member_id: str) -> Member:
        """The same for a member of the classic protocol, which needs not wait (KIP-345): the old one is fenced."""
        before = self.instance(instance_id)
        assert before is not None
        return self._take_place(before, member_id)

    def _take_place(self, before: Member, member_id: str) -> Member:
        target = self.target_of(before.member_id)
        self._drop(before)
        member = replace(before, member_id=member_id, epoch=0, previous_epoch=0)
        self.put(member)
        self._target[member_id] = target
        return member

    def put(self, member: Member) -> None:
        """The member as it is now. Partitions that it gave up are free."""
        before = self._members.get(member.member_id)
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        if before is not None:
            if before.assigned is member.assigned and before.revoking is member.revoking:
                return  # There may be very many.
            self._release(before)
        for topic_id, partitions in union(member.assigned, member.revoking).items():
            owners = self._owners.setdefault(topic_id, {})
            for partition in partitions:
                assert partition not in owners, f"partition {partition} has an owner: {owners[partition]}"
                owners[partition] = member.member_id

    def subscribe(self, member: Member) -> None:
        """Puts a member that is new, or may want other topics than before: then another target is due."""
        before = self._members.get(member.member_id)
        if before is None or before.topics is not member.topics:
            member = replace(member, topics=self._shared(member.topics))
        wants = (member.topics, member.pattern, member.assignor)
        if before is None or (before.topics, before.pattern, before.assignor) != wants:
            self.epoch += 1
        self.put(member)

    def remove(self, member_id: str) -> None:
        """The member has left, or was thrown out: its partitions are free, and another target is due."""
        self._drop(self._members[member_id])
        self.epoch += 1
        if not self._members:
            self.target_epoch = self.epoch

    def leave_for_a_while(self, member: Member) -> None:
        """A static member goes and will be back: its partitions stay its own, except those it was giving up."""
        self.put(replace(member, epoch=LEAVE_FOR_A_WHILE, revoking=NO_PARTITIONS, state=MemberState.STABLE))

    def _drop(self, member: Member) -> None:
        self._release(member)
        del self._members[member.member_id]
        self._target.pop(member.member_id, None)
        if member.instance_id is not None and self._instances.get(member.instance_id) == member.member_id:
            del self._instances[member.instance_id]

    def _release(self, member: Member) -> None:
        for topic_id, partitions in union(member.assigned, member.revoking).items():
            owners = self._owners[topic_id]
            for partition in partitions:
                del owners[partition]
            if not owners:
                del self._owners[topic_id]

    # Targets

    def look_at_topics(self, known_topics: KnownTopics, matches: Matches) -> None:
        """Another target is due when the topics that members subscribe to are others, or have more partitions."""
        old, new = self._facts(), self._facts(known_topics, matches)
        self._known_topics, self._matches = known_topics, matches
        if self._members and old != new:
            self.epoch += 1

    def retarget(self) -> None:
        """Makes the target of the present epoch. The assignor is the one that most members ask for."""
        asked = Counter(member.assignor for member in self._members.values() if member.assignor is not None)
        self.assignor = max(asked, key=lambda name: (asked[name], name == self.assignor, name), default=self.assignor)
        if not asked:
            self.assignor = assignors.UNIFORM
        ids = {
            each: frozenset(
                facts.topic_id
                for name in self._names_of(*each, self._matches)
                if (facts := self._known_topics.get(name))
            )
            for each in self._subscriptions()
        }
        members = {
            member.member_id: Subscriber(
                topics=ids[member.topics, member.pattern],
                had=self.target_of(member.member_id),
                instance_id=member.instance_id,
            )
            for member in self._members.values()
        }
        counts = {facts.topic_id: facts.partition_count for facts in self._known_topics.values()}
        self._target = assignors.assign(self.assignor, members, counts)
        self.target_epoch = self.epoch

    def reconcile(self, member_id: str, owned: Partitions | None, *, is_certain: bool = True) -> Member:
        """The member after its next step towards the target; `owned` is what it says it has, `is_certain` whether it
        says so of its own accord (see `consumer_member.reconciled`)."""
        member = self._members[member_id]
        after = reconciled(
            member,
            target=self.target_of(member_id),
            target_epoch=self.target_epoch,
            owned=owned,
            is_certain=is_certain,
            is_free=lambda wanted: self._free(wanted, member_id),
        )
        if after is not member:
            self.put(after)
        return after

    def continue_with(self, members: Iterable[Member]) -> None:
        """Goes on where a classic group was: what its members have is the target of its generation.

        Of a partition that a leader's assignor has given to two, the first one is the owner.
        """
        for member in members:
            free = self._free(member.assigned, member.member_id)
            self.put(replace(member, assigned=free))
            self._target[member.member_id] = free
        self.target_epoch = self.epoch

    def restore(
        self, members: Iterable[Member], *, assignor: str, topics_hash: str, known_topics: KnownTopics, matches: Matches
    ) -> None:
        """Goes on where another coordinator was, whose group was settled: what its members have is the target.

        Another target is due where the topics that they subscribe to are others by now (`topics_hash`).
        """
        for member in members:
            self.put(member)
            self._target[member.member_id] = member.assigned
        self.assignor = assignor
        self.target_epoch = self.epoch
        self._known_topics, self._matches = known_topics, matches
        if hash_of(self.subscribed) != topics_hash:
            self.epoch += 1

    def must_rejoin(self, member: Member) -> bool:
        """Whether a classic member has to join again: to give up partitions, or to take some that are free now."""
        if member.epoch < self.target_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        waits = minus(self.target_of(member.member_id), member.assigned)
        return bool(self._free(waits, member.member_id))

    def _free(self, wanted: Partitions, member_id: str) -> Partitions:
        found = {}
        for topic_id, partitions in wanted.items():
            owners = self._owners.get(topic_id)
            free = (
                frozenset(each for each in partitions if owners.get(each, member_id) == member_id)
                if owners
                else partitions
            )
            if free:
                found[topic_id] = free
        return found

    def _shared(self, topics: frozenset[str]) -> frozenset[str]:
        """The set of another member that wants the same: to compare it with itself costs nothing."""
        wanted = hash(topics)
        for member in self._members.values():
            if hash(member.topics) == wanted and member.topics == topics:
                return member.topics
        return topics

    def _subscriptions(self) -> set[tuple[frozenset[str], Pattern]]:
        """The members' subscriptions: topics by name, and a pattern. Most members have the same."""
        return {(member.topics, member.pattern) for member in self._members.values()}

    @staticmethod
    def _names_of(topics: frozenset[str], pattern: Pattern, matches: Matches) -> frozenset[str]:
        return topics | matches.get(pattern, frozenset()) if pattern else topics

    def _facts(self, known_topics: KnownTopics | None = None, matches: Matches | None = None) -> dict[str, TopicFacts]:
        known = self._known_topics if known_topics is None else known_topics
        matching = self._matches if matches is None else matches
        names = set[str]().union(*(self._names_of(*each, matching) for each in self._subscriptions()))
        return {name: facts for name in names if (facts := known.get(name))}
