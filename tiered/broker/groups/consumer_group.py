"""One KIP-848 group: its members' requests and time-outs.

Owns the group's timers and its share of memory. `rules.groups.consumer_group` decides what happens to members and
partitions; this module does it. Must never await anything: every request is one change, and is answered at once.
Members of the classic protocol are in `consumer_classic`.
"""

import logging
from dataclasses import replace

from tiered.broker.groups import stored_members
from tiered.broker.groups.consumer_timers import MemberTimers
from tiered.broker.groups.memory import GROUP_BYTES, MEMBER_BYTES, PROTOCOL_BYTES
from tiered.broker.groups.surroundings import Surroundings
from tiered.broker.groups.timer import Deadline
from tiered.broker.groups.values import GroupDescription, GroupKind, GroupSummary, MemberDescription
from tiered.config import GroupConfig
from tiered.errors import GroupFull, IllegalGeneration, StaleMemberEpoch, UnknownMember
from tiered.rules.groups import consumer_member
from tiered.rules.groups.consumer_group import ConsumerGroupPhase, ConsumerGroupState
from tiered.rules.groups.consumer_heartbeat import UNCHANGED_MS, Heartbeat, HeartbeatAnswer
from tiered.rules.groups.consumer_member import JOIN, LEAVE, LEAVE_FOR_A_WHILE, Member, MemberState
from tiered.wire.consumer_protocol import PROTOCOL_TYPE

log = logging.getLogger(__name__)

RESTLESS_HEARTBEAT_MS = 1000
"""While partitions change hands, or a member is missing, everybody asks this often at least: nobody can be called, and
what one gives up another one takes with its next heartbeat."""
LOOK_INTERVAL_MS = 500.0
MISSING_AFTER_HEARTBEATS = 1.5
PAUSE_PER_TARGET = 10
"""After a target that took much work, the next one is made this many times as long later."""
QUICK_TARGET_MS = 5.0
"""Of a processor, not of a clock on the wall: a machine with other work makes nobody wait."""
MARGIN_MS = 500.0
"""For a heartbeat on its way, and the client's reaction to the answer."""
# The cost of a name besides its characters, and of a partition in targets, assignments and owners.
_NAME_BYTES, _PARTITION_BYTES = 60, 150


