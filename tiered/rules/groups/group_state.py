"""The life of a classic consumer group: one transition table, and what each state answers to each request.

Owns the states, every legal transition with its cause, the choice of the protocol, and the decisions that
depend on the state. Pure: `broker.groups.classic_group` keeps the members and the timers, asks here, and does
what it is told. As Kafka's `GroupMetadataManager` and `ClassicGroup`; where we differ, docs/groups.md says so.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import assert_never

from tiered.errors import CoordinatorNotAvailable, RebalanceInProgress, UnknownMember

NO_GENERATION = -1


class GroupState(StrEnum):
    """Where a classic group is in its life. The values are Kafka's names."""

    EMPTY = "Empty"
    """No members; perhaps offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits until all members have (re)joined, or the time for it is over."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Everybody has the new generation; the leader's assignment is awaited."""
    STABLE = "Stable"
    """Every member has, or can fetch, its assignment."""
    DEAD = "Dead"
    """Forgotten here: deleted, moved to another coordinator, or turned into a group of another kind."""


class GroupEvent(StrEnum):
    """The events that move a group from one state to another."""

    MEMBER_JOINED = "member joined"
    """A new member, or a known one in a way that needs a new assignment: the leader, or with other metadata."""
    MEMBER_REMOVED = "member removed"
    """It left, was silent for its session time-out, or was replaced by one that needs a new assignment."""
    ALL_JOINED = "all joined"
    """Everybody has rejoined, or those who had not were dropped; at least one is left."""
    NONE_JOINED = "none joined"
    """The wait for members has ended, and there is none."""
    ASSIGNED = "assigned"
    """The leader's SyncGroup brought the assignments."""
    SYNC_EXPIRED = "sync expired"
    """A member did not ask for its assignment within the rebalance time-out."""
    RESTORED = "restored"
    """It was stable with its coordinator of before, and goes on here with the same members and assignments."""
    FORGOTTEN = "forgotten"
    """Deleted, or this broker coordinates it no more."""


_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = GroupState

TRANSITIONS: Mapping[tuple[GroupState, GroupEvent], GroupState] = MappingProxyType(
    {
        (_EMPTY, GroupEvent.MEMBER_JOINED): _PREPARING,
        (_EMPTY, GroupEvent.RESTORED): _STABLE,
        (_EMPTY, GroupEvent.FORGOTTEN): _DEAD,
        (_PREPARING, GroupEvent.MEMBER_JOINED): _PREPARING,
        (_PREPARING, GroupEvent.MEMBER_REMOVED): _PREPARING,
        (_PREPARING, GroupEvent.ALL_JOINED): _COMPLETING,
        (_PREPARING, GroupEvent.NONE_JOINED): _EMPTY,
        (_PREPARING, GroupEvent.FORGOTTEN): _DEAD,
        (_COMPLETING, GroupEvent.MEMBER_JOINED): _PREPARING,
        (_COMPLETING, GroupEvent.MEMBER_REMOVED): _PREPARING,
        (_COMPLETING, GroupEvent.ASSIGNED): _STABLE,
        (_COMPLETING, GroupEvent.SYNC_EXPIRED): _PREPARING,
        (_COMPLETING, GroupEvent.FORGOTTEN): _DEAD,
        (_STABLE, GroupEvent.MEMBER_JOINED): _PREPARING,
        (_STABLE, GroupEvent.MEMBER_REMOVED): _PREPARING,
        (_STABLE, GroupEvent.SYNC_EXPIRED): _PREPARING,
        (_STABLE, GroupEvent.FORGOTTEN): _DEAD,
    }
)
"""All that is legal. Nothing leads out of Dead, and only a rebalance leads to Stable, here or before."""


def next_state(state: GroupState, event: GroupEvent) -> GroupState:
    """The state after `event`. A pair that the table lacks is a bug of ours, and ends in an AssertionError."""
    after = TRANSITIONS.get((state, event))
    assert after is not None, f"a group that is {state} cannot see the event {event!r}"
    return after


# Protocols


def common_protocols(members: Iterable[Sequence[str]]) -> frozenset[str]:
    """The protocols that every member supports; `members` holds each one's names, best first."""
    found: frozenset[str] | None = None
    for names in members:
        found = frozenset(names) if found is None else found & frozenset(names)
    return found or frozenset()


def select_protocol(members: Sequence[Sequence[str]]) -> str:
    """The protocol of the next generation: each member votes for its best of those that all support.

    Of equally many votes the one that the first member likes better wins. There must be a common one.
    """
    candidates = common_protocols(members)
    assert candidates, "members without a common protocol are never let in"
    votes = Counter(next(name for name in names if name in candidates) for names in members)
    most = max(votes.values())
    return next(name for name in (*members[0], *votes) if votes.get(name) == most)


def supports(supporters: Mapping[str, int], members: int, joining: Iterable[str]) -> bool:
    """Whether somebody with the protocols `joining` can be in one group with `members` others.

    `supporters`: how many of those support each protocol. Counted, because a large group joins within a moment.
    """
    return any(not members or supporters.get(name, 0) == members for name in joining)


# What each state answers


class JoinAction(Enum):
    """The outcome of a JoinGroup of a member that the group knows."""

    REBALANCE = "rebalance"
    """Begin one (or go on with the one that has begun) and answer when it is complete."""
    REPEAT = "repeat"
    """Answer with the present generation: its answer was lost, or it rejoins with nothing new."""
    UNKNOWN = "unknown"
    """The group has no such member."""


