"""What no election may ever do, whatever the replicas and whoever is alive; and what each event must do."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tiered.ids import InSyncReplica
from tiered.rules.replication import elections
from tiered.rules.replication.replica_set import NO_LEADER, ReplicaSet, Standing, Standings, is_current

BROKER_IDS = range(1, 6)
EPOCHS = st.integers(min_value=10, max_value=13)


@st.composite
def standings_of(draw: st.DrawFn) -> dict[int, Standing]:
    ids = draw(st.sets(st.sampled_from(BROKER_IDS)))
    return {broker_id: Standing(draw(EPOCHS), draw(st.booleans()), draw(st.booleans())) for broker_id in ids}


@st.composite
def replica_sets(draw: st.DrawFn) -> ReplicaSet:
    """Any that SQL may hold: a leader is in the ISR, the ISR among the replicas and never empty."""
    replicas = tuple(draw(st.permutations(BROKER_IDS))[: draw(st.integers(1, 5))])
    members = [each for each in replicas if draw(st.booleans())] or [replicas[0]]
    isr = tuple(InSyncReplica(each, draw(EPOCHS)) for each in draw(st.permutations(members)))
    return ReplicaSet(
        leader=draw(st.sampled_from([NO_LEADER, *members])),
        leader_epoch=draw(st.integers(0, 5)),
        isr=isr,
        replicas=replicas,
    )


def effects(before: ReplicaSet, standings: Standings, min_isr: int) -> dict[str, ReplicaSet | None]:
    return {
        "failure": elections.after_failure(before, standings, min_isr=min_isr),
        "preferred": elections.preferred(before, standings),
        "unclean": elections.unclean(before, standings),
        **{
            f"{broker_id} without the store": elections.passed_on(before, standings, broker_id=broker_id)
            for broker_id in standings
        },
        **{
            f"registration of {each}, {'clean' if is_clean else 'unclean'}": elections.registered(
                before, standings, broker_id=each, previous_epoch=9, is_clean=is_clean
            )
            for each in standings
            for is_clean in (False, True)
        },
    }


@given(replica_sets(), standings_of(), st.integers(1, 4))
def test_whoever_is_elected_is_a_current_member_of_the_isr(
    before: ReplicaSet, standings: Standings, min_isr: int
) -> None:
    for event, after in effects(before, standings, min_isr).items():
        if after is None or after.leader == NO_LEADER or after.leader_epoch == before.leader_epoch:
            continue
        member = after.member(after.leader)
        assert member is not None, event
        assert is_current(member, standings), event
        if event not in ("unclean",) and "registration" not in event:
            assert member in before.isr, event


@given(replica_sets(), standings_of(), st.integers(1, 4))
def test_the_leader_epoch_rises_by_one_exactly_when_the_leader_changes_or_restarts(
    before: ReplicaSet, standings: Standings, min_isr: int
) -> None:
    for event, after in effects(before, standings, min_isr).items():
        if after is None:
            continue
        has_restarted = after.leader == before.leader and after.member(after.leader) != before.member(before.leader)
        expected = 1 if after.leader != before.leader or has_restarted else 0
        assert after.leader_epoch - before.leader_epoch == expected, event


@given(replica_sets(), standings_of(), st.integers(1, 4))
def test_a_failure_never_leaves_fewer_in_sync_than_must_be(
    before: ReplicaSet, standings: Standings, min_isr: int
) -> None:
    after = elections.after_failure(before, standings, min_isr=min_isr) or before
    floor = min(min_isr, len(before.replicas), len(before.isr))
    assert len(after.isr) >= floor
    assert set(after.isr) <= set(before.isr), "nobody joins by a failure"
    gone = set(before.isr) - set(after.isr)
    assert not any(is_current(each, standings) for each in gone), "who serves stays"
    dead = [each for each in after.isr if not is_current(each, standings)]
    if len(dead) < len(after.isr):
        assert not dead or len(after.isr) == min(min_isr, len(before.replicas)), "a dead member only keeps a place"
    else:
        assert after.isr == before.isr, "while nobody serves, everybody who was in sync may come back and lead"


@given(replica_sets(), standings_of(), st.integers(1, 4))
def test_after_a_failure_somebody_leads_exactly_when_somebody_can(
    before: ReplicaSet, standings: Standings, min_isr: int
) -> None:
    after = elections.after_failure(before, standings, min_isr=min_isr) or before
    electable = before.electable(standings)
    assert (after.leader in electable) if electable else (after.leader == NO_LEADER)
    if before.leader in electable:
        assert after.leader == before.leader, "who can go on does"


@given(replica_sets(), standings_of(), st.integers(1, 4))
def test_what_was_decided_is_not_decided_again(before: ReplicaSet, standings: Standings, min_isr: int) -> None:
    for event, after in effects(before, standings, min_isr).items():
        if after is not None:
            assert after != before, event
            if "registration" not in event:
                assert effects(after, standings, min_isr)[event] is None, event


@given(replica_sets(), standings_of(), EPOCHS, st.booleans())
def test_a_registration_that_is_applied_twice_changes_nothing_more(
    before: ReplicaSet, standings: dict[int, Standing], previous_epoch: int, is_clean: bool
) -> None:
    for broker_id in before.replicas:
        now = {**standings, broker_id: Standing(20, False)}
        after = elections.registered(before, now, broker_id=broker_id, previous_epoch=previous_epoch, is_clean=is_clean)
        if after is not None:
            again = elections.registered(
                after, now, broker_id=broker_id, previous_epoch=previous_epoch, is_clean=is_clean
            )
            assert again is None


@given(replica_sets(), standings_of(), EPOCHS, st.booleans())
def test_a_registration_renews_only_what_the_process_continues_or_nobody_else_has(
    before: ReplicaSet, standings: dict[int, Standing], previous_epoch: int, is_clean: bool
) -> None:
    for broker_id in before.replicas:
        now = {**standings, broker_id: Standing(20, False)}
        after = (
            elections.registered(before, now, broker_id=broker_id, previous_epoch=previous_epoch, is_clean=is_clean)
            or before
        )
        member = before.member(broker_id)
        others = [each for each in before.isr if each.broker_id != broker_id]
        assert [each for each in after.isr if each.broker_id != broker_id] == others
        assert len(after.isr) == len(before.isr), "an unclean member keeps its place"
        if member is None:
            assert after.isr == before.isr
            continue
        may_go_on = not others or (is_clean and member.broker_epoch == previous_epoch)
        assert after.member(broker_id) == (InSyncReplica(broker_id, 20) if may_go_on else member)
        if before.leader == broker_id:
            assert after.leader_epoch == before.leader_epoch + 1, "a restart costs a leader epoch"
            if may_go_on:
                assert after.leader == broker_id, "and not the leadership"
        if before.leader == NO_LEADER and may_go_on:
            assert after.leader != NO_LEADER
        if before.leader not in (broker_id, NO_LEADER):
            assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)


@given(replica_sets(), standings_of())
def test_an_unclean_election_is_clean_where_it_can_be(before: ReplicaSet, standings: Standings) -> None:
    after = elections.unclean(before, standings)
    electable = before.electable(standings)
    if before.leader in electable:
        assert after is None
    elif electable:
        assert after == replace(before, leader=electable[0], leader_epoch=before.leader_epoch + 1)
    elif after is not None and after.leader != NO_LEADER:
        assert after.isr == (InSyncReplica(after.leader, standings[after.leader].broker_epoch),)
        named = {each.broker_id for each in before.isr}
        alive_and_named = [
            each for each in before.replicas if each in named and each in standings and not standings[each].fenced
        ]
        assert after.leader in (alive_and_named or before.replicas)


@given(replica_sets(), standings_of())
def test_the_preferred_leader_takes_over_only_from_another_and_only_when_it_can(
    before: ReplicaSet, standings: Standings
) -> None:
    after = elections.preferred(before, standings)
    wanted = before.replicas[0]
    if before.leader == wanted or wanted not in before.electable(standings):
        assert after is None
    else:
        assert after == replace(before, leader=wanted, leader_epoch=before.leader_epoch + 1)


@given(replica_sets(), standings_of(), st.integers(1, 4))
def test_two_controllers_that_see_the_same_decide_the_same(
    before: ReplicaSet, standings: Standings, min_isr: int
) -> None:
    reordered = dict(reversed(list(standings.items())))
    assert elections.after_failure(before, standings, min_isr=min_isr) == elections.after_failure(
        before, reordered, min_isr=min_isr
    )


@given(replica_sets(), standings_of(), st.integers(1, 4), st.sampled_from(BROKER_IDS))
def test_a_full_disk_leaves_as_many_who_can_lead_as_must_be_in_sync_or_changes_nothing(
    before: ReplicaSet, standings: Standings, min_isr: int, broker_id: int
) -> None:
    after = elections.spared(before, standings, broker_id=broker_id, min_isr=min_isr)
    if after is None:
        return
    assert after.member(broker_id) is None
    assert after.leader in after.electable(standings)
    assert len(after.electable(standings)) >= min(min_isr, len(before.replicas))
    assert elections.spared(after, standings, broker_id=broker_id, min_isr=min_isr) is None
    assert elections.preferred(replace(after, replicas=(broker_id, *after.replicas)), standings) is None


@given(replica_sets(), standings_of(), st.sampled_from(BROKER_IDS))
def test_who_does_not_reach_the_store_stays_in_sync_and_is_not_preferred_until_it_does(
    before: ReplicaSet, standings: Standings, broker_id: int
) -> None:
    after = elections.passed_on(before, standings, broker_id=broker_id)
    if after is None:
        return
    assert (after.isr, after.leader_epoch) == (before.isr, before.leader_epoch + 1)
    assert standings[after.leader].reaches_store
    assert not standings[broker_id].reaches_store
    assert elections.passed_on(after, standings, broker_id=broker_id) is None
    as_before = replace(after, replicas=(broker_id, *(member for member in after.replicas if member != broker_id)))
    assert elections.preferred(as_before, standings) is None


# Examples that people reason with

ALL = (InSyncReplica(1, 10), InSyncReplica(2, 10), InSyncReplica(3, 10))
SERVING = {1: Standing(10, False), 2: Standing(10, False), 3: Standing(10, False)}
THREE = ReplicaSet(leader=1, leader_epoch=4, isr=ALL, replicas=(1, 2, 3))


def test_the_next_replica_leads_when_the_leader_dies() -> None:
    after = elections.after_failure(THREE, {**SERVING, 1: Standing(10, True)}, min_isr=2)
    assert after == replace(THREE, leader=2, leader_epoch=5, isr=ALL[1:])


def test_the_second_dead_broker_keeps_its_place_and_can_return_to_lead() -> None:
    alone = {1: Standing(10, True), 2: Standing(10, True), 3: Standing(10, False)}
    after = elections.after_failure(THREE, alone, min_isr=2)
    assert after is not None
    assert (after.leader, len(after.isr)) == (3, 2)
    placeholder = next(each for each in after.isr if each.broker_id != 3)
    # The last one alive dies too, and the placeholder comes back with all that it had: it may lead at once.
    back = {**alone, 3: Standing(10, True), placeholder.broker_id: Standing(10, False)}
    led = elections.after_failure(after, back, min_isr=2)
    assert led is not None
    assert led.leader == placeholder.broker_id


def test_an_entry_that_can_never_lead_again_goes_before_one_that_can() -> None:
    lost, silent = Standing(11, False), Standing(10, True)
    after = elections.after_failure(THREE, {1: Standing(10, False), 2: silent, 3: lost}, min_isr=2)
    assert after == replace(THREE, isr=ALL[:2])
    after = elections.after_failure(THREE, {1: Standing(10, False), 2: lost, 3: silent}, min_isr=2)
    assert after == replace(THREE, isr=(ALL[0], ALL[2]))


def test_a_clean_restart_of_the_leader_costs_one_leader_epoch_and_nothing_else() -> None:
    now = {**SERVING, 1: Standing(20, False)}
    after = elections.registered(THREE, now, broker_id=1, previous_epoch=10, is_clean=True)
    assert after == replace(THREE, leader_epoch=5, isr=(InSyncReplica(1, 20), *ALL[1:]))


def test_an_unclean_restart_of_the_leader_costs_it_the_leadership() -> None:
    now = {**SERVING, 1: Standing(20, False)}
    after = elections.registered(THREE, now, broker_id=1, previous_epoch=10, is_clean=False)
    assert after == replace(THREE, leader=2, leader_epoch=5)


def test_a_clean_restart_after_an_unclean_one_does_not_make_whole_what_was_lost() -> None:
    now = {**SERVING, 2: Standing(30, False)}
    assert elections.registered(THREE, now, broker_id=2, previous_epoch=20, is_clean=True) is None


def test_a_single_broker_leads_again_whatever_it_has_lost() -> None:
    alone = ReplicaSet(leader=NO_LEADER, leader_epoch=3, isr=(InSyncReplica(1, 10),), replicas=(1,))
    after = elections.registered(alone, {1: Standing(20, False)}, broker_id=1, previous_epoch=None, is_clean=False)
    assert after == replace(alone, leader=1, leader_epoch=4, isr=(InSyncReplica(1, 20),))


def test_whoever_returns_first_leads_a_partition_that_nobody_led() -> None:
    nobody = replace(THREE, leader=NO_LEADER)
    dead = {1: Standing(10, True), 2: Standing(20, False), 3: Standing(10, True)}
    after = elections.registered(nobody, dead, broker_id=2, previous_epoch=10, is_clean=True)
    assert after is not None
    assert (after.leader, after.leader_epoch) == (2, 5)


@given(replica_sets(), st.integers(1, 4))
def test_a_failure_of_nobody_changes_nothing(before: ReplicaSet, min_isr: int) -> None:
    serving = {each.broker_id: Standing(each.broker_epoch, False) for each in before.isr}
    led = before if before.leader != NO_LEADER else replace(before, leader=before.isr[0].broker_id)
    assert elections.after_failure(led, serving, min_isr=min_isr) is None


def test_a_leader_whose_disk_is_full_leaves_its_partition_to_the_next_one() -> None:
    after = elections.spared(THREE, SERVING, broker_id=1, min_isr=2)
    assert after == replace(THREE, leader=2, leader_epoch=5, isr=ALL[1:])


CUT_OFF = Standing(10, False, reaches_store=False)


def test_a_leader_that_does_not_reach_the_store_is_followed_by_one_that_does() -> None:
    standings = {**SERVING, 1: CUT_OFF, 2: CUT_OFF}
    led_by_3 = replace(THREE, leader=3, leader_epoch=5)
    assert elections.passed_on(THREE, standings, broker_id=1) == led_by_3
    assert elections.passed_on(THREE, standings, broker_id=2) is None, "it does not lead"
    assert elections.passed_on(THREE, SERVING, broker_id=1) is None, "it reaches the store"
    assert elections.preferred(led_by_3, standings) is None
    assert elections.preferred(led_by_3, SERVING) == replace(THREE, leader_epoch=6), "the store is back"


def test_where_nobody_reaches_the_store_leaders_stay_and_the_next_one_leads_after_a_failure() -> None:
    standings = {1: CUT_OFF, 2: CUT_OFF, 3: CUT_OFF}
    assert elections.passed_on(THREE, standings, broker_id=1) is None
    assert elections.preferred(replace(THREE, leader=2), standings) == replace(THREE, leader_epoch=5)
    after = elections.after_failure(THREE, {**standings, 1: Standing(10, True)}, min_isr=1)
    assert after == replace(THREE, leader=2, leader_epoch=5, isr=ALL[1:])


def test_after_a_failure_one_that_reaches_the_store_leads_before_one_that_does_not() -> None:
    after = elections.after_failure(THREE, {**SERVING, 1: Standing(10, True), 2: CUT_OFF}, min_isr=1)
    assert after == replace(THREE, leader=3, leader_epoch=5, isr=ALL[1:])


def test_a_follower_whose_disk_is_full_leaves_the_isr_and_changes_no_leader() -> None:
    assert elections.spared(THREE, SERVING, broker_id=3, min_isr=2) == replace(THREE, isr=ALL[:2])


def test_a_full_replica_that_the_others_need_stays_in_sync() -> None:
    assert elections.spared(THREE, SERVING, broker_id=1, min_isr=3) is None
    assert elections.spared(THREE, {**SERVING, 3: Standing(10, True)}, broker_id=1, min_isr=2) is None
    only = ReplicaSet(leader=1, leader_epoch=3, isr=ALL[:1], replicas=(1,))
    assert elections.spared(only, SERVING, broker_id=1, min_isr=1) is None
