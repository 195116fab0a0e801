"""A client that rests as long as it is told gets its rate over time, and nobody is told to rest beyond a bound."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tiered.rules.pacing.token_bucket import TokenBucketState
from tiered.rules.security.quotas import MAX_VALUE

WINDOW_MS = 11_000.0
RATES = st.floats(0.5, 1e9)
ANY_QUOTA = st.floats(1e-300, MAX_VALUE)


def almost(value: float) -> float:
    return value * (1 + 1e-6) + 1e-6


@given(rate=RATES, shares=st.lists(st.floats(0.001, 1.0), min_size=50, max_size=200), pause_ms=st.floats(0.0, 20.0))
def test_who_rests_as_told_gets_the_rate_within_some_percent(rate: float, shares: list[float], pause_ms: float) -> None:
    bucket = TokenBucketState(rate, window_ms=WINDOW_MS, now_ms=0.0)
    now_ms, taken, last = 0.0, 0.0, 0.0
    is_held = False
    for share in shares * 5:
        last = share * bucket.capacity
        taken += last
        rest_ms = bucket.take(last, now_ms)
        now_ms += rest_ms + (0.0 if rest_ms else min(pause_ms, 900.0 * last / rate))
        is_held = is_held or rest_ms > 0
    # Beside the rate it got what a new client may take at once, and owes nothing once it has rested.
    assert taken <= almost(rate * now_ms / 1000.0 + bucket.capacity)
    if is_held and now_ms > 100 * WINDOW_MS:
        assert taken >= rate * now_ms / 1000.0 * 0.97


@given(
    rate=RATES,
    amounts=st.lists(st.tuples(st.floats(0.0, 1e12), st.floats(0.0, 60_000.0)), min_size=1, max_size=100),
    window_ms=st.floats(100.0, 60_000.0),
)
def test_nobody_rests_longer_than_one_measure(
    rate: float, amounts: list[tuple[float, float]], window_ms: float
) -> None:
    bucket, now_ms = TokenBucketState(rate, window_ms=window_ms, now_ms=0.0), 0.0
    for amount, passed_ms in amounts:
        now_ms += passed_ms
        assert 0.0 <= bucket.take(amount, now_ms) <= almost(window_ms)
        assert 0.0 <= bucket.rest_ms(now_ms + passed_ms) <= almost(window_ms)


@given(
    rate=RATES,
    clients=st.lists(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30), min_size=2, max_size=5),
)
def test_several_that_share_a_quota_get_no_more_than_it_together(rate: float, clients: list[list[float]]) -> None:
    bucket = TokenBucketState(rate, window_ms=WINDOW_MS, now_ms=0.0)
    taken = ends_ms = 0.0
    due = [(0.0, number, list(shares)) for number, shares in enumerate(clients)]
    while due:
        due.sort()
        now_ms, number, shares = due.pop(0)
        if not shares:
            continue
        amount = shares.pop() * bucket.capacity / len(clients)
        taken += amount
        rest_ms = bucket.take(amount, now_ms)
        ends_ms = max(ends_ms, now_ms + rest_ms)
        due.append((now_ms + max(rest_ms, 1.0), number, shares))
    assert taken <= almost(rate * ends_ms / 1000.0 + bucket.capacity)


@given(rate=RATES | ANY_QUOTA, other=RATES | ANY_QUOTA, amount=st.floats(0.0, 1e12), passed_ms=st.floats(0.0, 60_000.0))
@example(rate=1e-300, other=MAX_VALUE, amount=1.0, passed_ms=0.0)
def test_another_rate_keeps_the_rest_that_was_given(rate: float, other: float, amount: float, passed_ms: float) -> None:
    bucket = TokenBucketState(rate, window_ms=WINDOW_MS, now_ms=0.0)
    bucket.take(amount, 0.0)
    before_ms = bucket.rest_ms(passed_ms)
    bucket.change_rate(other, passed_ms)
    assert bucket.rest_ms(passed_ms) == pytest.approx(before_ms, rel=1e-6, abs=1e-3)


def test_time_that_stands_still_or_goes_back_gives_nothing() -> None:
    bucket = TokenBucketState(100.0, window_ms=1000.0, now_ms=500.0)
    assert bucket.take(150.0, 500.0) == 500.0
    assert bucket.rest_ms(400.0) == 500.0
    assert bucket.rest_ms(750.0) == 250.0
    assert not bucket.is_full(1_999.0)
    assert bucket.is_full(2_000.0)


def test_whoever_must_not_owe_takes_nothing_until_its_rest_is_over() -> None:
    bucket = TokenBucketState(10.0, window_ms=1000.0, now_ms=0.0)
    assert bucket.try_take(15.0, 0.0) == 0.0
    assert bucket.try_take(1.0, 0.0) == 500.0
    assert bucket.try_take(1.0, 500.0) == 1.0
    assert bucket.try_take(1.0, 501.0) == 0.0
