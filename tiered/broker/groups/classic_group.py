"""One classic group: its members, its state, and the waits in which it gathers them.

Owns all of that. What a request or a time-out means in which state is decided by `rules.group_state`; here it
is done. Must never await anything: every change happens in one go, and answers are futures.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from tiered.broker.groups.classic_member import ClassicMember, is_waiting
from tiered.broker.groups.classic_roster import Roster, wanted_topics
from tiered.broker.groups.memory import GROUP_BYTES
from tiered.broker.groups.timer import Deadline
from tiered.broker.groups.values import (
    GroupDescription,
    GroupKind,
    GroupSummary,
    JoinedMember,
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
)
from tiered.rules import group_state
from tiered.rules.group_state import GroupEvent, GroupState, JoinAction, ReturnAction, SyncAction
from tiered.runtime import new_uuid

if TYPE_CHECKING:
    from tiered.broker.groups.coordinator import GroupCoordinator

log = logging.getLogger(__name__)

FIRST_GENERATION = 0
# Clients choose their rebalance time-outs, 0 as well; a wait that is repeated must not become a busy loop.
SHORTEST_REPEATED_WAIT_MS = 1_000


class ClassicGroup:
    """Implements `group.Group`. Made empty; its generation goes on above the one that SQL remembers."""

    def __init__(
        self,
        coordinator: "GroupCoordinator",
        group_id: str,
        *,
        generation: int = FIRST_GENERATION,
        protocol_type: str = "",
    ) -> None:
        """Raises CoordinatorNotAvailable when groups take all the memory they may."""
        self._coordinator = coordinator
        self._memory = coordinator.memory
        self._memory.take(GROUP_BYTES)
        self._group_id = group_id
        self._generation = max(FIRST_GENERATION, generation)
        self._state = GroupState.EMPTY
        self._roster = Roster(group_id, self._memory, protocol_type=protocol_type)
        self._protocol_name = ""
        self._not_joined: set[str] = set()
        """Whom the rebalance in preparation waits for."""
        self._not_synced: set[str] = set()
        """Who has the generation, and has not asked for its assignment."""
        self._join_wait = Deadline(self._join_wait_over)
        self._sync_wait = Deadline(self._sync_wait_over)
        self._is_first_wait = False
        """The rebalance began with an empty group: more members are expected, nobody is waited for."""
        self._has_grown = False
        self._first_wait_left_ms = 0.0

    # What it is

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def kind(self) -> GroupKind:
        return GroupKind.CLASSIC

    @property
    def state(self) -> GroupState:
        return self._state

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def protocol_type(self) -> str:
        return self._roster.protocol_type

    @property
    def protocol_name(self) -> str:
        """Empty before the first generation, and while there are no members."""
        return self._protocol_name

    @property
    def members(self) -> Mapping[str, ClassicMember]:
        return MappingProxyType(self._roster.members)

    @property
    def is_empty(self) -> bool:
        return self._state is GroupState.EMPTY and not self._roster.pending

    @property
    def member_count(self) -> int:
        return len(self._roster.members)

    def summary(self) -> GroupSummary:
        return GroupSummary(
            group_id=self._group_id,
            kind=self.kind,
            protocol_type=self._roster.protocol_type,
            state=self._state.value,
            member_count=len(self._roster.members),
        )

    def describe(self) -> GroupDescription:
        """Metadata and assignments are shown while they are valid: in a stable group."""
        protocol_name = self._protocol_name if self._state is GroupState.STABLE else ""
        return GroupDescription(
            group_id=self._group_id,
            kind=self.kind,
            protocol_type=self._roster.protocol_type,
            protocol_name=protocol_name,
            state=self._state.value,
            generation=self._generation,
            members=tuple(member.describe(protocol_name) for member in self._roster.members.values()),
        )

    def is_subscribed_to(self, topic: str) -> bool:
        topics = wanted_topics(self._roster.members.values())
        return topics is None or topic in topics

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        if generation < 0 and (self._state is GroupState.EMPTY or (not member_id and instance_id is None)):
            group_state.on_foreign_commit(self._state)
            return
        member = self._roster.known(member_id, instance_id)
        self._check_generation(generation)
        group_state.on_commit(self._state)
        member.touch()

    def close(self, error: TieredError | None = None) -> None:
        """Whoever waits gets `error`, or NotCoordinator. Nothing can be asked of the group afterwards."""
        if self._state is GroupState.DEAD:
            return
        self._become(GroupEvent.FORGOTTEN)
        error = error or NotCoordinator(f"group {self._group_id} is not coordinated here; find its coordinator again")
        self._join_wait.clear()
        self._sync_wait.clear()
        self._roster.clear(error)
        self._not_joined.clear()
        self._not_synced.clear()
        self._memory.take(-GROUP_BYTES)

    def continue_with(self, members: Sequence[JoinRequest]) -> None:
        """An empty group goes on with the members of a KIP-848 group: they keep what they have, and are told to join
        again with their next heartbeats. Raises CoordinatorNotAvailable."""
        for request in members:
            member = self._roster.add(request.member_id, request, self._expired)
            member.is_new = False
            member.touch()
        self._protocol_name = self._roster.next_protocol()
        self._become(GroupEvent.MEMBER_JOINED)
        self._begin_rebalance(GroupState.STABLE, "it has turned classic")

    # JoinGroup

    def join(self, request: JoinRequest) -> "JoinResult | asyncio.Future[JoinResult]":
        """The answer, now or later. Raises GroupFull, InconsistentProtocol, MemberIdRequired, UnknownMember,
        FencedInstance, CoordinatorNotAvailable. Cancelling the future is how a lost connection is told.
        """
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
            return self._add(request.member_id, request)
        member_id = _new_member_id(request.instance_id or request.client_id)
        if request.requires_known_member_id and request.instance_id is None:
            roster.add_pending(member_id, request.session_timeout_ms, self._pending_expired)
            raise MemberIdRequired("join again with the member id that you were given", member_id=member_id)
        return self._add(member_id, request)

    def _make_room(self, request: JoinRequest) -> None:
        """Raises GroupFull; a member that is one too many has to go (the limit was lowered)."""
        member = self._roster.members.get(request.member_id)
        most = self._coordinator.broker.settings.group_max_size
        if group_state.has_room(
            self._state,
            is_member=member is not None,
            is_waiting=member is not None and member.has_joined,
            members=len(self._roster.members),
            waiting=len(self._roster.members) - len(self._not_joined),
            most=most,
        ):
            return
        error = GroupFull(f"group {self._group_id} has {most} members (group.max.size); start fewer, or raise it")
        if request.member_id in self._roster.pending:
            self._pending_expired(request.member_id)
        if member is not None:
            self._drop(member, error)
            self._changed(GroupEvent.MEMBER_REMOVED, f"{request.member_id} has no room")
        raise error

    def _add(self, member_id: str, request: JoinRequest) -> "asyncio.Future[JoinResult]":
        member = self._roster.add(member_id, request, self._expired)
        self._has_grown = True
        return self._await_rebalance(member, f"{member_id} joined")

    def _rejoin(self, member: ClassicMember, request: JoinRequest) -> "JoinResult | asyncio.Future[JoinResult]":
        action = group_state.on_rejoin(
            self._state,
            is_leader=member.member_id == self._roster.leader,
            has_changed=member.protocols != request.protocols,
        )
        match action:
            case JoinAction.UNKNOWN:
                raise self._roster.unknown(member.member_id)
            case JoinAction.REPEAT:
                self._roster.update(member, request)
                member.touch()
                return self._join_result(member)
            case JoinAction.REBALANCE:
                self._roster.update(member, request)
                return self._await_rebalance(member, f"{member.member_id} rejoined")

    def _replace(self, member: ClassicMember, request: JoinRequest) -> "JoinResult | asyncio.Future[JoinResult]":
        """The static member is back as another process: it gets another id, the old process is fenced."""
        roster = self._roster
        old_id, old_leader, old_topics = member.member_id, roster.leader, wanted_topics([member])
        roster.update(member, request)
        member.refuse(FencedInstance(f"another process took over the instance id {member.instance_id}; stop this one"))
        roster.rename(member, _new_member_id(member.instance_id or ""))
        for waited_for in (self._not_joined, self._not_synced):
            if old_id in waited_for:
                waited_for.remove(old_id)
                waited_for.add(member.member_id)
        has_other_topics = old_topics != wanted_topics([member])
        needs_assignment = has_other_topics or roster.next_protocol() != self._protocol_name
        match group_state.on_static_return(self._state, needs_assignment=needs_assignment):
            case ReturnAction.KEEP:
                member.touch()
                result = self._join_result(member, skip_assignment=request.supports_skipping_assignment)
                if not request.supports_skipping_assignment and old_leader is not None:
                    # An older client that finds itself the leader would assign, and a stable group ignores that.
                    return replace(result, leader=old_leader)
                return result
            case ReturnAction.REBALANCE | ReturnAction.WAIT:
                return self._await_rebalance(member, f"static member {member.instance_id} is back")

    def _await_rebalance(self, member: ClassicMember, reason: str) -> "asyncio.Future[JoinResult]":
        member.refuse(RebalanceInProgress("the member has joined anew; only its latest request is answered"))
        future = member.wait_for_join()
        self._not_joined.discard(member.member_id)
        self._changed(GroupEvent.MEMBER_JOINED, reason)
        return future

    def _join_result(self, member: ClassicMember, *, skip_assignment: bool = False) -> JoinResult:
        is_leader = member.member_id == self._roster.leader
        members: tuple[JoinedMember, ...] = ()
        if is_leader and (skip_assignment or self._state is GroupState.COMPLETING_REBALANCE):
            members = tuple(
                JoinedMember(
                    member_id=each.member_id,
                    instance_id=each.instance_id,
                    metadata=each.metadata(self._protocol_name),
                )
                for each in self._roster.members.values()
            )
        return JoinResult(
            generation=self._generation,
            protocol_type=self._roster.protocol_type,
            protocol_name=self._protocol_name,
            leader=self._roster.leader or "",
            member_id=member.member_id,
            members=members,
            skip_assignment=skip_assignment and is_leader,
        )

    # Rebalances

    def _become(self, event: GroupEvent) -> None:
        self._state = group_state.next_state(self._state, event)

    def _changed(self, event: GroupEvent, reason: str) -> None:
        """Begins a rebalance, or goes on with the one that has begun."""
        before = self._state
        self._become(event)
        if before is not GroupState.PREPARING_REBALANCE:
            self._begin_rebalance(before, reason)
        self._complete_if_all_joined()

    def _begin_rebalance(self, before: GroupState, reason: str) -> None:
        self._coordinator.broker.counters.group_rebalances += 1
        log.debug("group %s rebalances after generation %d: %s", self._group_id, self._generation, reason)
        for member in self._roster.members.values():
            if is_waiting(member.sync):
                member.touch()  # It was silent only because it waited for us.
            member.refuse_sync(RebalanceInProgress("the group is rebalancing; join again"))
        self._sync_wait.clear()
        self._not_synced.clear()
        self._not_joined = {member.member_id for member in self._roster.members.values() if not member.has_joined}
        timeout_ms = self._roster.rebalance_timeout_ms()
        self._is_first_wait = before is GroupState.EMPTY
        if self._is_first_wait:
            delay_ms = self._coordinator.broker.settings.group_initial_rebalance_delay_ms
            self._has_grown = False
            self._first_wait_left_ms = timeout_ms - delay_ms
            self._join_wait.set(delay_ms)
        else:
            self._join_wait.set(timeout_ms)

    def _complete_if_all_joined(self) -> None:
        if not self._is_first_wait and not self._not_joined and not self._roster.pending:
            self._complete_join()

    def _join_wait_over(self) -> None:
        if self._is_first_wait:
            delay_ms = self._coordinator.broker.settings.group_initial_rebalance_delay_ms
            more_ms = group_state.initial_delay_ms(
                delay_ms=delay_ms, left_ms=self._first_wait_left_ms, has_grown=self._has_grown
            )
            if more_ms is not None:
                self._has_grown = False
                self._first_wait_left_ms -= more_ms
                self._join_wait.set(more_ms)
                return
        self._complete_join()

    def _complete_join(self) -> None:
        """Everybody who is here gets the next generation; who is not, has left, unless it is static."""
        self._join_wait.clear()
        self._is_first_wait = False
        for member_id in list(self._not_joined):
            member = self._roster.members[member_id]
            if member.instance_id is None:
                self._drop(member, self._roster.unknown(member_id))
        joined = [member for member in self._roster.members.values() if member.has_joined]
        if self._roster.members and not joined:
            # Static members that have not come back: their sessions decide how long their partitions wait.
            self._join_wait.set(max(SHORTEST_REPEATED_WAIT_MS, self._roster.rebalance_timeout_ms()))
            return
        self._generation += 1
        if joined:
            self._begin_generation(joined)
        else:
            self._become(GroupEvent.NONE_JOINED)
            self._protocol_name = ""
        self._coordinator.offsets.note_generation(
            self._group_id,
            kind=self.kind,
            protocol_type=self._roster.protocol_type,
            generation=self._generation,
            is_empty=not joined,
        )

    def _begin_generation(self, joined: list[ClassicMember]) -> None:
        self._become(GroupEvent.ALL_JOINED)
        self._not_joined.clear()
        if self._roster.leader is None or not is_waiting(self._roster.members[self._roster.leader].join):
            self._roster.leader = next((each for each in joined if is_waiting(each.join)), joined[0]).member_id
        self._protocol_name = self._roster.next_protocol()
        self._not_synced = {member.member_id for member in joined}
        self._sync_wait.set(self._roster.rebalance_timeout_ms())
        for member in joined:
            member.is_new = False
            if member.answer_join(self._join_result(member)):
                member.touch()

    # SyncGroup and Heartbeat

    def sync(self, request: SyncRequest) -> "SyncResult | asyncio.Future[SyncResult]":
        """The answer, now or later. Raises UnknownMember, FencedInstance, IllegalGeneration, InconsistentProtocol,
        RebalanceInProgress, CoordinatorNotAvailable.
        """
        member = self._roster.known(request.member_id, request.instance_id)
        self._check_generation(request.generation)
        if request.protocol_type not in (None, self._roster.protocol_type) or request.protocol_name not in (
            None,
            self._protocol_name,
        ):
            raise InconsistentProtocol(f"group {self._group_id} runs {self._protocol_name!r}; join it again")
        action = group_state.on_sync(self._state)
        if action is SyncAction.WAIT and member.member_id == self._roster.leader:
            self._assign(request.assignments)
            action = SyncAction.ANSWER
        member.touch()
        self._not_synced.discard(member.member_id)
        if not self._not_synced:
            self._sync_wait.clear()
        if action is SyncAction.ANSWER:
            return self._sync_result(member)
        member.refuse_sync(RebalanceInProgress("the member has asked anew; only its latest request is answered"))
        return member.wait_for_sync()

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        self._roster.assign(assignments)
        self._become(GroupEvent.ASSIGNED)
        for member in self._roster.members.values():
            if is_waiting(member.sync):
                member.touch()
            member.answer_sync(self._sync_result(member))

    def _sync_result(self, member: ClassicMember) -> SyncResult:
        return SyncResult(
            protocol_type=self._roster.protocol_type, protocol_name=self._protocol_name, assignment=member.assignment
        )

    def _sync_wait_over(self) -> None:
        """Who has not asked for its assignment by now has gone: its partitions are nobody's."""
        for member_id in list(self._not_synced):
            self._drop(self._roster.members[member_id], self._roster.unknown(member_id))
        self._changed(GroupEvent.SYNC_EXPIRED, "members did not ask for their assignments")

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Raises UnknownMember, FencedInstance, IllegalGeneration, RebalanceInProgress, CoordinatorNotAvailable."""
        member = self._roster.known(member_id, instance_id)
        self._check_generation(generation)
        member.touch()
        group_state.on_heartbeat(self._state)

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
                answers.append(error)
        if has_left:
            self._changed(GroupEvent.MEMBER_REMOVED, "members left")
        return answers

    def _leave(self, leaving: LeavingMember) -> bool:
        """False for one that had been given an id, and was no member yet."""
        member_id = leaving.member_id
        if member_id in self._roster.pending:
            self._pending_expired(member_id)
            return False
        if not member_id and leaving.instance_id is not None:
            member = self._roster.static_member(leaving.instance_id)
            member_id = "" if member is None else member.member_id
        self._drop(self._roster.known(member_id, leaving.instance_id), self._roster.unknown(member_id))
        return True

    def _expired(self, member_id: str) -> None:
        member = self._roster.members[member_id]
        if member.is_heard_of and not member.is_new:
            member.touch()
            return
        self._coordinator.broker.counters.group_members_expired += 1
        log.info("group %s: %s was silent for its session time-out and has left", self._group_id, member_id)
        self._drop(member, self._roster.unknown(member_id))
        self._changed(GroupEvent.MEMBER_REMOVED, f"{member_id} was silent")

    def _pending_expired(self, member_id: str) -> None:
        self._roster.drop_pending(member_id)
        if self._state is GroupState.PREPARING_REBALANCE:
            self._complete_if_all_joined()

    def _drop(self, member: ClassicMember, error: TieredError) -> None:
        """What follows from it is the caller's business."""
        self._not_joined.discard(member.member_id)
        self._not_synced.discard(member.member_id)
        self._roster.drop(member, error)

    def _check_generation(self, generation: int) -> None:
        if generation != self._generation:
            raise IllegalGeneration(
                f"group {self._group_id} is at generation {self._generation}, not {generation}; join again"
            )


def _new_member_id(prefix: str) -> str:
    return f"{prefix}-{new_uuid()}"
