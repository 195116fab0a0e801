"""The group coordinator of one broker: every group that it has in memory, and the ways to ask for one.

Owns the registry of groups, their loading and their forgetting, and what happens to them when their slot gets
another holder. Must never decide anything about members: the groups do. A group is made by its first request. It is
loaded by that too, or soon after its slot came: SQL remembers the members of a stable group, which go on with fresh
sessions. Of any other it has the generation and the offsets alone, and all members join anew.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tiered.account import OwnersDays, OwnersTurns
from tiered.broker.context import BrokerContext
from tiered.broker.groups import stored_members
from tiered.broker.groups.checkpoints import GroupCheckpointWriter
from tiered.broker.groups.classic import ClassicGroups
from tiered.broker.groups.classic_group import ClassicGroup
from tiered.broker.groups.commit_writer import OffsetCommits
from tiered.broker.groups.committed_offsets import CommittedOffsets
from tiered.broker.groups.consumer import ConsumerGroups
from tiered.broker.groups.group import Group
from tiered.broker.groups.loading import SlotLoading
from tiered.broker.groups.memory import GroupMemory
from tiered.broker.groups.offset_expiry import OffsetExpiry
from tiered.broker.groups.offset_memory import OffsetMemory
from tiered.broker.groups.offsets_topic import TICK_INTERVAL_MS, OffsetsTopic
from tiered.broker.groups.slot_balance import SlotBalance
from tiered.broker.groups.slots import HeldSlots
from tiered.broker.groups.stored_members import KeptGroup
from tiered.broker.groups.values import MAX_GROUP_ID_BYTES, Fence, GroupDescription, GroupKind, GroupSummary
from tiered.broker.host.resource_configs import ResourceConfigs
from tiered.broker.partitions.topics import Topics
from tiered.broker.security.access import Access
from tiered.broker.view.image import ClusterImage
from tiered.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    GroupNotEmpty,
    GroupNotFound,
    IllegalGeneration,
    InvalidGroup,
    NotCoordinator,
)
from tiered.formats.group_members import KeptClassicGroup, KeptConsumerGroup
from tiered.ids import InSyncReplica
from tiered.meta import coordinator_slots
from tiered.meta.brokers import BrokerRow
from tiered.meta.coordinator_slots import SlotRow
from tiered.meta.groups import GroupRow
from tiered.rules.groups.coordinator_slot import coordinator_slot
from tiered.rules.groups.group_state import GroupState
from tiered.rules.replication.replica_set import NO_LEADER
from tiered.rules.security.authorization import NameScope
from tiered.runtime import Worker, every, in_turns

log = logging.getLogger(__name__)

NO_GENERATION = -1
# Groups without members are looked for so often, and dropped from memory when they were found so twice.
FORGET_INTERVAL_MS = 60_000


@dataclass(slots=True)
class _LoadingState:
    """A group that is being read, and the requests that wait for it."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    asking: int = 0


