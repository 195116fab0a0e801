"""The assignors: complete, disjoint, balanced, sticky, quick."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.errors import UnsupportedAssignor
from tiered.ids import TopicId
from tiered.rules.groups import assignors
from tiered.rules.groups.assignors import Partitions, Subscriber

A, B, C = (TopicId(UUID(int=number)) for number in (1, 2, 3))
TOPICS = (A, B, C)


def group(**topics: frozenset[TopicId]) -> dict[str, Subscriber]:
    return {name: Subscriber(topics=each) for name, each in topics.items()}


def again(members: dict[str, Subscriber], target: dict[str, Partitions]) -> dict[str, Subscriber]:
    """The same members, who have what they were given."""
    return {
        name: Subscriber(topics=each.topics, had=target.get(name, {}), instance_id=each.instance_id)
        for name, each in members.items()
    }


def pairs(partitions: Partitions) -> set[tuple[TopicId, int]]:
    return {(topic, partition) for topic, held in partitions.items() for partition in held}


def sizes(target: dict[str, Partitions]) -> dict[str, int]:
    return {name: len(pairs(partitions)) for name, partitions in target.items()}


def moved(before: dict[str, Partitions], after: dict[str, Partitions]) -> int:
    """Partitions that a member had and another one (or nobody) has now."""
    return sum(len(pairs(partitions) - pairs(after.get(name, {}))) for name, partitions in before.items())


subscriptions = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(8)]),
    st.frozensets(st.sampled_from(TOPICS)),
    min_size=1,
)
partition_counts = st.fixed_dictionaries({}, optional={topic: st.integers(1, 12) for topic in TOPICS})


@pytest.mark.parametrize("name", assignors.names())
@given(first=subscriptions, second=subscriptions, counts=partition_counts, grown=partition_counts)
def test_every_partition_goes_to_exactly_one_of_its_subscribers(
    name: str,
    first: dict[str, frozenset[TopicId]],
    second: dict[str, frozenset[TopicId]],
    counts: dict[TopicId, int],
    grown: dict[TopicId, int],
) -> None:
    target = assignors.assign(name, group(**first), counts)
    _check_whole(first, counts, target)
    later = assignors.assign(name, again(group(**second), target), grown)
    _check_whole(second, grown, later)


def _check_whole(
    topics: dict[str, frozenset[TopicId]], counts: dict[TopicId, int], target: dict[str, Partitions]
) -> None:
    assert set(target) == set(topics)
    given_out = [pair for partitions in target.values() for pair in pairs(partitions)]
    wanted = {topic for each in topics.values() for topic in each if topic in counts}
    assert sorted(given_out) == sorted((topic, index) for topic in wanted for index in range(counts[topic]))
    for name, partitions in target.items():
        assert set(partitions) <= topics[name]
        assert all(partitions.values()), "no topic without partitions"


@pytest.mark.parametrize("name", assignors.names())
@given(topics=subscriptions, counts=partition_counts)
def test_nothing_moves_when_nothing_has_changed(
    name: str, topics: dict[str, frozenset[TopicId]], counts: dict[TopicId, int]
) -> None:
    target = assignors.assign(name, group(**topics), counts)
    assert assignors.assign(name, again(group(**topics), target), counts) == target


@given(first=subscriptions, second=subscriptions, counts=partition_counts)
def test_uniform_leaves_no_move_that_would_even_out(
    first: dict[str, frozenset[TopicId]], second: dict[str, frozenset[TopicId]], counts: dict[TopicId, int]
) -> None:
    target = assignors.uniform(again(group(**second), assignors.uniform(group(**first), counts)), counts)
    count = sizes(target)
    for giver, partitions in target.items():
        for topic in partitions:
            for taker, subscribed in second.items():
                assert topic not in subscribed or count[giver] - count[taker] < 2


@given(old=st.integers(1, 8), new=st.integers(1, 8), partition_count=st.integers(1, 40))
def test_uniform_moves_as_few_partitions_as_balance_allows(old: int, new: int, partition_count: int) -> None:
    topics = frozenset({A})
    counts = {A: partition_count}
    before = assignors.uniform(group(**{f"m{number}": topics for number in range(old)}), counts)
    members = again(group(**{f"m{number}": topics for number in range(new)}), before)
    after = assignors.uniform(members, counts)
    assert max(sizes(after).values()) - min(sizes(after).values()) <= 1
    stayed = {name: partitions for name, partitions in before.items() if name in members}
    kept_at_most = sorted((len(pairs(each)) for each in stayed.values()), reverse=True)
    low, more = divmod(partition_count, new)
    room = [low + 1] * more + [low] * (new - more)
    must_move = sum(max(0, had - may) for had, may in zip(kept_at_most, room, strict=False))
    assert moved(stayed, after) == must_move


def test_uniform_balances_over_all_topics_together() -> None:
    target = assignors.uniform(group(m1=frozenset({A, B}), m2=frozenset({A, B})), {A: 1, B: 1})
    assert sizes(target) == {"m1": 1, "m2": 1}


def test_uniform_gives_more_to_the_member_that_others_cannot_help() -> None:
    target = assignors.uniform(group(m1=frozenset({A}), m2=frozenset({A, B})), {A: 4, B: 4})
    assert target == {"m1": {A: frozenset(range(4))}, "m2": {B: frozenset(range(4))}}


def test_range_gives_neighbours_and_the_remainder_to_the_first() -> None:
    topics = frozenset({A})
    target = assignors.range_(group(m1=topics, m2=topics, m3=topics), {A: 8})
    assert target == {
        "m1": {A: frozenset({0, 1, 2})}, "m2": {A: frozenset({3, 4, 5})}, "m3": {A: frozenset({6, 7})},
    }  # fmt: skip


@given(topics=subscriptions, count=st.integers(1, 12), more=subscriptions)
def test_range_cuts_topics_alike_that_share_size_and_subscribers(
    topics: dict[str, frozenset[TopicId]], count: int, more: dict[str, frozenset[TopicId]]
) -> None:
    both = {name: each | {A, B} if each & {A, B} else each for name, each in topics.items()}
    counts = {A: count, B: count, C: count}
    before = assignors.range_(group(**more), counts)
    for partitions in assignors.range_(again(group(**both), before), counts).values():
        assert partitions.get(A) == partitions.get(B)
        for held in partitions.values():
            assert max(held) - min(held) == len(held) - 1, "neighbours"


def test_range_keeps_the_order_of_members_when_one_joins() -> None:
    topics = frozenset({A})
    before = assignors.range_(group(b=topics, c=topics), {A: 6})
    after = assignors.range_(again(group(a=topics, b=topics, c=topics), before), {A: 6})
    assert after == {"b": {A: frozenset({0, 1})}, "c": {A: frozenset({2, 3})}, "a": {A: frozenset({4, 5})}}


def test_static_members_stand_in_the_order_of_their_instance_ids() -> None:
    members = {
        "x": Subscriber(topics=frozenset({A}), instance_id="2"),
        "y": Subscriber(topics=frozenset({A}), instance_id="1"),
    }
    assert assignors.range_(members, {A: 2}) == {"y": {A: frozenset({0})}, "x": {A: frozenset({1})}}


def test_unknown_assignor_is_named() -> None:
    with pytest.raises(UnsupportedAssignor, match=r"'best'.*uniform, range"):
        assignors.assign("best", {}, {})


@pytest.mark.parametrize("name", assignors.names())
def test_a_group_without_members_or_topics_is_assigned_nothing(name: str) -> None:
    assert assignors.assign(name, {}, {A: 3}) == {}
    assert assignors.assign(name, group(m1=frozenset({A})), {}) == {"m1": {}}
