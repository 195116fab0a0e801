"""Slots spread evenly over the brokers that live, and nothing moves that need not."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.groups.coordinator_slot import assigned

BROKERS = st.sets(st.integers(0, 7), max_size=6)
HOLDERS = st.lists(st.none() | st.integers(0, 7), max_size=60).map(lambda found: dict(enumerate(found)))


def after(holders: Mapping[int, int | None], changes: Mapping[int, int]) -> dict[int, int | None]:
    return {**holders, **changes}


def counts(holders: Mapping[int, int | None], live: set[int]) -> Counter[int]:
    found = Counter(dict.fromkeys(live, 0))
    found.update(broker_id for broker_id in holders.values() if broker_id in live)
    return found


@given(HOLDERS, BROKERS)
def test_every_slot_has_a_living_broker_and_none_has_two_more_than_another(
    holders: dict[int, int | None], live: set[int]
) -> None:
    changes = assigned(holders, live)
    assert changes.keys() <= holders.keys()
    if not live:
        assert changes == {}
        return
    found = after(holders, changes)
    assert set(found.values()) <= live
    count_of = counts(found, live)
    assert max(count_of.values()) - min(count_of.values()) <= 1


@given(HOLDERS, BROKERS)
def test_no_more_slots_move_than_must(holders: dict[int, int | None], live: set[int]) -> None:
    changes = assigned(holders, live)
    orphans = {slot for slot, broker_id in holders.items() if broker_id not in live}
    if not live:
        return
    assert orphans <= changes.keys(), "those of the dead first of all"
    before = counts(holders, live)
    least, more = divmod(len(holders), len(live))
    # The brokers that have most already keep one more.
    wanted = [least + (number < more) for number in range(len(live))]
    needed = sum(max(0, have - want) for have, want in zip(sorted(before.values(), reverse=True), wanted, strict=True))
    assert len(changes) - len(orphans) == needed
    assert all(holders[slot] != broker_id for slot, broker_id in changes.items())


@given(HOLDERS, BROKERS)
def test_what_is_balanced_stays_as_it_is(holders: dict[int, int | None], live: set[int]) -> None:
    found = after(holders, assigned(holders, live))
    assert assigned(found, live) == {}


@given(HOLDERS, BROKERS, st.sets(st.integers(0, 59)))
def test_only_slots_that_may_move_are_taken_from_the_living(
    holders: dict[int, int | None], live: set[int], may_move: set[int]
) -> None:
    changes = assigned(holders, live, may_move=may_move)
    for slot in changes:
        assert holders[slot] not in live or slot in may_move
    if not live:
        return
    found = after(holders, changes)
    assert set(found.values()) <= live, "nobody's slots go to somebody in any case"
    count_of = counts(found, live)
    for slot in may_move & holders.keys():
        holder = found[slot]
        assert holder is not None
        assert slot in changes or count_of[holder] - min(count_of.values()) <= 1, "what may move has moved"


def test_the_slots_of_a_dead_broker_go_to_those_with_the_fewest() -> None:
    holders: dict[int, int | None] = dict(enumerate([1, 1, 1, 2, 2, 2, 3, 3, 3]))
    assert assigned(holders, [1, 2]) == {6: 1, 7: 2, 8: 1}


def test_a_broker_that_joins_gets_its_share_and_nothing_else_moves() -> None:
    holders: dict[int, int | None] = dict.fromkeys(range(50), 1)
    changes = assigned(holders, [1, 2, 3])
    assert Counter(changes.values()) == {2: 17, 3: 16}
