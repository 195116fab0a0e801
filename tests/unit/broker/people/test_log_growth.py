"""How old a lag is: never older than it is, and nearly as old however long a log is watched."""

from hypothesis import given
from hypothesis import strategies as st

from tiered.broker.people.log_growth import AGE_RATIO, MAX_POINTS, LogGrowth

DAY_MS = 86_400_000


def test_an_offset_is_as_old_as_the_look_that_first_saw_it() -> None:
    growth = LogGrowth()
    assert growth.grew_past(0) is None
    growth.observe(10, 1000)
    growth.observe(10, 2000)
    growth.observe(25, 3000)
    assert [growth.grew_past(offset) for offset in (0, 9, 10, 24, 25)] == [1000, 1000, 3000, 3000, None]


def test_a_replica_that_is_a_moment_behind_changes_nothing() -> None:
    growth = LogGrowth()
    growth.observe(10, 1000)
    growth.observe(8, 2000)
    growth.observe(12, 3000)
    assert [growth.grew_past(offset) for offset in (7, 9, 11)] == [1000, 1000, 3000]


@given(intervals=st.lists(st.integers(200, 20_000), min_size=2, max_size=3000), stride=st.integers(1, 7))
def test_the_age_is_no_more_than_the_true_one_and_not_much_less(intervals: list[int], stride: int) -> None:
    """Each look sees one record more. What is dropped costs a part of the age, and points stay within their bound."""
    growth, seen_ms, now_ms = LogGrowth(), [], 0
    for number, interval in enumerate(intervals):
        now_ms += interval
        seen_ms.append(now_ms)
        growth.observe(number + 1, now_ms)
    for offset in range(0, len(seen_ms), stride):
        grew_ms = growth.grew_past(offset)
        assert grew_ms is not None
        true_age, age = now_ms - seen_ms[offset], now_ms - grew_ms
        assert true_age / AGE_RATIO - 20_000 <= age <= true_age
    assert len(growth._offsets) <= MAX_POINTS


def test_a_day_is_remembered() -> None:
    growth = LogGrowth()
    for now_ms in range(0, DAY_MS, 5000):
        growth.observe(1 + now_ms // 5000, now_ms)
    grew_ms = growth.grew_past(1000)
    assert grew_ms is not None
    assert (DAY_MS - 5_000_000) / AGE_RATIO <= DAY_MS - grew_ms <= DAY_MS - 5_000_000


def test_what_was_seen_of_a_log_that_went_back_is_forgotten() -> None:
    growth = LogGrowth()
    growth.observe(1000, 1)
    for at_ms in (2, 3):
        growth.observe(500, at_ms)
    growth.observe(700, 50)
    assert growth.grew_past(600) == 50
