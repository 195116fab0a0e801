"""Moving a partition: the steps keep what is committed, and end where they were meant to."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tiered.errors import InvalidReplicaAssignment, NoReassignment
from tiered.ids import InSyncReplica
from tiered.rules.replication import reassignment
from tiered.rules.replication.replica_set import NO_LEADER, ReplicaSet, Standing, Standings

BROKERS = range(1, 7)
ALIVE: Standings = {each: Standing(each * 10, False) for each in BROKERS}


def replicas(*ids: int, isr: tuple[int, ...] | None = None, leader: int | None = None) -> ReplicaSet:
    return ReplicaSet(
        leader=ids[0] if leader is None else leader,
        leader_epoch=4,
        isr=tuple(InSyncReplica(each, each * 10) for each in (ids if isr is None else isr)),
        replicas=ids,
    )


def caught_up(before: ReplicaSet) -> ReplicaSet:
    """As the leader leaves it once every replica has caught up."""
    return replace(before, isr=tuple(InSyncReplica(each, each * 10) for each in before.replicas))


def begun(before: ReplicaSet, *target: int, standings: Standings = ALIVE, min_isr: int = 1) -> ReplicaSet:
    after = reassignment.begin(before, target, standings, min_isr=min_isr)
    assert after is not None
    return after


def without(*dead: int) -> Standings:
    return {each: Standing(each * 10, each in dead) for each in BROKERS}


# Examples


def test_the_target_comes_first_and_both_sides_are_named() -> None:
    after = begun(replicas(1, 2, 3), 3, 4, 5)
    assert after.replicas == (3, 4, 5, 1, 2)
    assert (after.adding_replicas, after.removing_replicas) == ((4, 5), (1, 2))
    assert (after.leader, after.leader_epoch) == (1, 4)
    assert after.isr == replicas(1, 2, 3).isr
    assert reassignment.original_of(after) == (3, 1, 2)
    assert reassignment.target_of(after) == (3, 4, 5)


def test_nothing_is_swapped_before_every_added_replica_is_in_sync() -> None:
    after = begun(replicas(1, 2), 3, 4)
    assert reassignment.progress(after, ALIVE, min_isr=1) is None
    one = replace(after, isr=(*after.isr, InSyncReplica(3, 30)))
    assert reassignment.progress(one, ALIVE, min_isr=1) is None


def test_an_added_replica_that_died_does_not_count() -> None:
    ready = caught_up(begun(replicas(1, 2), 3, 4))
    assert reassignment.progress(ready, without(4), min_isr=1) is None
    assert reassignment.progress(ready, {**ALIVE, 4: Standing(41, False)}, min_isr=1) is None


def test_the_swap_hands_over_to_the_first_of_the_target() -> None:
    after = reassignment.progress(caught_up(begun(replicas(1, 2), 3, 4)), ALIVE, min_isr=1)
    assert after is not None
    assert after == replace(replicas(3, 4), leader_epoch=5)


def test_a_leader_in_the_target_goes_on_in_its_epoch() -> None:
    after = reassignment.progress(caught_up(begun(replicas(1, 2), 3, 1)), ALIVE, min_isr=1)
    assert after is not None
    assert (after.leader, after.leader_epoch, after.replicas) == (1, 4, (3, 1))


def test_a_dead_replica_is_replaced_by_a_live_one() -> None:
    before = replicas(1, 2, 3, isr=(1, 2))
    ready = begun(before, 1, 2, 4, standings=without(3))
    ready = replace(ready, isr=(*ready.isr, InSyncReplica(4, 40)))
    after = reassignment.progress(ready, without(3), min_isr=2)
    assert after is not None
    assert after.replicas == (1, 2, 4)
    assert not reassignment.is_under_way(after)


def test_replicas_are_dropped_at_once() -> None:
    after = begun(replicas(1, 2, 3), 1, 2)
    assert after == replicas(1, 2)


def test_another_order_is_taken_at_once_and_moves_no_leader() -> None:
    after = begun(replicas(1, 2, 3), 3, 1, 2)
    assert (after.replicas, after.leader, after.leader_epoch) == ((3, 1, 2), 1, 4)
    assert not reassignment.is_under_way(after)


def test_the_present_replicas_as_target_change_nothing() -> None:
    assert reassignment.begin(replicas(1, 2), (1, 2), ALIVE, min_isr=1) is None


def test_a_shrink_waits_while_too_few_of_the_target_live() -> None:
    after = begun(replicas(1, 2, 3), 1, 2, standings=without(2), min_isr=2)
    assert after.removing_replicas == (3,)
    done = reassignment.progress(after, ALIVE, min_isr=2)
    assert done is not None
    assert done.replicas == (1, 2)


def test_a_second_target_replaces_the_first() -> None:
    first = begun(replicas(1, 2), 3, 4)
    first = replace(first, isr=(*first.isr, InSyncReplica(3, 30)))
    after = begun(first, 1, 5)
    assert after.replicas == (1, 5, 2)
    assert (after.adding_replicas, after.removing_replicas) == ((5,), (2,))
    assert after.isr == replicas(1, 2).isr


def test_an_added_leader_hands_back_when_the_move_is_cancelled() -> None:
    moving = replace(caught_up(begun(replicas(1, 2), 3, 4)), leader=3, leader_epoch=5)
    after = reassignment.cancel(moving, ALIVE, min_isr=1)
    assert (after.replicas, after.leader, after.leader_epoch) == ((1, 2), 1, 6)
    assert after.isr == replicas(1, 2).isr


def test_cancelling_takes_back_the_originals() -> None:
    before = replicas(1, 2, 3)
    assert reassignment.cancel(begun(before, 1, 2, 4), ALIVE, min_isr=1) == before


def test_cancelling_never_gives_up_the_last_who_has_everything() -> None:
    moving = replace(begun(replicas(1), 2), isr=(InSyncReplica(2, 20),), leader=2)
    with pytest.raises(InvalidReplicaAssignment, match="bring back one of the original replicas"):
        reassignment.cancel(moving, ALIVE, min_isr=1)
    dead = replace(begun(replicas(1), 2), isr=(InSyncReplica(1, 10), InSyncReplica(2, 20)), leader=2)
    with pytest.raises(InvalidReplicaAssignment):
        reassignment.cancel(dead, without(1), min_isr=1)


def test_cancelling_nothing_is_refused() -> None:
    with pytest.raises(NoReassignment):
        reassignment.cancel(replicas(1, 2), ALIVE, min_isr=1)


@pytest.mark.parametrize(
    ("target", "message"), [((), "at least one"), ((1, 1), "twice"), ((1, 9, 8), r"not registered: \[8, 9\]")]
)
def test_impossible_targets_are_refused(target: tuple[int, ...], message: str) -> None:
    with pytest.raises(InvalidReplicaAssignment, match=message):
        reassignment.begin(replicas(1, 2), target, ALIVE, min_isr=1)


# Properties

some_brokers = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True).map(tuple)
epochs = st.integers(0, 1)


@st.composite
def any_standings(draw: st.DrawFn) -> Standings:
    return {each: Standing(each * 10 + draw(epochs), draw(st.booleans())) for each in BROKERS}


@st.composite
def any_replicas(draw: st.DrawFn) -> ReplicaSet:
    """A partition at rest or being moved, with any non-empty ISR of any registrations."""
    held = draw(some_brokers)
    isr_ids = draw(st.lists(st.sampled_from(held), min_size=1, unique=True))
    isr = tuple(InSyncReplica(each, each * 10 + draw(epochs)) for each in isr_ids)
    sides = draw(st.lists(st.sampled_from(["both", "adding", "removing"]), min_size=len(held), max_size=len(held)))
    adding = tuple(each for each, side in zip(held, sides, strict=True) if side == "adding")
    removing = tuple(each for each, side in zip(held, sides, strict=True) if side == "removing")
    assume(len(adding) < len(held) and len(removing) < len(held))
    leader = draw(st.sampled_from([NO_LEADER, *isr_ids]))
    return ReplicaSet(
        leader=leader, leader_epoch=4, isr=isr, replicas=held, adding_replicas=adding, removing_replicas=removing
    )


def check_step(before: ReplicaSet, after: ReplicaSet, standings: Standings, min_isr: int) -> None:
    assert set(after.isr) <= set(before.isr), "nobody joins the ISR by a step"
    assert {each.broker_id for each in after.isr} <= set(after.replicas)
    assert len(set(after.replicas)) == len(after.replicas)
    assert len(after.isr) >= min(len(before.isr), min_isr, len(after.replicas)), "rule 3"
    assert after.leader == NO_LEADER or after.leader in {each.broker_id for each in after.isr}
    assert after.leader_epoch == before.leader_epoch + (after.leader != before.leader)
    if after.leader not in (before.leader, NO_LEADER):
        assert after.leader in after.electable(standings), "rule 2"
    assert after.electable(standings) or not before.electable(standings), "a step takes nobody's leader away"


@given(any_replicas(), some_brokers, any_standings(), st.integers(1, 3))
def test_beginning_keeps_the_rules(
    before: ReplicaSet, target: tuple[int, ...], standings: Standings, min_isr: int
) -> None:
    try:
        after = reassignment.begin(before, target, standings, min_isr=min_isr)
    except InvalidReplicaAssignment:
        assert reassignment.is_under_way(before)
        return
    if after is None:
        assert before.replicas == target
        return
    check_step(before, after, standings, min_isr)
    assert reassignment.target_of(after) == target


@given(any_replicas(), any_standings(), st.integers(1, 3))
def test_the_swap_keeps_the_rules(before: ReplicaSet, standings: Standings, min_isr: int) -> None:
    after = reassignment.progress(before, standings, min_isr=min_isr)
    if after is not None:
        check_step(before, after, standings, min_isr)
        assert after.replicas == reassignment.target_of(before)
        assert not reassignment.is_under_way(after)
        assert reassignment.progress(after, standings, min_isr=min_isr) is None


@given(any_replicas(), any_standings(), st.integers(1, 3))
def test_cancelling_keeps_the_rules(before: ReplicaSet, standings: Standings, min_isr: int) -> None:
    try:
        after = reassignment.cancel(before, standings, min_isr=min_isr)
    except (InvalidReplicaAssignment, NoReassignment):
        return
    check_step(before, after, standings, min_isr)
    assert after.replicas == reassignment.original_of(before)


@given(some_brokers, some_brokers, st.integers(1, 3))
def test_a_healthy_partition_arrives_once_everybody_has_caught_up(
    held: tuple[int, ...], target: tuple[int, ...], min_isr: int
) -> None:
    after = reassignment.begin(replicas(*held), target, ALIVE, min_isr=min_isr)
    if after is not None and reassignment.is_under_way(after):
        after = reassignment.progress(caught_up(after), ALIVE, min_isr=min_isr)
    assert after is None or after.replicas == target
