"""How much runs at once against a store that has had enough, and how long all uploads rest while it is away."""

from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.pacing import adaptive_limit, upload_pace
from tiered.rules.pacing.adaptive_limit import AdaptiveLimit
from tiered.rules.pacing.upload_pace import FIRST_REST_MS, MAX_REST_MS, UploadPace, full_pace

EVENTS = st.lists(st.tuples(st.booleans(), st.integers(0, 100), st.integers(0, 100)), max_size=60)


def refused(limit: AdaptiveLimit, *, at_ms: float) -> AdaptiveLimit:
    return adaptive_limit.overloaded(limit, began_ms=at_ms, now_ms=at_ms)


def test_each_sign_of_overload_halves_and_successes_give_back_one_by_one() -> None:
    limit = refused(adaptive_limit.unlimited(16, step=20), at_ms=1)
    assert limit.allowed == 8
    limit = refused(limit, at_ms=2)
    assert limit.allowed == 4
    for _ in range(19):
        limit = adaptive_limit.succeeded(limit)
    assert limit.allowed == 4
    assert adaptive_limit.succeeded(limit).allowed == 5


def test_what_is_refused_together_is_one_sign() -> None:
    limit = adaptive_limit.unlimited(16, step=20)
    for at_ms in range(10, 20):
        limit = adaptive_limit.overloaded(limit, began_ms=5, now_ms=at_ms)
    assert limit.allowed == 8
    assert adaptive_limit.overloaded(limit, began_ms=11, now_ms=30).allowed == 4


@given(most=st.integers(1, 64), step=st.integers(1, 20), events=EVENTS)
def test_the_limit_stays_in_its_bounds_and_recovers_completely(
    most: int, step: int, events: list[tuple[bool, int, int]]
) -> None:
    limit, now_ms = adaptive_limit.unlimited(most, step=step), 0
    for is_success, passed_ms, age_ms in events:
        now_ms += passed_ms
        before = limit.allowed
        if is_success:
            limit = adaptive_limit.succeeded(limit)
            assert before <= limit.allowed <= before + 1
        else:
            limit = adaptive_limit.overloaded(limit, began_ms=now_ms - age_ms, now_ms=now_ms)
            assert limit.allowed in (before, max(1, before // 2))
        assert 1 <= limit.allowed <= most
    for _ in range(most * step):
        limit = adaptive_limit.succeeded(limit)
    assert limit.allowed == most


def after_failures(count: int, *, uploads: int = 4) -> tuple[UploadPace, float]:
    pace, now_ms = full_pace(uploads), 0.0
    for _ in range(count):
        now_ms = max(now_ms + 1, pace.rest_until_ms)
        assert upload_pace.may_begin(pace, running=0, now_ms=now_ms)
        pace = upload_pace.failed(pace, began_ms=now_ms, now_ms=now_ms)
    return pace, now_ms


def test_a_store_that_is_away_is_asked_by_one_upload_and_ever_more_seldom() -> None:
    rests = [pace.rest_until_ms - now_ms for pace, now_ms in map(after_failures, range(1, 10))]
    assert rests[:4] == [FIRST_REST_MS, 2 * FIRST_REST_MS, 4 * FIRST_REST_MS, 8 * FIRST_REST_MS]
    assert rests[-1] == MAX_REST_MS
    pace, now_ms = after_failures(5000)
    assert pace.rest_until_ms - now_ms == MAX_REST_MS
    assert not upload_pace.may_begin(pace, running=0, now_ms=pace.rest_until_ms - 1)
    assert upload_pace.may_begin(pace, running=0, now_ms=pace.rest_until_ms)
    assert not upload_pace.may_begin(pace, running=1, now_ms=pace.rest_until_ms)


def test_uploads_that_fail_together_rest_once() -> None:
    pace = full_pace(8)
    for now_ms in (10, 11, 12):
        pace = upload_pace.failed(pace, began_ms=1, now_ms=now_ms)
    assert (pace.limit.allowed, pace.failures, pace.rest_until_ms) == (4, 1, 10 + FIRST_REST_MS)


def test_the_first_success_ends_the_rest_and_each_one_allows_one_more() -> None:
    pace, now_ms = after_failures(9)
    for allowed in (2, 3, 4, 4):
        pace = upload_pace.succeeded(pace)
        assert pace.limit.allowed == allowed
        assert upload_pace.may_begin(pace, running=allowed - 1, now_ms=now_ms)
        assert not upload_pace.may_begin(pace, running=allowed, now_ms=now_ms)
    # What fails next is a first failure again.
    again = upload_pace.failed(pace, began_ms=now_ms, now_ms=now_ms)
    assert again.rest_until_ms == now_ms + FIRST_REST_MS
