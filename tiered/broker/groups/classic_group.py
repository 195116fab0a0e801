"""One classic group: what members and administrators ask of it.

Owns the checks of each request, and which answer comes at once. Its state and its waits are those of
`classic_rebalance`, its lists those of `classic_roster`. Must never await anything: answers are futures.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tiered.broker.groups.classic_member import ClassicMember, new_member_id
from tiered.broker.groups.classic_rebalance import ClassicRebalance
from tiered.broker.groups.classic_roster import wanted_topics
from tiered.broker.groups.memory import GROUP_BYTES
from tiered.broker.groups.surroundings import Surroundings
from tiered.broker.groups.values import (
    GroupDescription,
    GroupKind,
    GroupSummary,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from tiered.errors import (
    FencedInstance,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    TieredError,
    UnknownMember,
)
from tiered.rules.groups import group_state
from tiered.rules.groups.group_state import GroupEvent, GroupState, JoinAction, ReturnAction, SyncAction

log = logging.getLogger(__name__)

FIRST_GENERATION = 0


class ClassicGroup:
    """Implements `group.Group`. Made empty; its generation goes on above the one that SQL remembers.

    SQL may be a moment behind (it is told after the members): a restored group finds that out when a member knows of a
    later generation, and then lets all members join anew.
    """

    def __init__(
        self,
        coordinator: Surroundings,
        group_id: str,
        *,
        generation: int = FIRST_GENERATION,
        protocol_type: str = "",
    ) -> None:
        """Raises CoordinatorNotAvailable when groups take all the memory they may."""
        self._coordinator = coordinator
        self._memory = coordinator.memory.purse()
        self._memory.take(GROUP_BYTES + len(group_id))
        self._group_id = group_id
        self._rebalance = ClassicRebalance(
            coordinator, group_id, generation=max(FIRST_GENERATION, generation), protocol_type=protocol_type
        )
        self._roster = self._rebalance.roster
        self._restored_generation: int | None = None

    # What it is

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def kind(self) -> GroupKind:
        return GroupKind.CLASSIC

    @property
    def state(self) -> GroupState:
        return self._rebalance.state

    @property
    def generation(self) -> int:
        return self._rebalance.generation

    @property
    def protocol_type(self) -> str:
        return self._roster.protocol_type

    @property
    def protocol_name(self) -> str:
        """Empty before the first generation, and while there are no members."""
        return self._rebalance.protocol_name

    @property
    def members(self) -> Mapping[str, ClassicMember]:
        return MappingProxyType(self._roster.members)

    @property
    def is_empty(self) -> bool:
        return self._rebalance.state is GroupState.EMPTY and not self._roster.pending

    @property
    def member_count(self) -> int:
        return len(self._roster.members)

    def summary(self) -> GroupSummary:
        return GroupSummary(
            group_id=self._group_id,
            kind=self.kind,
            protocol_type=self._roster.protocol_type,
            state=self._rebalance.state.value,
            member_count=len(self._roster.members),
        )

    def describe(self) -> GroupDescription:
        """Metadata and assignments are shown while they are valid: in a stable group."""
        protocol_name = self._rebalance.protocol_name if self._rebalance.state is GroupState.STABLE else ""
        return GroupDescription(
            group_id=self._group_id,
            kind=self.kind,
            protocol_type=self._roster.protocol_type,
            protocol_name=protocol_name,
            state=self._rebalance.state.value,
            generation=self._rebalance.generation,
            members=tuple(member.describe(protocol_name) for member in self._roster.members.values()),
        )

    def is_subscribed_to(self, topic: str) -> bool | None:
        topics = wanted_topics(self._roster.members.values())
        return None if topics is None else topic in topics

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool = False
    ) -> None:
        state = self._rebalance.state
        if generation < 0 and (state is GroupState.EMPTY or (not member_id and instance_id is None)):
            if is_transactional:
                group_state.on_transactional_commit(state)
            else:
                group_state.on_foreign_commit(state)
            return
        member = self._roster.known(member_id, instance_id)
        self._check_generation(generation)
        if is_transactional:
            group_state.on_transactional_commit(state)
        else:
            group_state.on_commit(state)
            member.touch()

    def close(self, error: TieredError | None = None) -> None:
        """Waiting members get `error`, or NotCoordinator. The group answers nothing afterwards."""
        if self._rebalance.state is GroupState.DEAD:
            return
        self._rebalance.close(
            error or NotCoordinator(f"group {self._group_id} is not coordinated here; find its coordinator again")
        )
        self._memory.take(-GROUP_BYTES - len(self._group_id))

    def continue_with(self, members: Sequence[JoinRequest]) -> None:
        """An empty group goes on with the members of a KIP-848 group: they keep what they have, and are told to join
        again with their next heartbeats. Raises CoordinatorNotAvailable."""
        self._rebalance.continue_with(members)

    def restore(self, members: Iterable[tuple[JoinRequest, bytes]], *, leader: str, protocol_name: str) -> None:
        """An empty group goes on with the members, and their assignments, of its coordinator of before. Their sessions
        begin now."""
        with self._memory.converting():
            self._rebalance.restore(members, leader=leader, protocol_name=protocol_name)
        self._restored_generation = self.generation

    def note(self) -> None:
        """Lets SQL know how the group is."""
        self._rebalance.note()

    # JoinGroup

    def join(self, request: JoinRequest) -> "JoinResult | asyncio.Future[JoinResult]":
        """The answer, now or later. Raises GroupFull, InconsistentProtocol, MemberIdRequired, UnknownMember,
        FencedInstance, CoordinatorNotAvailable. Cancelling the future is how a lost connection is told."""
        self._make_room(request)
        roster = self._roster
        if request.member_id and not (request.member_id in roster.pending and request.instance_id is None):
            member = roster.known(request.member_id, request.instance_id)
            roster.check_protocols(request, member)
            return self._rejoin(member, request)
        replaced = roster.static_member(request.instance_id) if request.instance_id is not None else None
        roster.check_protocols(request, replaced)
        if replaced is not None:
            return self._replace(replaced, request)
        if request.member_id:
            return self._rebalance.add(request.member_id, request)
        member_id = new_member_id(request.instance_id or request.client_id)
        if request.requires_known_member_id and request.instance_id is None:
            roster.add_pending(member_id, request.session_timeout_ms, self._rebalance.pending_expired)
            raise MemberIdRequired("join again with the member id that you were given", member_id=member_id)
        return self._rebalance.add(member_id, request)

    def _make_room(self, request: JoinRequest) -> None:
        """Raises GroupFull; a member that is one too many has to go (the limit was lowered)."""
        member = self._roster.members.get(request.member_id)
        most = self._coordinator.context.settings.groups.group_max_size
        if group_state.has_room(
            self._rebalance.state,
            is_member=member is not None,
            is_waiting=member is not None and member.has_joined,
            members=len(self._roster.members),
            waiting=self._rebalance.waiting_count,
            most=most,
        ):
            return
        error = GroupFull(f"group {self._group_id} has {most} members (group.max.size); start fewer, or raise it")
        if request.member_id in self._roster.pending:
            self._rebalance.pending_expired(request.member_id)
        if member is not None:
            self._rebalance.drop(member, error)
            self._rebalance.changed(GroupEvent.MEMBER_REMOVED, f"{request.member_id} has no room")
        raise error

    def _rejoin(self, member: ClassicMember, request: JoinRequest) -> "JoinResult | asyncio.Future[JoinResult]":
        action = group_state.on_rejoin(
            self._rebalance.state,
            is_leader=member.member_id == self._roster.leader,
            has_changed=member.protocols != request.protocols,
        )
        match action:
            case JoinAction.UNKNOWN:
                raise self._roster.unknown(member.member_id)
            case JoinAction.REPEAT:
                self._roster.update(member, request)
                if self._rebalance.state is GroupState.STABLE:
                    self._rebalance.note()
                member.touch()
                return self._rebalance.join_result(member)
            case JoinAction.REBALANCE:
                self._roster.update(member, request)
                return self._rebalance.await_rebalance(member, f"{member.member_id} rejoined")

    def _replace(self, member: ClassicMember, request: JoinRequest) -> "JoinResult | asyncio.Future[JoinResult]":
        """The static member is back as another process: it gets another id, the old process is fenced."""
        roster = self._roster
        old_id, old_leader, old_topics = member.member_id, roster.leader, wanted_topics([member])
        roster.update(member, request)
        member.refuse(FencedInstance(f"another process took over the instance id {member.instance_id}; stop this one"))
        roster.rename(member, new_member_id(member.instance_id or ""))
        self._rebalance.renamed(old_id, member.member_id)
        has_other_topics = old_topics != wanted_topics([member])
        needs_assignment = has_other_topics or roster.next_protocol() != self._rebalance.protocol_name
        match group_state.on_static_return(self._rebalance.state, needs_assignment=needs_assignment):
            case ReturnAction.KEEP:
                member.touch()
                self._rebalance.note()
                result = self._rebalance.join_result(member, skip_assignment=request.supports_skipping_assignment)
                if not request.supports_skipping_assignment and old_leader is not None:
                    # An older client that finds itself the leader would assign, and a stable group ignores that.
                    return replace(result, leader=old_leader)
                return result
            case ReturnAction.REBALANCE | ReturnAction.WAIT:
                return self._rebalance.await_rebalance(member, f"static member {member.instance_id} is back")

    # SyncGroup and Heartbeat

    def sync(self, request: SyncRequest) -> "SyncResult | asyncio.Future[SyncResult]":
        """The answer, now or later. Raises UnknownMember, FencedInstance, IllegalGeneration, InconsistentProtocol,
        RebalanceInProgress, CoordinatorNotAvailable."""
        member = self._roster.known(request.member_id, request.instance_id)
        self._check_generation(request.generation)
        if request.protocol_type not in (None, self._roster.protocol_type) or request.protocol_name not in (
            None,
            self._rebalance.protocol_name,
        ):
            raise InconsistentProtocol(f"group {self._group_id} runs {self._rebalance.protocol_name!r}; join it again")
        action = group_state.on_sync(self._rebalance.state)
        if action is SyncAction.WAIT and member.member_id == self._roster.leader:
            self._rebalance.assign(request.assignments)
            action = SyncAction.ANSWER
        member.touch()
        self._rebalance.synced(member.member_id)
        if action is SyncAction.ANSWER:
            return self._rebalance.sync_result(member)
        member.refuse_sync(RebalanceInProgress("the member has asked anew; only its latest request is answered"))
        return member.wait_for_sync()

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Raises UnknownMember, FencedInstance, IllegalGeneration, RebalanceInProgress, CoordinatorNotAvailable."""
        member = self._roster.known(member_id, instance_id)
        self._check_generation(generation)
        member.touch()
        group_state.on_heartbeat(self._rebalance.state)

    # Leaving

    def leave(self, leaving: Sequence[LeavingMember]) -> list[TieredError | None]:
        """For each None, or why it could not leave: UnknownMember, FencedInstance. One rebalance for all."""
        answers: list[TieredError | None] = []
        has_left = False
        for each in leaving:
            try:
                has_left = self._leave(each) or has_left
                answers.append(None)
            except TieredError as error:
                answers.append(error.without_frames())
        if has_left:
            self._rebalance.changed(GroupEvent.MEMBER_REMOVED, "members left")
        else:
            self._rebalance.go_on()
        return answers

    def _leave(self, leaving: LeavingMember) -> bool:
        """False for one that had been given an id, and was no member yet."""
        member_id = leaving.member_id
        if member_id in self._roster.pending:
            self._roster.drop_pending(member_id)
            return False
        if not member_id and leaving.instance_id is not None:
            member = self._roster.static_member(leaving.instance_id)
            member_id = "" if member is None else member.member_id
        self._rebalance.drop(self._roster.known(member_id, leaving.instance_id), self._roster.unknown(member_id))
        return True

    def _check_generation(self, generation: int) -> None:
        if generation > self._rebalance.generation == self._restored_generation:
            log.info("group %s: a member knows of generation %d, so all join anew", self._group_id, generation)
            for member in list(self._roster.members.values()):
                self._rebalance.drop(member, self._roster.unknown(member.member_id))
            self._rebalance.changed(GroupEvent.MEMBER_REMOVED, "what was stored was not the latest")
            raise UnknownMember(f"group {self._group_id} has a new coordinator; join again")
        if generation != self._rebalance.generation:
            raise IllegalGeneration(
                f"group {self._group_id} is at generation {self._rebalance.generation}, not {generation}; join again"
            )
