"""The table of a classic group's states is complete, and a group that follows it never gets lost."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tiered.errors import CoordinatorNotAvailable, RebalanceInProgress, UnknownMember
from tiered.rules.groups import group_state
from tiered.rules.groups.group_state import GroupEvent, GroupState, JoinAction, ReturnAction, SyncAction

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
EVERY_PAIR = [(state, event) for state in GroupState for event in GroupEvent]

# Written down a second time, by what the protocol says and not by what the code holds.
REBALANCING = {GroupEvent.MEMBER_JOINED, GroupEvent.MEMBER_REMOVED}
LEGAL = {
    EMPTY: {GroupEvent.MEMBER_JOINED, GroupEvent.RESTORED, GroupEvent.FORGOTTEN},
    PREPARING: REBALANCING | {GroupEvent.ALL_JOINED, GroupEvent.NONE_JOINED, GroupEvent.FORGOTTEN},
    COMPLETING: REBALANCING | {GroupEvent.ASSIGNED, GroupEvent.SYNC_EXPIRED, GroupEvent.FORGOTTEN},
    STABLE: REBALANCING | {GroupEvent.SYNC_EXPIRED, GroupEvent.FORGOTTEN},
    DEAD: set(),
}
LEADS_TO = {
    GroupEvent.MEMBER_JOINED: PREPARING,
    GroupEvent.MEMBER_REMOVED: PREPARING,
    GroupEvent.SYNC_EXPIRED: PREPARING,
    GroupEvent.ALL_JOINED: COMPLETING,
    GroupEvent.NONE_JOINED: EMPTY,
    GroupEvent.ASSIGNED: STABLE,
    GroupEvent.RESTORED: STABLE,
    GroupEvent.FORGOTTEN: DEAD,
}


@pytest.mark.parametrize(("state", "event"), EVERY_PAIR)
def test_every_pair_of_state_and_event_is_legal_or_refused(state: GroupState, event: GroupEvent) -> None:
    if event in LEGAL[state]:
        assert group_state.next_state(state, event) is LEADS_TO[event]
    else:
        with pytest.raises(AssertionError):
            group_state.next_state(state, event)


def test_the_names_are_kafkas() -> None:
    assert [state.value for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]


# What each state answers


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (EMPTY, UnknownMember),
        (PREPARING, RebalanceInProgress),
        (COMPLETING, None),
        (STABLE, None),
        (DEAD, CoordinatorNotAvailable),
    ],
)
def test_heartbeats_are_answered_by_state(state: GroupState, error: type[Exception] | None) -> None:
    expect(error, group_state.on_heartbeat, state)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (EMPTY, UnknownMember),
        (PREPARING, None),
        (COMPLETING, RebalanceInProgress),
        (STABLE, None),
        (DEAD, CoordinatorNotAvailable),
    ],
)
def test_members_commit_by_state(state: GroupState, error: type[Exception] | None) -> None:
    expect(error, group_state.on_commit, state)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (EMPTY, None),
        (PREPARING, UnknownMember),
        (COMPLETING, UnknownMember),
        (STABLE, UnknownMember),
        (DEAD, CoordinatorNotAvailable),
    ],
)
def test_others_commit_only_to_an_empty_group(state: GroupState, error: type[Exception] | None) -> None:
    expect(error, group_state.on_foreign_commit, state)


@pytest.mark.parametrize("state", GroupState)
def test_offsets_are_sent_with_a_transaction_in_any_state_but_dead(state: GroupState) -> None:
    expect(CoordinatorNotAvailable if state is GroupState.DEAD else None, group_state.on_transactional_commit, state)


def test_syncs_are_answered_by_state() -> None:
    assert group_state.on_sync(COMPLETING) is SyncAction.WAIT
    assert group_state.on_sync(STABLE) is SyncAction.ANSWER
    expect(RebalanceInProgress, group_state.on_sync, PREPARING)
    expect(UnknownMember, group_state.on_sync, EMPTY)
    expect(CoordinatorNotAvailable, group_state.on_sync, DEAD)


def expect(error: type[Exception] | None, answer: object, state: GroupState) -> None:
    assert callable(answer)
    if error is None:
        answer(state)
    else:
        with pytest.raises(error):
            answer(state)


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("is_leader", [False, True])
@pytest.mark.parametrize("has_changed", [False, True])
def test_a_rejoin_rebalances_when_the_assignment_may_be_another(
    state: GroupState, is_leader: bool, has_changed: bool
) -> None:
    found = group_state.on_rejoin(state, is_leader=is_leader, has_changed=has_changed)
    if state in (EMPTY, DEAD):
        assert found is JoinAction.UNKNOWN
    elif state is PREPARING or has_changed or (state is STABLE and is_leader):
        assert found is JoinAction.REBALANCE
    else:
        assert found is JoinAction.REPEAT


def test_a_returning_static_member_disturbs_a_stable_group_only_for_another_assignment() -> None:
    assert group_state.on_static_return(STABLE, needs_assignment=False) is ReturnAction.KEEP
    assert group_state.on_static_return(STABLE, needs_assignment=True) is ReturnAction.REBALANCE
    for needs in (False, True):
        assert group_state.on_static_return(COMPLETING, needs_assignment=needs) is ReturnAction.REBALANCE
        assert group_state.on_static_return(PREPARING, needs_assignment=needs) is ReturnAction.WAIT
        for state in (EMPTY, DEAD):
            with pytest.raises(AssertionError):
                group_state.on_static_return(state, needs_assignment=needs)


def test_room_is_counted_by_those_who_wait_during_a_rebalance_and_by_members_else() -> None:
    def room(
        state: GroupState, *, is_member: bool = False, is_waiting: bool = False, members: int, waiting: int
    ) -> bool:
        return group_state.has_room(
            state, is_member=is_member, is_waiting=is_waiting, members=members, waiting=waiting, most=2
        )

    assert room(EMPTY, members=0, waiting=0)
    assert room(PREPARING, members=2, waiting=1), "of two members one may not come back"
    assert not room(PREPARING, members=2, waiting=2)
    assert room(PREPARING, is_member=True, is_waiting=True, members=2, waiting=2)
    assert not room(PREPARING, is_member=True, members=3, waiting=2), "the limit was lowered"
    for state in (COMPLETING, STABLE):
        assert room(state, members=1, waiting=0)
        assert not room(state, members=2, waiting=0)
        assert room(state, is_member=True, members=3, waiting=0)


# Protocols

names = st.lists(st.sampled_from("abcde"), min_size=1, max_size=5, unique=True)


@given(st.lists(names, min_size=1, max_size=6))
def test_the_chosen_protocol_is_common_and_no_other_common_one_has_more_votes(members: list[list[str]]) -> None:
    common = set.intersection(*(set(each) for each in members))
    assert group_state.common_protocols(members) == common
    others = Counter(name for each in members[1:] for name in each)
    assert group_state.supports(others, len(members) - 1, members[0]) == bool(common)
    if not common:
        with pytest.raises(AssertionError):
            group_state.select_protocol(members)
        return
    chosen = group_state.select_protocol(members)
    votes = Counter(next(name for name in each if name in common) for each in members)
    assert chosen in common
    assert votes[chosen] == max(votes.values())


def test_nothing_is_supported_by_nobody() -> None:
    assert group_state.supports({}, 0, ["range"])
    assert not group_state.supports({}, 0, [])
    assert not group_state.supports({"range": 1}, 1, ["sticky"])


# The first wait


def test_each_wait_in_which_somebody_joined_is_followed_by_another_until_the_time_is_used_up() -> None:
    assert group_state.initial_delay_ms(delay_ms=3000, left_ms=10_000, has_grown=True) == 3000
    assert group_state.initial_delay_ms(delay_ms=3000, left_ms=1000, has_grown=True) == 1000
    assert group_state.initial_delay_ms(delay_ms=3000, left_ms=0, has_grown=True) is None
    assert group_state.initial_delay_ms(delay_ms=3000, left_ms=10_000, has_grown=False) is None


@given(st.floats(1, 10_000), st.floats(0, 100_000))
def test_the_first_wait_ends(delay_ms: float, timeout_ms: float) -> None:
    left_ms = timeout_ms - delay_ms
    waited_ms = delay_ms
    while (more := group_state.initial_delay_ms(delay_ms=delay_ms, left_ms=left_ms, has_grown=True)) is not None:
        waited_ms += more
        left_ms -= more
    assert waited_ms <= max(delay_ms, timeout_ms) + 1e-6 * timeout_ms


class Group(RuleBasedStateMachine):
    """A group by the table alone: who is in it, who has rejoined, who has an assignment."""

    @initialize()
    def begin(self) -> None:
        self.state = EMPTY
        self.members: set[int] = set()
        self.joined: set[int] = set()
        self.generation = 0
        self.last_assigned = 0

    def become(self, event: GroupEvent) -> None:
        self.state = group_state.next_state(self.state, event)

    @precondition(lambda self: self.state is not DEAD)
    @rule(member=st.integers(0, 5))
    def join(self, member: int) -> None:
        before = self.state
        self.members.add(member)
        self.become(GroupEvent.MEMBER_JOINED)
        if before is not PREPARING:
            self.joined = set()
        self.joined.add(member)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.members)))
        before = self.state
        self.members.remove(member)
        self.become(GroupEvent.MEMBER_REMOVED)
        if before is not PREPARING:
            self.joined = set()
        self.joined.discard(member)

    @precondition(lambda self: self.state is PREPARING)
    @rule()
    def wait_is_over(self) -> None:
        self.members &= self.joined
        self.generation += 1
        self.become(GroupEvent.ALL_JOINED if self.members else GroupEvent.NONE_JOINED)

    @precondition(lambda self: self.state is COMPLETING)
    @rule()
    def leader_syncs(self) -> None:
        assert group_state.on_sync(self.state) is SyncAction.WAIT
        self.become(GroupEvent.ASSIGNED)
        assert self.generation > self.last_assigned, "each generation is assigned once"
        self.last_assigned = self.generation

    @precondition(lambda self: self.state in (COMPLETING, STABLE))
    @rule()
    def syncs_expire(self) -> None:
        self.become(GroupEvent.SYNC_EXPIRED)
        self.joined = set()

    @precondition(lambda self: self.state is not DEAD)
    @rule()
    def forget(self) -> None:
        self.become(GroupEvent.FORGOTTEN)
        self.members = set()

    @precondition(lambda self: self.state is DEAD)
    @rule(event=st.sampled_from(GroupEvent))
    def nothing_leads_out_of_dead(self, event: GroupEvent) -> None:
        with pytest.raises(AssertionError):
            group_state.next_state(self.state, event)

    @invariant()
    def empty_means_without_members(self) -> None:
        if self.state is EMPTY:
            assert not self.members
        if self.state in (COMPLETING, STABLE):
            assert self.members
            group_state.on_heartbeat(self.state)

    @invariant()
    def stable_means_that_this_generation_was_assigned(self) -> None:
        if self.state is STABLE:
            assert self.last_assigned == self.generation
            assert group_state.on_sync(self.state) is SyncAction.ANSWER


TestGroup = Group.TestCase
