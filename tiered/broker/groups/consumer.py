"""The requests of KIP-848 members.

Owns the way to a group, the topics that groups may subscribe to and the patterns in use. Must never change a group's
members: `consumer_group` and `consumer_classic` do.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager

from tiered.broker.groups import stored_members, upgrade
from tiered.broker.groups.classic_group import ClassicGroup
from tiered.broker.groups.consumer_group import MARGIN_MS, ConsumerGroup
from tiered.broker.groups.group import Group
from tiered.broker.groups.patterns import Patterns
from tiered.broker.groups.shown_topics import ShownTopics
from tiered.broker.groups.surroundings import Surroundings
from tiered.errors import GroupNotFound, UnknownMember
from tiered.formats.group_members import KeptConsumerGroup
from tiered.ids import TopicId
from tiered.meta.groups import GroupRow
from tiered.rules.groups import consumer_heartbeat
from tiered.rules.groups.assignors import Partitions
from tiered.rules.groups.consumer_group import KnownTopics, Matches, TopicFacts
from tiered.rules.groups.consumer_heartbeat import Heartbeat, HeartbeatAnswer
from tiered.rules.groups.consumer_member import JOIN, NO_PATTERN, Pattern


class ConsumerGroups:
    """One for a coordinator. Classic members of its groups ask `ClassicGroups`."""

    def __init__(self, coordinator: Surroundings) -> None:
        self._coordinator = coordinator
        self._patterns = Patterns(coordinator.memory, lambda: {each.text for each in self._patterns_in_use()})
        self._shown = ShownTopics(coordinator.access, coordinator.memory, self._patterns_in_use)
        self._open: set[ConsumerGroup] = set()
        self._known_topics: KnownTopics = {}
        self._names: frozenset[str] = frozenset()
        self._version = -1
        self._gained_at_ms: dict[int, float] = {}
        self._heard_at_ms: dict[int, float] = {}
        """By slot, when somebody was first heard of in it."""

    def restored(self, stored: GroupRow, kept: KeptConsumerGroup | None) -> ConsumerGroup:
        """A stable group of the stored epoch, or (without `kept`) an empty one that continues above it.

        Members of the coordinator before may still use their partitions until they are told, with their next
        heartbeat, that nobody knows them. So long after the first heartbeat that came here nobody is given any.
        """
        if kept is not None:
            config = self._coordinator.resource_configs.group(stored.group_id)
            wait_ms = config.consumer_heartbeat_interval_ms + MARGIN_MS
            group = ConsumerGroup(self._coordinator, stored.group_id, epoch=stored.generation, wait_ms=wait_ms)
            members = stored_members.consumer_members(kept)
            group.restore(members, assignor=kept.assignor, topics_hash=kept.topics_hash)
            return group
        group = ConsumerGroup(
            self._coordinator, stored.group_id, epoch=max(0, stored.generation) + 1, wait_ms=self._wait_ms(stored)
        )
        if stored.members is not None:
            group.note()
        return group

    def _wait_ms(self, stored: GroupRow) -> float:
        slot, now_ms = self._coordinator.slot(stored.group_id), self._coordinator.context.clock.monotonic_ms()
        config = self._coordinator.resource_configs.group(stored.group_id)
        heard_at_ms = self._heard_at_ms.get(slot)
        wait_ms = 0.0
        # A new coordinator hears of members one by one; after a session, silent members are gone.
        if heard_at_ms is not None and (
            heard_at_ms <= self._gained_at_ms.get(slot, heard_at_ms) + config.consumer_session_timeout_ms
        ):
            wait_ms = max(0.0, heard_at_ms + config.consumer_heartbeat_interval_ms + MARGIN_MS - now_ms)
        return wait_ms

    def slots_gained(self, slots: Iterable[int]) -> None:
        """Their groups had another coordinator until now: their members have to hear that nobody knows them."""
        now_ms = self._coordinator.context.clock.monotonic_ms()
        for slot in slots:
            self._gained_at_ms[slot] = now_ms
            self._heard_at_ms.pop(slot, None)

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        """Raises InvalidRequest, InvalidGroup, UnsupportedAssignor, InvalidRegularExpression, GroupNotFound (a classic
        group that cannot change), and what `ConsumerGroup.heartbeat` and `GroupCoordinator.load` raise."""
        self._coordinator.check_ours(heartbeat.group_id)
        consumer_heartbeat.check(heartbeat)
        now_ms = self._coordinator.context.clock.monotonic_ms()
        self._heard_at_ms.setdefault(self._coordinator.slot(heartbeat.group_id), now_ms)
        pattern = self.pattern_of(heartbeat)
        async with self.knowing([pattern] if pattern else []):
            group = await self._coordinator.load(heartbeat.group_id)
            # From here on nothing waits: what is decided is done.
            return self._group_for(heartbeat, group).heartbeat(heartbeat)

    @asynccontextmanager
    async def knowing(self, patterns: Collection[Pattern]) -> AsyncIterator[None]:
        """Within it, it is known which topics the patterns mean, whether or not a member subscribes to them yet. Raises
        InvalidRegularExpression, CoordinatorNotAvailable."""
        with ExitStack() as kept:
            for pattern in patterns:
                kept.enter_context(self._patterns.kept(pattern.text))
                kept.enter_context(self._shown.kept(pattern))
                self._look_at_topics()
                await self._patterns.learn(pattern.text, self._names)
                await self._shown.look(pattern, self._patterns.matches(pattern.text, self._names))
            yield

    def _group_for(self, heartbeat: Heartbeat, group: Group | None) -> ConsumerGroup:
        if isinstance(group, ConsumerGroup):
            return group
        if heartbeat.epoch != JOIN:
            raise UnknownMember(f"group {heartbeat.group_id} has no such member; join again with epoch 0")
        # Ids that were given out, and not yet joined with, are good for either protocol.
        if isinstance(group, ClassicGroup) and group.members:
            found = upgrade.to_consumer(self._coordinator, group)
        else:
            if group is None:
                self._coordinator.count_new()
            epoch = 0 if group is None else group.generation
            found = ConsumerGroup(self._coordinator, heartbeat.group_id, epoch=epoch)
            if group is not None:
                group.close()
        self._coordinator.adopt(found)
        return found

    def turn_classic(self, group: ConsumerGroup, *, generation: int) -> ClassicGroup:
        """The last member of the new protocol has gone; the others go on as a classic group."""
        with self._coordinator.memory.converting():
            found = upgrade.to_classic(self._coordinator, group, generation=generation)
        self._coordinator.adopt(found)
        return found

    # What others ask

    async def group(self, group_id: str) -> ConsumerGroup:
        """The group to describe. Raises GroupNotFound, NotCoordinator, CoordinatorNotAvailable."""
        self._coordinator.check_ours(group_id)
        group = await self._coordinator.load(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupNotFound(
                f"no group of the consumer protocol has the id {group_id}; describe it as a classic one"
            )
        return group

    def pattern_of(self, heartbeat: Heartbeat) -> Pattern:
        """The member's subscription from now on; a member that does not name one keeps its last."""
        if heartbeat.pattern is not None:
            # One and the same where there is none, whoever says so: else it would be another subscription.
            return Pattern(heartbeat.pattern, heartbeat.principal, heartbeat.host) if heartbeat.pattern else NO_PATTERN
        group = self._coordinator.find(heartbeat.group_id)
        member = group.state.find(heartbeat.member_id) if isinstance(group, ConsumerGroup) else None
        return NO_PATTERN if member is None else member.pattern

    @property
    def shown_version(self) -> int:
        """Another one when a pattern means other topics because of other rights."""
        return self._shown.version

    def topics_of(self, patterns: Iterable[Pattern]) -> tuple[KnownTopics, Matches]:
        """All topics that there are, and the names of those that each pattern means."""
        self._look_at_topics()
        return self._known_topics, {
            each: self._shown.of(each, self._patterns.matches(each.text, self._names)) for each in patterns
        }

    def named(self, partitions: Partitions) -> Mapping[str, tuple[int, ...]]:
        """The same by topic names; topics that were deleted are left out."""
        topics = self._coordinator.topics
        return {
            topic.name: tuple(sorted(held))
            for topic_id, held in partitions.items()
            if (topic := topics.find_id(topic_id)) is not None
        }

    def by_id(self, partitions: Mapping[str, Iterable[int]]) -> Partitions:
        """The same by topic ids; what does not exist is left out."""
        topics = self._coordinator.topics
        found: dict[TopicId, frozenset[int]] = {}
        for name, held in partitions.items():
            topic = topics.find(name)
            if topic is not None and (real := frozenset(each for each in held if 0 <= each < topic.partition_count)):
                found[topic.topic_id] = real
        return found

    def _look_at_topics(self) -> None:
        topics = self._coordinator.topics
        if topics.version == self._version:
            return
        self._version = topics.version
        self._known_topics = {
            topic.name: TopicFacts(topic.topic_id, topic.partition_count) for topic in topics if not topic.is_internal
        }
        self._names = frozenset(self._known_topics)

    def _patterns_in_use(self) -> set[Pattern]:
        return {pattern for group in self._open for pattern in group.state.patterns}

    def opened(self, group: ConsumerGroup) -> None:
        self._open.add(group)

    def closed(self, group: ConsumerGroup) -> None:
        self._open.discard(group)