def on_rejoin(state: GroupState, *, is_leader: bool, has_changed: bool) -> JoinAction:
    """`has_changed`: its protocols or their metadata are others than those that it joined with."""
    match state:
        case GroupState.PREPARING_REBALANCE:
            return JoinAction.REBALANCE
        case GroupState.COMPLETING_REBALANCE:
            return JoinAction.REBALANCE if has_changed else JoinAction.REPEAT
        case GroupState.STABLE:
            # The leader rejoins when it has seen something that calls for another assignment.
            return JoinAction.REBALANCE if is_leader or has_changed else JoinAction.REPEAT
        case GroupState.EMPTY | GroupState.DEAD:
            return JoinAction.UNKNOWN
        case _:
            assert_never(state)


class ReturnAction(Enum):
    """The outcome for a static member that is back under a new member id (KIP-345)."""

    REBALANCE = "rebalance"
    KEEP = "keep"
    """Answer with the present generation: it keeps its assignment, and nobody else notices."""
    WAIT = "wait"
    """A rebalance is on its way: answer when it is complete."""


def on_static_return(state: GroupState, *, needs_assignment: bool) -> ReturnAction:
    """`needs_assignment`: with what it brings, another protocol would be chosen, or it wants other topics."""
    match state:
        case GroupState.STABLE:
            return ReturnAction.REBALANCE if needs_assignment else ReturnAction.KEEP
        case GroupState.COMPLETING_REBALANCE:
            # The leader is about to assign partitions to the former id.
            return ReturnAction.REBALANCE
        case GroupState.PREPARING_REBALANCE:
            return ReturnAction.WAIT
        case GroupState.EMPTY | GroupState.DEAD:
            raise AssertionError(f"a group that is {state} has no static member")
        case _:
            assert_never(state)


def has_room(state: GroupState, *, is_member: bool, is_waiting: bool, members: int, waiting: int, most: int) -> bool:
    """Whether one more JoinGroup fits into `group.max.size`.

    While the group prepares a rebalance those who wait count, since others may not come back (KIP-389).
    """
    match state:
        case GroupState.PREPARING_REBALANCE:
            return (is_member and is_waiting) or waiting < most
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return is_member or members < most
        case GroupState.EMPTY | GroupState.DEAD:
            return True
        case _:
            assert_never(state)


class SyncAction(Enum):
    """The outcome of a SyncGroup of a member of the present generation."""

    WAIT = "wait"
    """Until the leader has assigned."""
    ANSWER = "answer"
    """With the member's assignment."""


def on_sync(state: GroupState) -> SyncAction:
    """Raises RebalanceInProgress, UnknownMember, CoordinatorNotAvailable."""
    match state:
        case GroupState.COMPLETING_REBALANCE:
            return SyncAction.WAIT
        case GroupState.STABLE:
            return SyncAction.ANSWER
        case GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgress("the group is rebalancing; join again")
        case GroupState.EMPTY:
            raise UnknownMember("the group has no members; join again")
        case GroupState.DEAD:
            raise _dead()
        case _:
            assert_never(state)


def on_heartbeat(state: GroupState) -> None:
    """Returns when the member of the present generation has nothing to do. In all these cases it is alive.

    Raises RebalanceInProgress, UnknownMember, CoordinatorNotAvailable.
    """
    match state:
        case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
            return
        case GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgress("the group is rebalancing; join again")
        case GroupState.EMPTY:
            raise UnknownMember("the group has no members; join again")
        case GroupState.DEAD:
            raise _dead()
        case _:
            assert_never(state)


def on_commit(state: GroupState) -> None:
    """Returns when a member of the present generation may commit: also while a rebalance is being prepared, so
    that it can save what it has done before it rejoins.

    Raises RebalanceInProgress while the assignment is being made, UnknownMember, CoordinatorNotAvailable.
    """
    match state:
        case GroupState.STABLE | GroupState.PREPARING_REBALANCE:
            return
        case GroupState.COMPLETING_REBALANCE:
            raise RebalanceInProgress("the group is rebalancing; commit when the assignment is known")
        case GroupState.EMPTY:
            raise UnknownMember("the group has no members; join again")
        case GroupState.DEAD:
            raise _dead()
        case _:
            assert_never(state)


def on_foreign_commit(state: GroupState) -> None:
    """Returns when a client that is no member may commit (generation -1, no member id): while there are no members.

    Raises UnknownMember, CoordinatorNotAvailable.
    """
    match state:
        case GroupState.EMPTY:
            return
        case GroupState.DEAD:
            raise _dead()
        case GroupState.PREPARING_REBALANCE | GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            raise UnknownMember("the group has members, and only they commit its offsets; stop them first")
        case _:
            assert_never(state)


def on_transactional_commit(state: GroupState) -> None:
    """Returns when offsets may be sent with a transaction: a member's of the present generation also while the
    assignment is being made, and those of a producer that names no member at any time.

    Raises CoordinatorNotAvailable.
    """
    if state is GroupState.DEAD:
        raise _dead()


def _dead() -> CoordinatorNotAvailable:
    return CoordinatorNotAvailable("the group is being moved or deleted; find its coordinator again")


# Waiting for members


def initial_delay_ms(*, delay_ms: float, left_ms: float, has_grown: bool) -> float | None:
    """How much longer an empty group's first rebalance waits, once a wait has ended; None: it is over.

    Each wait in which somebody joined is followed by another one, until the rebalance time-out is used up
    (`left_ms` of it are left).
    """
    if not has_grown or left_ms <= 0:
        return None
    return min(delay_ms, left_ms)
