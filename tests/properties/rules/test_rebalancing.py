"""Plans of moves: brokers that leave are emptied, those that stay carry alike, and racks stay apart."""

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tiered.errors import InvalidReplicationFactor
from tiered.rules.replication.placement import assign
from tiered.rules.replication.rebalancing import emptied, evened_out

Brokers = list[tuple[int, str | None]]
racks = st.sampled_from([None, "a", "b", "c"])
clusters = st.lists(racks, min_size=1, max_size=8).map(lambda found: [(at + 1, rack) for at, rack in enumerate(found)])


def spread(replicas: tuple[int, ...], brokers: Brokers) -> int:
    rack_of = {broker_id: broker_id if rack is None else rack for broker_id, rack in brokers}
    return len({rack_of[each] for each in replicas})


@given(clusters, st.integers(1, 40), st.integers(1, 3), st.data())
def test_whoever_leaves_holds_nothing_and_nobody_else_moves(
    brokers: Brokers, count: int, replication_factor: int, data: st.DataObject
) -> None:
    assume(replication_factor < len(brokers))
    held = dict(enumerate(assign(count, replication_factor, brokers, start=0)))
    most = len(brokers) - replication_factor
    leaving = data.draw(st.sets(st.sampled_from([each for each, _ in brokers]), min_size=1, max_size=most))
    stays = [each for each in brokers if each[0] not in leaving]
    targets = emptied(held, brokers, leaving)
    for key, replicas in held.items():
        target = targets.get(key, replicas)
        assert not leaving & set(target)
        assert len(set(target)) == replication_factor
        assert all(new == old for new, old in zip(target, replicas, strict=True) if old not in leaving)
        kept = tuple(each for each in replicas if each not in leaving)
        possible = len({broker_id if rack is None else rack for broker_id, rack in stays})
        assert spread(target, brokers) >= min(spread(kept, brokers) + len(replicas) - len(kept), possible)
        assert (key in targets) == bool(leaving & set(replicas))


def test_what_a_broker_carried_is_shared_by_all_others() -> None:
    brokers: Brokers = [(each, None) for each in range(1, 6)]
    held = dict(enumerate(assign(100, 3, brokers, start=0)))
    after = held | emptied(held, brokers, [5])
    load = Counter(each for replicas in after.values() for each in replicas)
    leaders = Counter(replicas[0] for replicas in after.values())
    assert max(load.values()) - min(load.values()) <= 4, "a twentieth of the 75 that are due to each"
    assert sorted(leaders.values()) == [25, 25, 25, 25]


def test_too_few_brokers_left_are_refused() -> None:
    with pytest.raises(InvalidReplicationFactor, match="3 replicas, and only 2 brokers would be left"):
        emptied({"p": (1, 2, 3)}, [(1, None), (2, None), (3, None)], [3])


def test_a_broker_that_nobody_knows_any_more_is_emptied() -> None:
    assert emptied({"p": (9, 1)}, [(1, None), (2, None)], [9]) == {"p": (2, 1)}


@given(clusters, st.integers(0, 40), st.integers(1, 3), st.integers(0, 3))
def test_evening_out_keeps_racks_apart_and_ends(
    brokers: Brokers, count: int, replication_factor: int, late: int
) -> None:
    before = brokers[: max(1, len(brokers) - late)]
    assume(replication_factor <= len(before))
    held = dict(enumerate(assign(count, replication_factor, before, start=1)))
    targets = evened_out(held, brokers)
    after = held | targets
    for key, replicas in after.items():
        assert len(set(replicas)) == replication_factor
        assert spread(replicas, brokers) >= spread(held[key], brokers)
    load = Counter(dict.fromkeys([each for each, _ in brokers], 0))
    load.update(each for replicas in after.values() for each in replicas)
    before_load = Counter(dict.fromkeys([each for each, _ in brokers], 0))
    before_load.update(each for replicas in held.values() for each in replicas)
    assert max(load.values()) <= max(before_load.values())
    if all(rack is None for _, rack in brokers):
        assert max(load.values()) - min(load.values()) <= 1
    assert not evened_out(after, brokers), "a second look finds nothing left to do"


def test_a_new_broker_gets_its_share_of_replicas_and_of_leaders_with_the_fewest_moves() -> None:
    brokers: Brokers = [(each, None) for each in range(1, 5)]
    held = dict(enumerate(assign(60, 3, brokers[:3], start=0)))
    targets = evened_out(held, brokers)
    after = held | targets
    assert len(targets) == 45  # of 180 replicas a fourth
    assert Counter(each for replicas in after.values() for each in replicas) == dict.fromkeys(range(1, 5), 45)
    leaders = Counter(replicas[0] for replicas in after.values())
    assert max(leaders.values()) - min(leaders.values()) <= 1


def test_a_closed_broker_keeps_what_it_has_and_is_given_nothing() -> None:
    brokers: Brokers = [(each, None) for each in range(1, 5)]
    held = {0: (1, 2), 1: (2, 3), 2: (3, 1)}
    assert emptied(held, brokers, [1], closed=[2]) == {0: (4, 2), 2: (3, 4)}
