"""The rebalances of one classic group: its state, its generation, and the waits in which members are gathered.

Owns all of that, and the roster. `rules.groups.group_state` decides what a request or a time-out does in each state;
this module does it. Must never await anything: every change happens in one go, and answers are futures.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from tiered.broker.groups import stored_members
from tiered.broker.groups.classic_member import ClassicMember, is_waiting
from tiered.broker.groups.classic_roster import Roster
from tiered.broker.groups.surroundings import Surroundings
from tiered.broker.groups.timer import Deadline
from tiered.broker.groups.values import GroupKind, JoinedMember, JoinRequest, JoinResult, SyncResult
from tiered.errors import RebalanceInProgress, TieredError
from tiered.rules.groups import group_state
from tiered.rules.groups.group_state import GroupEvent, GroupState

log = logging.getLogger(__name__)

# Clients choose their rebalance time-outs, 0 as well; a wait that is repeated must not become a busy loop.
SHORTEST_REPEATED_WAIT_MS = 1_000


class ClassicRebalance:
    """`changed` is how every rebalance begins; it ends with the next generation, and that with its assignment."""

    def __init__(self, coordinator: Surroundings, group_id: str, *, generation: int, protocol_type: str) -> None:
        self._coordinator = coordinator
        self._group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = generation
        self.protocol_name = ""
        """Empty before the first generation, and while there are no members."""
        self.roster = Roster(group_id, coordinator.memory.purse(), protocol_type=protocol_type)
        self._not_joined: set[str] = set()
        """Whom the rebalance in preparation waits for."""
        self._not_synced: set[str] = set()
        """Who has the generation, and has not asked for its assignment."""
        self._join_wait = Deadline(self._join_wait_over, patient=True)
        self._sync_wait = Deadline(self._sync_wait_over, patient=True)
        self._is_first_wait = False
        """The rebalance began with an empty group: more members are expected, nobody is waited for."""
        self._has_grown = False
        self._first_wait_left_ms = 0.0

    @property
    def waiting_count(self) -> int:
        """Members that nobody waits for any more."""
        return len(self.roster.members) - len(self._not_joined)

    def close(self, error: TieredError) -> None:
        """Waiting members get `error`. The group answers nothing afterwards."""
        self._become(GroupEvent.FORGOTTEN)
        self._join_wait.end()
        self._sync_wait.end()
        self.roster.clear(error)
        self._not_joined.clear()
        self._not_synced.clear()

    def continue_with(self, members: Iterable[JoinRequest]) -> None:
        """An empty group goes on with members who have partitions: they are told to join with their next heartbeats."""
        for request in members:
            member = self.roster.add(request.member_id, request, self.expired)
            member.is_new = False
            member.touch()
        self.protocol_name = self.roster.next_protocol()
        self._become(GroupEvent.MEMBER_JOINED)
        self._begin(GroupState.STABLE, "it has turned classic")

    def restore(self, members: Iterable[tuple[JoinRequest, bytes]], *, leader: str, protocol_name: str) -> None:
        """An empty group goes on where its coordinator of before was: stable, each member with its assignment."""
        assignments = {}
        for request, assignment in members:
            member = self.roster.add(request.member_id, request, self.expired)
            member.is_new = False
            member.touch()
            assignments[member.member_id] = assignment
        self.roster.assign(assignments)
        self.roster.leader = leader
        self.protocol_name = protocol_name
        self._become(GroupEvent.RESTORED)

    # SQL

    def note(self) -> None:
        """Lets SQL know of the generation, whether there are members, and of all of them while the group is stable."""
        roster = self.roster
        members = None
        if self.state is GroupState.STABLE:
            assert roster.leader is not None, "a stable group has members"
            members = stored_members.of_classic(
                self._group_id,
                generation=self.generation,
                protocol_name=self.protocol_name,
                leader=roster.leader,
                members=roster.members.values(),
            )
        self._coordinator.offsets.note_group(
            self._group_id,
            kind=GroupKind.CLASSIC,
            protocol_type=roster.protocol_type,
            generation=self.generation,
            is_empty=not roster.members,
            members=members,
        )

    # Who comes and goes

    def add(self, member_id: str, request: JoinRequest) -> "asyncio.Future[JoinResult]":
        """A new member; the answer to its JoinGroup. Raises CoordinatorNotAvailable."""
        member = self.roster.add(member_id, request, self.expired)
        self._has_grown = True
        return self.await_rebalance(member, f"{member_id} joined")

    def renamed(self, old_id: str, member_id: str) -> None:
        """A static member has another id."""
        for waited_for in (self._not_joined, self._not_synced):
            if old_id in waited_for:
                waited_for.remove(old_id)
                waited_for.add(member_id)

    def synced(self, member_id: str) -> None:
        """The member has asked for its assignment."""
        self._not_synced.discard(member_id)
        if not self._not_synced:
            self._sync_wait.clear()

    def drop(self, member: ClassicMember, error: TieredError) -> None:
        """The member is none any more, and gets `error`. The caller says `changed` when all have gone that go."""
        self._not_joined.discard(member.member_id)
        self._not_synced.discard(member.member_id)
        self.roster.drop(member, error)

    def expired(self, member_id: str) -> None:
        """Its session is over. Waiting for us is no silence, but for a new member, whose client may be long gone."""
        member = self.roster.members[member_id]
        if member.is_heard_of and not member.is_new:
            member.touch()
            return
        self._coordinator.context.counters.group_members_expired += 1
        log.info(
            "group %s: member %s (client %s at %s) was silent for its session time-out of %d ms and has left",
            *(self._group_id, member_id, member.client_id, member.client_host, member.session_timeout_ms),
        )
        self.drop(member, self.roster.unknown(member_id))
        self.changed(GroupEvent.MEMBER_REMOVED, f"{member_id} was silent")

    def pending_expired(self, member_id: str) -> None:
        """The client that was given this id did not come back with it."""
        self.roster.drop_pending(member_id)
        self.go_on()

    def go_on(self) -> None:
        """No new member has come, but perhaps no member is waited for any more."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_if_all_joined()

    # Answers

    def join_result(self, member: ClassicMember, *, skip_assignment: bool = False) -> JoinResult:
        is_leader = member.member_id == self.roster.leader
        members: tuple[JoinedMember, ...] = ()
        if is_leader and (skip_assignment or self.state is GroupState.COMPLETING_REBALANCE):
            members = tuple(
                JoinedMember(
                    member_id=each.member_id,
                    instance_id=each.instance_id,
                    metadata=each.metadata(self.protocol_name),
                )
                for each in self.roster.members.values()
            )
        return JoinResult(
            generation=self.generation,
            protocol_type=self.roster.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.roster.leader or "",
            member_id=member.member_id,
            members=members,
            skip_assignment=skip_assignment and is_leader,
        )

    def sync_result(self, member: ClassicMember) -> SyncResult:
        return SyncResult(
            protocol_type=self.roster.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    # From one generation to the next

    def await_rebalance(self, member: ClassicMember, reason: str) -> "asyncio.Future[JoinResult]":
        """The answer to the member's JoinGroup, once a rebalance (a new one, or the present) is complete."""
        member.refuse(RebalanceInProgress("the member has joined anew; only its latest request is answered"))
        future = member.wait_for_join()
        self._not_joined.discard(member.member_id)
        self.changed(GroupEvent.MEMBER_JOINED, reason)
        return future

    def changed(self, event: GroupEvent, reason: str) -> None:
        """Begins a rebalance, or goes on with the one that has begun."""
        before = self.state
        self._become(event)
        if before is not GroupState.PREPARING_REBALANCE:
            self._begin(before, reason)
        self._complete_if_all_joined()

    def _become(self, event: GroupEvent) -> None:
        self.state = group_state.next_state(self.state, event)

    def _begin(self, before: GroupState, reason: str) -> None:
        self._coordinator.context.counters.group_rebalances += 1
        log.debug("group %s rebalances after generation %d: %s", self._group_id, self.generation, reason)
        for member in self.roster.members.values():
            if is_waiting(member.sync):
                member.touch()  # It was silent only because it waited for us.
            member.refuse_sync(RebalanceInProgress("the group is rebalancing; join again"))
        if before is GroupState.STABLE:
            # From here on another coordinator could only guess: everybody is about to join anyway.
            self.note()
        self._sync_wait.clear()
        self._not_synced.clear()
        self._not_joined = {member.member_id for member in self.roster.members.values() if not member.has_joined}
        timeout_ms = self.roster.rebalance_timeout_ms()
        self._is_first_wait = before is GroupState.EMPTY
        if self._is_first_wait:
            delay_ms = self._coordinator.context.settings.groups.group_initial_rebalance_delay_ms
            self._has_grown = False
            self._first_wait_left_ms = timeout_ms - delay_ms
            self._join_wait.set(delay_ms)
        else:
            self._join_wait.set(timeout_ms)

    def _complete_if_all_joined(self) -> None:
        if not self._is_first_wait and not self._not_joined and not self.roster.pending:
            self._complete_join()

    def _join_wait_over(self) -> None:
        if self._is_first_wait:
            delay_ms = self._coordinator.context.settings.groups.group_initial_rebalance_delay_ms
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
        """Every member that is here gets the next generation; others have left, unless they are static."""
        self._join_wait.clear()
        self._is_first_wait = False
        for member_id in list(self._not_joined):
            member = self.roster.members[member_id]
            if member.instance_id is None:
                self.drop(member, self.roster.unknown(member_id))
        joined = [member for member in self.roster.members.values() if member.has_joined]
        if self.roster.members and not joined:
            # Static members that have not come back: their sessions decide how long their partitions wait.
            self._join_wait.set(max(SHORTEST_REPEATED_WAIT_MS, self.roster.rebalance_timeout_ms()))
            return
        self.generation += 1
        if joined:
            self._begin_generation(joined)
        else:
            self._become(GroupEvent.NONE_JOINED)
            self.protocol_name = ""
        self.note()

    def _begin_generation(self, joined: list[ClassicMember]) -> None:
        self._become(GroupEvent.ALL_JOINED)
        self._not_joined.clear()
        if self.roster.leader is None or not is_waiting(self.roster.members[self.roster.leader].join):
            self.roster.leader = next((each for each in joined if is_waiting(each.join)), joined[0]).member_id
        self.protocol_name = self.roster.next_protocol()
        self._not_synced = {member.member_id for member in joined}
        self._sync_wait.set(self.roster.rebalance_timeout_ms())
        for member in joined:
            member.is_new = False
            if member.answer_join(self.join_result(member)):
                member.touch()

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """The leader's SyncGroup: whoever waits gets its own. Raises CoordinatorNotAvailable, and changes nothing."""
        self.roster.assign(assignments)
        self._become(GroupEvent.ASSIGNED)
        self.note()
        for member in self.roster.members.values():
            if is_waiting(member.sync):
                member.touch()
            member.answer_sync(self.sync_result(member))

    def _sync_wait_over(self) -> None:
        """A member that has not asked for its assignment by now has left: its partitions are without an owner."""
        for member_id in list(self._not_synced):
            self.drop(self.roster.members[member_id], self.roster.unknown(member_id))
        self.changed(GroupEvent.SYNC_EXPIRED, "members did not ask for their assignments")
