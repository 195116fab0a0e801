"""Placement: every partition has its replicas, as far apart as there is room, and nobody carries more than others."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.errors import InvalidReplicationFactor
from tiered.rules.replication.placement import BrokerPlace, assign, place_of

racks = st.sampled_from([None, "a", "b", "c", "d"])
brokers = st.lists(st.tuples(st.integers(0, 1000), racks), min_size=1, max_size=12, unique_by=lambda each: each[0])
even_brokers = st.tuples(st.integers(1, 4), st.integers(1, 3)).map(
    lambda shape: [(rack * 10 + each, f"rack-{rack}") for rack in range(shape[0]) for each in range(shape[1])]
)
counts = st.integers(0, 60)
starts = st.integers(0, 10_000)


def rack_of(each: tuple[int, str | None]) -> object:
    return each[0] if each[1] is None else each[1]


@given(brokers, counts, starts, st.data())
def test_each_partition_has_its_replicas_on_as_many_racks_as_there_are(
    brokers: list[tuple[int, str | None]], count: int, start: int, data: st.DataObject
) -> None:
    replication_factor = data.draw(st.integers(1, len(brokers)))
    racks = {each[0]: rack_of(each) for each in brokers}
    found = assign(count, replication_factor, brokers, start=start)
    assert len(found) == count
    for replicas in found:
        assert len(set(replicas)) == replication_factor
        assert len({racks[each] for each in replicas}) == min(replication_factor, len(set(racks.values())))


@given(brokers, counts, starts, st.data())
def test_no_rack_has_two_replicas_more_than_another_that_has_room(
    brokers: list[tuple[int, str | None]], count: int, start: int, data: st.DataObject
) -> None:
    replication_factor = data.draw(st.integers(1, len(brokers)))
    racks = {each[0]: rack_of(each) for each in brokers}
    sizes = Counter(racks.values())
    for replicas in assign(count, replication_factor, brokers, start=start):
        held = Counter(racks[each] for each in replicas)
        most = max(held.values())
        assert all(held[rack] >= most - 1 or held[rack] == sizes[rack] for rack in sizes)


@given(brokers, counts, starts, st.data())
def test_each_broker_leads_as_many_as_any_other(
    brokers: list[tuple[int, str | None]], count: int, start: int, data: st.DataObject
) -> None:
    replication_factor = data.draw(st.integers(1, len(brokers)))
    led = Counter(replicas[0] for replicas in assign(count, replication_factor, brokers, start=start))
    shares = [led[broker_id] for broker_id, _ in brokers]
    assert max(shares) - min(shares) <= 1


@given(even_brokers, counts, starts, st.data())
def test_replicas_are_even_where_racks_are(
    brokers: list[tuple[int, str | None]], count: int, start: int, data: st.DataObject
) -> None:
    replication_factor = data.draw(st.integers(1, len(brokers)))
    found = assign(count, replication_factor, brokers, start=start)
    held = Counter(broker_id for replicas in found for broker_id in replicas)
    shares = [held[broker_id] for broker_id, _ in brokers]
    assert max(shares) - min(shares) <= 2


@given(brokers, starts, st.randoms(use_true_random=False))
def test_the_same_start_gives_the_same_whatever_the_order_of_brokers(
    brokers: list[tuple[int, str | None]], start: int, random: object
) -> None:
    shuffled = list(brokers)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assign(20, len(brokers), brokers, start=start) == assign(20, len(brokers), shuffled, start=start)


def test_another_start_begins_with_another_broker() -> None:
    brokers = [(1, None), (2, None), (3, None)]
    assert {assign(1, 1, brokers, start=start)[0] for start in range(3)} == {(1,), (2,), (3,)}


def test_a_dead_leaders_partitions_fall_to_all_others() -> None:
    brokers = [(each, None) for each in range(1, 6)]
    next_in_line = Counter(replicas[1] for replicas in assign(100, 3, brokers, start=0) if replicas[0] == 1)
    assert sorted(next_in_line) == [2, 3, 4, 5]


def test_with_a_replica_on_every_broker_the_next_in_line_differs_too() -> None:
    brokers = [(1, None), (2, None), (3, None)]
    next_in_line = Counter(replicas[1] for replicas in assign(6, 3, brokers, start=0) if replicas[0] == 1)
    assert next_in_line == {2: 1, 3: 1}


def test_brokers_without_a_rack_share_one_with_those_of_their_host() -> None:
    places = [place_of(broker_id, rack=None, host="ab"[broker_id % 2]) for broker_id in range(8)]
    for first, second in assign(12, 2, places, start=0):
        assert first % 2 != second % 2
    assert place_of(1, rack="zone", host="a") == BrokerPlace(1, "zone")


def test_processes_of_one_host_share_no_partition_while_there_is_another_host() -> None:
    brokers = [(1, "host-a"), (2, "host-a"), (3, "host-b"), (4, "host-b")]
    for replicas in assign(40, 2, brokers, start=3):
        assert len({each <= 2 for each in replicas}) == 2


@pytest.mark.parametrize("replication_factor", [0, -1, 4])
def test_more_replicas_than_brokers_are_refused(replication_factor: int) -> None:
    with pytest.raises(InvalidReplicationFactor, match=f"factor {replication_factor}, but there are 3 brokers; use 1"):
        assign(1, replication_factor, [(1, None), (2, None), (3, None)], start=0)


def test_no_brokers_are_refused() -> None:
    with pytest.raises(InvalidReplicationFactor, match="start one"):
        assign(1, 1, [], start=0)
