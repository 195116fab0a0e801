"""The rings of lag samples: what is kept, for whom, and what a gap looks like."""

from tiered.broker.people.lag_history import LagRings, Sample


def history(rings: LagRings, group_id: str, since_ms: int = 0) -> list[tuple[int, int | None]]:
    return [(each.at_ms, each.lag) for each in rings.history(group_id, since_ms=since_ms)]


def test_oldest_samples_make_room_for_the_newest() -> None:
    rings = LagRings(samples=4)
    for number in range(11):
        rings.add(100 * number, {"g": number})
    assert history(rings, "g") == [(700, 7), (800, 8), (900, 9), (1000, 10)]
    assert history(rings, "g", since_ms=900) == [(900, 9), (1000, 10)]


def test_sample_without_the_group_is_a_gap() -> None:
    rings = LagRings(samples=4)
    rings.add(1, {"g": 5})
    rings.add(2, {})
    rings.add(3, {"g": 0, "late": 7})
    assert history(rings, "g") == [(1, 5), (2, None), (3, 0)]
    assert rings.history("late", since_ms=0) == [Sample(at_ms=3, lag=7)]
    assert history(rings, "never") == []


def test_old_turn_of_the_ring_does_not_show_through_a_gap() -> None:
    rings = LagRings(samples=2)
    rings.add(1, {"g": 5})
    rings.add(2, {"g": 6})
    rings.add(3, {})
    assert history(rings, "g") == [(2, 6), (3, None)]
    rings.add(4, {})
    assert history(rings, "g") == []


def test_groups_are_bounded_and_those_long_gone_go_first() -> None:
    rings = LagRings(samples=2, max_groups=2)
    rings.add(1, {"a": 1, "b": 1, "c": 1})
    assert history(rings, "c") == []
    rings.add(2, {"b": 2})
    rings.add(3, {"b": 3, "c": 3})
    assert history(rings, "a") == []
    assert history(rings, "c") == [(3, 3)]
    assert history(rings, "b") == [(2, 2), (3, 3)]


def test_group_without_a_ring_leaves_no_gap_in_the_rings_of_those_behind_it() -> None:
    rings = LagRings(samples=3, max_groups=2)
    rings.add(1, {"b": 1, "c": 1})
    rings.add(2, {"a": 2, "b": 2, "bb": 2, "c": 2})
    assert history(rings, "b") == [(1, 1), (2, 2)]
    assert history(rings, "c") == [(1, 1), (2, 2)]