class GroupCoordinator:
    """The facade for both doors: `classic` and `consumer` take members' requests, `offsets` keeps positions."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        topics: Topics,
        image: ClusterImage,
        access: Access,
        resource_configs: ResourceConfigs,
        group_checkpoints: GroupCheckpointWriter,
        slots: HeldSlots,
    ) -> None:
        """Makes its parts as well; none is started yet."""
        self.context = context
        self.topics = topics
        self._image = image
        self.access = access
        self.resource_configs = resource_configs
        self._checkpoints = group_checkpoints
        self.memory = GroupMemory(lambda: context.settings.groups.tiered_group_memory_bytes)
        self.slots = slots
        self._balance = SlotBalance(context=context, image=image)
        self._loading_slots = SlotLoading(context=context, slots=slots, load=self.load)
        self.offsets_topic = OffsetsTopic(context=context, topics=topics, slots=slots, memory=self.memory)
        memory = OffsetMemory(context.clock, self.slot)
        commits = OffsetCommits(
            context=context,
            memory=memory,
            slots=slots,
            group_checkpoints=group_checkpoints,
            offsets_topic=self.offsets_topic,
            slots_learned=self.slots_changed,
        )
        expiry = OffsetExpiry(
            context=context,
            topics=topics,
            slots=slots,
            commits=commits,
            find_group=self.find,
            forget_group=self.forget,
        )
        self.offsets = CommittedOffsets(context=context, slots=slots, commits=commits, expiry=expiry, memory=memory)
        self.classic = ClassicGroups(self)
        self.consumer = ConsumerGroups(self)
        self._groups: dict[str, Group] = {}
        self._loading: dict[str, _LoadingState] = {}
        self._idle: set[str] = set()
        self._list_turns = OwnersTurns()
        self._new_groups = OwnersDays(
            "groups",
            "tiered.max.new.groups.per.day",
            lambda: context.settings.groups.tiered_max_new_groups_per_day,
            context.clock,
        )
        self._worker = Worker()
        self._serving = False
        self.on_slots_changed: Callable[[Collection[int], Collection[int]], None] = lambda _lost, _gained: None
        """Told which slots were lost and gained, after the groups: transactional ids have the same slots."""

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Takes the slots that nobody alive holds. Members' requests are refused until it returns.

        Raises MetadataUnavailable, and InvalidConfig when other brokers have another number of slots.
        """
        moved = await self.context.database.run(
            lambda conn: coordinator_slots.take_unheld(
                conn,
                broker_id=self.context.broker_id,
                broker_epoch=self.context.state.broker_epoch,
                slot_count=self.context.settings.groups.offsets_topic_num_partitions,
                now_ms=self.context.clock.now_ms(),
            )
        )
        self.slots_changed(moved.rows)
        self.offsets.start(tasks)
        for work in (
            every(FORGET_INTERVAL_MS, self._forget_idle, name="forgetting groups"),
            every(TICK_INTERVAL_MS, self.offsets_topic.tick, name="reading offsets for readers"),
            self._balance.move_for_ever(),
            self._loading_slots.load_for_ever(),
        ):
            self._worker.start(tasks, work)
        self._serving = True

    def begin_stop(self) -> None:
        """Answers all waiting members. From here on members are sent to look for their coordinator again."""
        self._serving = False
        self._worker.cancel()
        for group in self._groups.values():
            group.close()
        self._groups.clear()
        self.offsets_topic.close()

    async def stop(self) -> None:
        """Writes what is due."""
        self.begin_stop()
        await self.offsets.stop()

    # Slots

    def slots_changed(self, rows: Iterable[SlotRow]) -> None:
        """Takes the holders of slots, as the feed or a transaction of this broker's says. Repeating it changes nothing.

        Groups of lost slots are closed: waiting members and commits get NotCoordinator. Groups of slots that came are
        loaded when they are asked for, and those with members one after the other.
        """
        before = self.slots.holders()
        lost, gained = self.slots.learn(
            rows, broker_id=self.context.broker_id, broker_epoch=self.context.state.broker_epoch
        )
        if gained:
            self.offsets.commits.slots_gained()  # First of all: from here on their epochs are known, and could be used.
        if lost:
            self._loading_slots.slots_lost(lost)
            self.offsets.commits.slots_lost(lost)
            self.offsets_topic.slots_lost(lost)
            for group_id, group in list(self._groups.items()):
                if self.slot(group_id) in lost:
                    del self._groups[group_id]
                    group.close()
        if gained:
            self._loading_slots.slots_gained(gained)
            self.consumer.slots_gained(gained)
            self._checkpoints.slots_gained(gained)
        if lost or gained:
            self.on_slots_changed(lost, gained)
            log.info(
                "this broker coordinates the groups and transactional ids of %d of %d slots now: %s, %s",
                *(len(self.slots.epochs), self.context.settings.groups.offsets_topic_num_partitions),
                *(_moved("came", "from", gained, before), _moved("went", "to", lost, self.slots.holders())),
            )

    def offsets_decided(self, slot: int) -> None:
        """The transaction coordinators' word that a transaction with offsets of this slot's groups has ended."""
        self._checkpoints.slots_changed([slot])
        self.offsets_topic.slots_changed([slot])

    async def balance_slots(self) -> None:
        """The controller's tick. Returns at once; slots that should move are moved by a task."""
        self._balance.look()

    def coordinator_elsewhere(self, group_id: str) -> BrokerRow | None:
        """The other broker that coordinates the group; None where it is this one.

        Raises CoordinatorNotAvailable while nobody in service does, or this broker starts or stops.
        """
        slot = self.slot(group_id)
        if slot in self.slots:
            if self._serving:
                return None
            raise CoordinatorNotAvailable("the broker is starting or stopping; ask again")
        holder = self._holder(slot)
        if holder is None or holder.broker_id == self.context.broker_id:
            raise CoordinatorNotAvailable(
                f"nobody in service holds slot {slot}, to which group {group_id} belongs; ask again"
            )
        return holder

    def slot_leader(self, slot: int) -> int:
        """The id of the broker in service that holds the slot, -1 while nobody does: who leads that partition of
        `__consumer_offsets`, as far as clients are told."""
        if slot in self.slots:
            return self.context.broker_id
        holder = self._holder(slot)
        return NO_LEADER if holder is None else holder.broker_id

    def _holder(self, slot: int) -> BrokerRow | None:
        row = self._image.slots.get(slot)
        if row is None or not self._image.is_current(InSyncReplica(row.broker_id, row.broker_epoch)):
            return None
        return self._image.brokers[row.broker_id]

    async def hand_over(self) -> int | None:
        """The number of the change that gave this broker's slots to the others in service; None where there are none.

        Waiting commits are written first. Members are answered here until the feed brings the change: then they get
        NotCoordinator, and FindCoordinator names the new one. Raises CoordinatorNotAvailable.
        """
        return (await self.offsets.commits.hand_over()).change_number

    # The registry, for the two kinds of group

    def is_ours(self, group_id: str) -> bool:
        """Whether this broker coordinates the group."""
        return self._serving and self.slot(group_id) in self.slots

    def slot(self, group_id: str) -> int:
        return coordinator_slot(group_id, self.context.settings.groups.offsets_topic_num_partitions)

    def check_ours(self, group_id: str) -> None:
        """Raises InvalidGroup for what no group can be called, NotCoordinator for what another broker coordinates."""
        if not group_id:
            raise InvalidGroup("the group id is empty; set group.id")
        if "\0" in group_id or len(group_id.encode("utf-8", "surrogatepass")) > MAX_GROUP_ID_BYTES:
            raise InvalidGroup(f"a group id has at most {MAX_GROUP_ID_BYTES} bytes of UTF-8, and none of them is 0")
        if not self.is_ours(group_id):
            raise NotCoordinator(f"group {group_id} is not coordinated here; find its coordinator again")

    def find(self, group_id: str) -> Group | None:
        """The group if it is in memory."""
        return self._groups.get(group_id)

    async def load(self, group_id: str) -> Group | None:
        """The group, read from SQL if it is not in memory; None when neither knows it.

        Requests that wait for it go on in their order, or of two commits the older might be stored last. Raises
        CoordinatorNotAvailable while SQL is away and the group is not in memory, NotCoordinator when another broker
        gets it or this one stops meanwhile.
        """
        loading = self._loading.get(group_id)
        if loading is None:
            group = self._groups.get(group_id)
            if group is not None:
                return group
            loading = self._loading[group_id] = _LoadingState()
        loading.asking += 1
        try:
            async with loading.turn:
                return self._groups.get(group_id) or await self._load(group_id)
        finally:
            loading.asking -= 1
            if not loading.asking:
                del self._loading[group_id]

    async def _load(self, group_id: str) -> Group | None:
        tenure = self.slots.tenure(self.slot(group_id))
        stored = await self.offsets.load_group(group_id)
        kept = None if stored is None else await stored_members.read(stored)
        patterns = stored_members.patterns(kept)
        async with self.consumer.knowing(patterns):
            self.check_ours(group_id)
            if self.slots.tenure(self.slot(group_id)) != tenure:
                raise CoordinatorLoading(f"group {group_id} was coordinated elsewhere for a moment; ask again")
            # A request that makes a new group does not wait for its turn here.
            group = self._groups.get(group_id)
            if group is not None or stored is None:
                return group
            with self.memory.restoring():
                return self.adopt(self._restored(stored, kept))

    def _restored(self, stored: GroupRow, kept: KeptGroup | None) -> Group:
        if stored.kind == GroupKind.CONSUMER:
            assert not isinstance(kept, KeptClassicGroup), "members are read by their group's kind"
            return self.consumer.restored(stored, kept)
        assert not isinstance(kept, KeptConsumerGroup), "members are read by their group's kind"
        return self.classic.restored(stored, kept)

    def is_loading(self, group_id: str) -> bool:
        """Whether the group may have members though it is not in memory: its slot has come just now."""
        return self._loading_slots.is_pending(self.slot(group_id))

    def adopt(self, group: Group) -> Group:
        """Puts a new group, or the conversion of an old one, in the registry."""
        self._groups[group.group_id] = group
        return group

    def count_new(self) -> None:
        """Before a group is made that nobody knew. Raises Throttled where its client has brought too many."""
        self._new_groups.take()

    def forget(self, group_id: str) -> None:
        """Drops an empty group from memory: its offsets expired, or it was deleted."""
        group = self._groups.get(group_id)
        if group is not None and group.is_empty:
            del self._groups[group_id]
            group.close()

    async def _forget_idle(self) -> None:
        """SQL remembers what is worth it of groups without members; here they only take memory."""
        empty = {group_id for group_id, group in self._groups.items() if group.is_empty}
        for group_id in empty & self._idle:
            self.forget(group_id)
        self._idle = empty - self._idle

    # What others ask

    def counts(self) -> Counter[tuple[GroupKind, str]]:
        """How many groups are in memory, by kind and state. For metrics."""
        return Counter((group.kind, group.summary().state) for group in self._groups.values())

    @property
    def member_count(self) -> int:
        """Members of all groups."""
        return sum(group.member_count for group in self._groups.values())

    def list_groups(self, scope: NameScope) -> AsyncIterator[GroupSummary]:
        """Every group of the scope that this broker coordinates, in memory or only stored; one list of one asker at a
        time.

        Raises CoordinatorNotAvailable, and Throttled where too many lists of the asker wait.
        """
        return self._list_turns.one(self._listed(scope))

    async def _listed(self, scope: NameScope) -> AsyncIterator[GroupSummary]:
        in_memory = set()
        async for group_id in in_turns(list(self._groups)):
            group = self._groups.get(group_id)
            if group is not None and scope.holds(group_id):
                in_memory.add(group_id)
                yield group.summary()
        async for stored in self.offsets.list_groups(scope):
            if stored.group_id not in in_memory:
                yield GroupSummary(
                    group_id=stored.group_id,
                    kind=GroupKind(stored.kind),
                    protocol_type=stored.protocol_type,
                    state=GroupState.EMPTY.value,
                    member_count=0,
                )

    async def existing(self, group_id: str) -> Group:
        """The group. Raises GroupNotFound, NotCoordinator, CoordinatorNotAvailable."""
        self.check_ours(group_id)
        group = await self.load(group_id)
        if group is None:
            raise GroupNotFound(f"no group has the id {group_id}; list the groups to see their ids")
        return group

    async def describe(self, group_id: str) -> GroupDescription:
        """Raises as `existing`."""
        return (await self.existing(group_id)).describe()

    async def delete_group(self, group_id: str) -> None:
        """Raises GroupNotEmpty, and as `existing`."""
        await self.existing(group_id)
        self._check_empty(group_id)
        # Members may join, and commit, before it is this group's turn: what they commit must not go.
        await self.offsets.delete_group(group_id, check=lambda: self._check_empty(group_id))
        self.forget(group_id)

    def _check_empty(self, group_id: str) -> None:
        group = self._groups.get(group_id)
        if group is not None and not group.is_empty:
            raise GroupNotEmpty(f"group {group_id} has members; stop them first")

    async def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        is_transactional: bool = False,
    ) -> Fence:
        """Permission to write the group's offsets, for a member of it or (generation -1) for anybody while it is
        empty. Raises what `Group.check_commit` raises, InvalidGroup, NotCoordinator, CoordinatorNotAvailable."""
        self.check_ours(group_id)
        group = await self.load(group_id)
        if group is None:
            if generation != NO_GENERATION:
                raise IllegalGeneration(f"group {group_id} is not known; join it again")
            # Offsets without members: a tool, or a consumer that assigns its partitions itself.
            self.count_new()
            group = self.adopt(ClassicGroup(self, group_id))
        group.check_commit(member_id, instance_id, generation, is_transactional=is_transactional)
        # In a KIP-848 group a commit is of its member's epoch, and other members' changes don't void it. A producer
        # that names no member commits beside whatever members do.
        is_bound = group.kind is GroupKind.CLASSIC and not (is_transactional and generation == NO_GENERATION)
        slot = self.slot(group_id)
        return Fence(
            group_id=group_id,
            slot=slot,
            tenure=self.slots.tenure(slot),
            generation=group.generation if is_bound else NO_GENERATION,
        )


def _moved(moved: str, preposition: str, slots: Collection[int], holders: Mapping[int, int]) -> str:
    if not slots:
        return f"none {moved} {preposition} another broker"
    brokers = sorted({holders[slot] for slot in slots if slot in holders})
    if not brokers:
        return f"{len(slots)} that no broker coordinated were {'taken' if moved == 'came' else 'given up'}"
    return f"{len(slots)} {moved} {preposition} {', '.join(f'broker {broker}' for broker in brokers)}"