class ConsumerGroup:
    """Implements `group.Group`. Made empty, above the epoch that SQL remembers, or restored with its members in it.

    SQL may be a moment behind (it is told after the members): a restored group finds that out when a member sends a
    later epoch, and then lets all members join anew.
    """

    def __init__(self, coordinator: Surroundings, group_id: str, *, epoch: int = 0, wait_ms: float = 0.0) -> None:
        """The first target is made after `wait_ms`. Raises CoordinatorNotAvailable when groups take all the memory
        they may."""
        self._coordinator = coordinator
        self._groups = coordinator.consumer
        self._group_id = group_id
        self._taken_bytes = 0
        self._memory = coordinator.memory.purse()
        self._take(GROUP_BYTES + len(group_id))
        self._counted_partitions = 0
        """The most that members subscribed to since the group was empty: what targets and owners may hold."""
        self.state = ConsumerGroupState(epoch=max(0, epoch))
        self._noted = (-1, True, False)
        self._restored_epoch: int | None = None
        self._restored_until_ms = 0.0
        self._untold: set[str] = set()
        """Restored members that have not been told since what they may use."""
        self.timers = MemberTimers(coordinator.context.clock, self._throw_out)
        self._topics_version = (-1, -1)
        self._next_target_ms = coordinator.context.clock.monotonic_ms() + wait_ms
        self._late_target = Deadline(self._make_late_target)
        self._looked_ms, self._was_restless = 0.0, False
        self._is_closed = False
        self._groups.opened(self)

    # What it is

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def kind(self) -> GroupKind:
        return GroupKind.CONSUMER

    @property
    def generation(self) -> int:
        return self.state.epoch

    @property
    def is_empty(self) -> bool:
        return not len(self.state)

    @property
    def member_count(self) -> int:
        return len(self.state)

    @property
    def phase(self) -> ConsumerGroupPhase:
        return ConsumerGroupPhase.DEAD if self._is_closed else self.state.phase

    @property
    def _config(self) -> GroupConfig:
        return self._coordinator.resource_configs.group(self._group_id)

    def summary(self) -> GroupSummary:
        return GroupSummary(
            group_id=self._group_id,
            kind=self.kind,
            protocol_type=PROTOCOL_TYPE,
            state=self.phase.value,
            member_count=len(self.state),
        )

    def describe(self) -> GroupDescription:
        return GroupDescription(
            group_id=self._group_id,
            kind=self.kind,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.state.assignor,
            state=self.phase.value,
            generation=self.state.epoch,
            members=tuple(self._described(member) for member in self.state),
        )

    def _described(self, member: Member) -> MemberDescription:
        return MemberDescription(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topics=tuple(sorted(member.topics)),
            assignment=self._groups.named(member.assigned),
            member_epoch=member.epoch,
            rack=member.rack,
        )

    def is_subscribed_to(self, topic: str) -> bool:
        return self.state.is_subscribed_to(topic)

    # Offsets

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool = False
    ) -> None:
        names_nobody = not member_id and instance_id is None
        if generation < 0 and (self.is_empty or (is_transactional and names_nobody)):
            return
        self.check_member(member_id, generation)

    def check_member(self, member_id: str, epoch: int) -> None:
        """Raises UnknownMember, and StaleMemberEpoch (IllegalGeneration for a classic member)."""
        member = self.state.member(member_id)
        if member.epoch == epoch:
            return
        told = f"member {member_id} is in epoch {member.epoch}, not {epoch}"
        if member.classic is not None:
            raise IllegalGeneration(f"{told}; join again")
        raise StaleMemberEpoch(f"{told}; the next heartbeat tells it")

    # Heartbeats

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        """Raises UnknownMember, FencedMemberEpoch, FencedInstance, UnreleasedInstance, GroupFull,
        CoordinatorNotAvailable."""
        if heartbeat.epoch in (LEAVE, LEAVE_FOR_A_WHILE):
            return self._leave(heartbeat)
        self._check_restored(heartbeat)
        self.look_at_topics()
        before, member = self._admitted(heartbeat)
        self.subscribe(member)
        is_certain = heartbeat.epoch == JOIN or not heartbeat.is_full
        after = self.state.reconcile(member.member_id, heartbeat.owned, is_certain=is_certain)
        self.timers.touch(after.member_id, self._config.consumer_session_timeout_ms)
        self._watch(after)
        self.note(has_changed=before is None or stored_members.is_other(before, after))
        is_news = (
            heartbeat.is_full
            or before is None
            or heartbeat.epoch != before.epoch
            or after.assigned != before.assigned
            or after.member_id in self._untold
        )
        self._untold.discard(after.member_id)
        return HeartbeatAnswer(
            member_id=after.member_id,
            epoch=after.epoch,
            heartbeat_interval_ms=self._interval_ms(after),
            assignment=after.assigned if is_news else None,
        )

    def _interval_ms(self, member: Member) -> int:
        """When the member is to be heard of again."""
        interval_ms = self._config.consumer_heartbeat_interval_ms
        if interval_ms <= RESTLESS_HEARTBEAT_MS:
            return interval_ms
        restless = member.state is not MemberState.STABLE or self._is_restless(interval_ms)
        return RESTLESS_HEARTBEAT_MS if restless else interval_ms

    def _is_restless(self, interval_ms: int) -> bool:
        now_ms = self._coordinator.context.clock.monotonic_ms()
        if now_ms >= self._looked_ms + LOOK_INTERVAL_MS:
            self._looked_ms = now_ms
            is_missing = self.timers.longest_silence_ms() > MISSING_AFTER_HEARTBEATS * interval_ms
            self._was_restless = is_missing or self.state.phase is not ConsumerGroupPhase.STABLE
        return self._was_restless

    def _admitted(self, heartbeat: Heartbeat) -> tuple[Member | None, Member]:
        """The member as it was (None for a new one), and with what the heartbeat says of it."""
        member_id, instance_id = heartbeat.member_id, heartbeat.instance_id
        if heartbeat.epoch == JOIN:
            before = self._joining(heartbeat)
        else:
            before = self.state.known(member_id, instance_id)
            consumer_member.check_epoch(before, heartbeat.epoch, heartbeat.owned)
        member = before or Member(member_id=member_id, instance_id=instance_id)
        return before, replace(
            member,
            rack=member.rack if heartbeat.rack is None else heartbeat.rack,
            client_id=heartbeat.client_id,
            client_host=heartbeat.client_host,
            rebalance_timeout_ms=(
                member.rebalance_timeout_ms
                if heartbeat.rebalance_timeout_ms == UNCHANGED_MS
                else heartbeat.rebalance_timeout_ms
            ),
            topics=member.topics if heartbeat.topics is None else heartbeat.topics,
            pattern=member.pattern if heartbeat.pattern is None else self._groups.pattern_of(heartbeat),
            assignor=member.assignor if heartbeat.assignor is None else heartbeat.assignor,
            classic=None,
        )

    def _joining(self, heartbeat: Heartbeat) -> Member | None:
        """The joining member, if the group knows it: the same process again, or the former one of its instance id."""
        member_id, instance_id = heartbeat.member_id, heartbeat.instance_id
        before = self.state.find(member_id)
        if before is not None and before.instance_id == instance_id:
            return before
        if before is not None:
            raise UnknownMember(f"member id {member_id} belongs to another instance id; join with another member id")
        known = None if instance_id is None else self.state.instance(instance_id)
        if known is None or instance_id is None:
            self.check_room()
            return None
        if known.classic is None:
            taken = self.state.replace_static(instance_id, member_id)
        else:
            taken = self.state.take_over_static(instance_id, member_id)
        # Whatever fails from here on, a newcomer that is not heard of again goes.
        self._taken_over(known, taken, self._config.consumer_session_timeout_ms)
        return taken

    def take_over_static(self, before: Member, member_id: str, session_timeout_ms: int) -> Member:
        """A classic member takes the place of the one before with its instance id, gone or not (KIP-345)."""
        assert before.instance_id is not None
        member = self.state.take_over_static(before.instance_id, member_id)
        self._taken_over(before, member, session_timeout_ms)
        return member

    def _taken_over(self, before: Member, member: Member, session_timeout_ms: int) -> None:
        with self._coordinator.memory.converting():
            self._take(_cost_bytes(member) - _cost_bytes(before))
        self.timers.forget(before.member_id)
        self.timers.touch(member.member_id, session_timeout_ms)

    def continue_with(self, members: list[Member]) -> None:
        """The members of a classic group, as they are. Raises CoordinatorNotAvailable."""
        self.look_at_topics()
        self._take(sum(_cost_bytes(member) for member in members))
        self.state.continue_with(members)
        for member in members:
            assert member.classic is not None
            self.timers.touch(member.member_id, member.classic.session_timeout_ms)
        self.note()

    def restore(self, members: list[Member], *, assignor: str, topics_hash: str) -> None:
        """An empty group goes on with the members of its coordinator of before, in their epochs, with what they have.
        Their sessions begin now."""
        clock = self._coordinator.context.clock
        known_topics, matches = self._groups.topics_of({member.pattern for member in members if member.pattern})
        self._topics_version = (self._coordinator.topics.version, self._groups.shown_version)
        self._restored_epoch = self.state.epoch
        self.state.restore(
            members, assignor=assignor, topics_hash=topics_hash, known_topics=known_topics, matches=matches
        )
        self._counted_partitions = self.state.count_partitions(with_member=members[0])
        with self._coordinator.memory.converting():
            self._take(sum(map(_cost_bytes, members)) + self._counted_partitions * _PARTITION_BYTES)
        session_timeout_ms = self._config.consumer_session_timeout_ms
        for member in members:
            self.timers.touch(
                member.member_id, session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
            )
        self._untold = {member.member_id for member in members}
        # Nobody is thrown out for silence before that: of whom a later epoch comes, this coordinator has not heard.
        self._restored_until_ms = clock.monotonic_ms() + session_timeout_ms
        self._noted = (self._restored_epoch, False, True)
        self.note(has_changed=False)

    def _check_restored(self, heartbeat: Heartbeat) -> None:
        """Raises UnknownMember when the heartbeat shows that the group went on after it was stored: partitions may have
        other owners since, so that all members have to give up theirs. Nobody gets any before they all have.

        Who says so may be a member that joined after that, so it needs not be known here. Whoever may send heartbeats
        can claim it, and could as well have each member leave by its id, as in Kafka.
        """
        if self._restored_epoch is None:
            return
        clock = self._coordinator.context.clock
        member = self.state.find(heartbeat.member_id)
        if clock.monotonic_ms() > self._restored_until_ms:
            self._restored_epoch = None
        elif heartbeat.epoch > self._restored_epoch and (member is None or heartbeat.epoch > member.epoch):
            log.info("group %s: a member knows of epoch %d, so all join anew", self._group_id, heartbeat.epoch)
            self._restored_epoch = None
            self.remove(*(member.member_id for member in self.state))
            self._next_target_ms = clock.monotonic_ms() + self._config.consumer_heartbeat_interval_ms + MARGIN_MS
            raise UnknownMember(f"group {self._group_id} has a new coordinator; join again with epoch 0")

    def check_room(self) -> None:
        """Raises GroupFull."""
        most = self._coordinator.context.settings.groups.group_consumer_max_size
        if len(self.state) >= most:
            raise GroupFull(
                f"group {self._group_id} has {most} members (group.consumer.max.size); start fewer, or raise it"
            )

    def _leave(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        member = self.state.known(heartbeat.member_id, heartbeat.instance_id)
        if heartbeat.epoch == LEAVE:
            self.remove(member.member_id)
        else:
            self.state.leave_for_a_while(member)
            self.timers.met(member.member_id)
            self.note()
        return HeartbeatAnswer(member_id=member.member_id, epoch=heartbeat.epoch, heartbeat_interval_ms=0)

    # What members of both protocols do

    def subscribe(self, member: Member) -> None:
        """Puts a new or changed member, and makes another target if it needs one. The caller has `note` called when it
        has reconciled it. Raises CoordinatorNotAvailable."""
        before = self.state.find(member.member_id)
        before_bytes = 0 if before is None else _cost_bytes(before)
        if before is None or (before.topics, before.pattern) != (member.topics, member.pattern):
            partitions = self.state.count_partitions(with_member=member)
            more = max(0, partitions - self._counted_partitions)
            self._take(_cost_bytes(member) - before_bytes + more * _PARTITION_BYTES)
            self._counted_partitions += more
        else:
            self._take(_cost_bytes(member) - before_bytes)
        self.state.subscribe(member)
        self.make_due_target()

    def remove(self, *member_ids: str) -> None:
        """They have left or are thrown out. With the last member of the new protocol the group turns classic again."""
        epoch = self.state.epoch
        for member_id in member_ids:
            self._take(-_cost_bytes(self.state.member(member_id)))
            self.state.remove(member_id)
            self.timers.forget(member_id)
            self._untold.discard(member_id)
        if self.state.all_classic:
            self._groups.turn_classic(self, generation=epoch)
            return
        if self.is_empty:
            self._take(-self._counted_partitions * _PARTITION_BYTES)
            self._counted_partitions = 0
        self.make_due_target()
        self.note()

    def note(self, *, has_changed: bool = True) -> None:
        """Lets SQL know of a new epoch, whether there are members, and of all of them while the group is stable.

        On its way to that, another coordinator could only guess who still uses what, so that all members join anew.
        """
        if not has_changed and self.state.epoch == self._noted[0]:
            return
        is_stable = self.state.is_settled
        noted = (self.state.epoch, self.is_empty, is_stable)
        if noted == self._noted and not is_stable:
            return
        self._noted = noted
        self._coordinator.offsets.note_group(
            self._group_id,
            kind=self.kind,
            protocol_type=PROTOCOL_TYPE,
            generation=self.state.epoch,
            is_empty=self.is_empty,
            members=stored_members.of_consumer(self._group_id, self.state) if is_stable else None,
        )

    def look_at_topics(self) -> None:
        """Takes notice of topics that were created, deleted or given more partitions since the last request."""
        version = (self._coordinator.topics.version, self._groups.shown_version)
        if version != self._topics_version:
            self._topics_version = version
            self._refresh_topics()

    def _refresh_topics(self) -> None:
        known_topics, matches = self._groups.topics_of(self.state.patterns)
        self.state.look_at_topics(known_topics, matches)

    def make_due_target(self) -> None:
        """Makes the target that is due. When the last one took long, it waits until more has changed."""
        if self.state.epoch == self.state.target_epoch:
            return
        if self.state.patterns:
            self._refresh_topics()
        now_ms = self._coordinator.context.clock.monotonic_ms()
        if now_ms >= self._next_target_ms:
            self._make_target()
        elif not self._late_target.is_set:
            self._late_target.set(self._next_target_ms - now_ms)

    def _make_late_target(self) -> None:
        self._make_target()
        self.note()

    def _make_target(self) -> None:
        clock = self._coordinator.context.clock
        before_ms = clock.worked_ms()
        self.state.retarget()
        took_ms = clock.worked_ms() - before_ms
        if took_ms > QUICK_TARGET_MS:
            self._next_target_ms = clock.monotonic_ms() + PAUSE_PER_TARGET * took_ms
        log.debug("group %s has a target for epoch %d", self._group_id, self.state.epoch)

    def _take(self, size_bytes: int) -> None:
        self._memory.take(size_bytes)
        self._taken_bytes += size_bytes

    # Time-outs

    def _watch(self, member: Member) -> None:
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.timers.expect(member.member_id, member.epoch, member.rebalance_timeout_ms)
        else:
            self.timers.met(member.member_id)

    def _throw_out(self, member_id: str, reason: str) -> None:
        self._coordinator.context.counters.group_members_expired += 1
        member = self.state.member(member_id)
        client = (member.client_id, member.client_host)
        log.info("group %s: member %s (client %s at %s) %s and has left", self._group_id, member_id, *client, reason)
        self.remove(member_id)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._groups.closed(self)
        self._late_target.end()
        self.timers.end()
        self._memory.take(-self._taken_bytes)


def _cost_bytes(member: Member) -> int:
    ids = len(member.member_id) + len(member.instance_id or "") + len(member.rack or "")
    names = len("".join(member.topics)) + _NAME_BYTES * len(member.topics)
    offered = member.classic.protocols if member.classic is not None else ()
    protocols = sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in offered)
    return MEMBER_BYTES + ids + names + len(member.pattern.text) + protocols
