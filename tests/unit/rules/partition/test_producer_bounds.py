"""Whose producers are forgotten when there are too many."""

from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.partition.producer_state import most_each


def test_who_has_few_loses_none_to_who_has_many() -> None:
    assert most_each([3, 1_000_000, 7, 500_000], 1010) == 500
    assert most_each([3, 7], 1010) == 7
    assert most_each([], 10) == 1


def test_the_one_producer_of_a_partition_stays() -> None:
    assert most_each([1, 1, 1, 1], 2) == 1


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(0, 5000))
def test_all_together_keep_no_more_than_they_may_and_hardly_less(counts: list[int], limit: int) -> None:
    most = most_each(counts, limit)
    kept = sum(min(each, most) for each in counts)
    assert kept <= max(limit, len(counts))
    if most < max(counts, default=0):
        assert sum(min(each, most + 1) for each in counts) > limit
