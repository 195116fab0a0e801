"""How many cold loads run beside a tail: one at first, more while nothing is late, all while there is no tail."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.pacing import cold_pace
from tiered.rules.pacing.cold_pace import FIRST_PAUSE_MS, LATE_SHARE, LONGEST_PAUSE_MS, ColdPace, alone, observed

LATE, IN_TIME = LATE_SHARE * 2, 0.0


def later(pace: ColdPace, now_ms: float, *, late: bool = False) -> ColdPace:
    return observed(pace, late_share=LATE if late else IN_TIME, tail_is_used=True, now_ms=now_ms)


def test_without_a_tail_all_may_load_however_late_the_loop_is() -> None:
    assert observed(alone(8), late_share=0.9, tail_is_used=False, now_ms=0.0).allowed == 8


def test_a_tail_leaves_one_and_its_end_gives_all_back() -> None:
    beside = later(alone(8), 1_000.0)
    assert beside.allowed == 1
    assert observed(beside, late_share=LATE, tail_is_used=False, now_ms=1_200.0) == alone(8)


def test_more_are_tried_one_by_one_and_sooner_each_time_while_nothing_is_late() -> None:
    pace, now_ms, raised_at_ms = later(alone(8), 0.0), 0.0, []
    while pace.allowed < 8:
        now_ms += 100.0
        raised = later(pace, now_ms)
        if raised.allowed > pace.allowed:
            assert raised.allowed == pace.allowed + 1
            raised_at_ms.append(now_ms)
        pace = raised
    pauses_ms = [after - before for before, after in pairwise([0.0, *raised_at_ms])]
    assert pauses_ms == [2_000.0, 2_000.0, 1_000.0, 500.0, 500.0, 500.0, 500.0]
    assert later(pace, now_ms + 1e9) == pace


def test_lateness_halves_and_a_try_that_fails_again_and_again_is_made_ever_more_seldom() -> None:
    pace, now_ms, tries_at_ms = later(alone(8), 0.0), 0.0, []
    for _ in range(8):
        now_ms = pace.tries_at_ms
        tries_at_ms.append(now_ms)
        assert later(pace, now_ms - 1.0).allowed == 1
        tried = later(pace, now_ms)
        assert tried.allowed == 2
        pace = later(tried, now_ms + 200.0, late=True)
        assert pace.allowed == 1
    gaps_ms = [round(after - before - 200.0) for before, after in pairwise(tries_at_ms)]
    assert gaps_ms == [4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
    assert max(gaps_ms) == LONGEST_PAUSE_MS


def test_no_try_is_made_while_even_one_is_late() -> None:
    pace = later(alone(8), 0.0)
    for now_ms in range(200, 20_000, 200):
        pace = later(pace, float(now_ms), late=True)
        assert pace.allowed == 1
    assert later(pace, 19_800.0 + FIRST_PAUSE_MS - 1.0).allowed == 1
    assert later(pace, 19_800.0 + FIRST_PAUSE_MS).allowed == 2


@given(
    most=st.integers(1, 256),
    steps=st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans(), st.floats(0.0, 100_000.0)), max_size=100),
)
def test_the_pace_stays_between_one_and_all(most: int, steps: list[tuple[float, bool, float]]) -> None:
    pace, now_ms = alone(most), 0.0
    for late_share, tail_is_used, passed_ms in steps:
        now_ms += passed_ms
        pace = observed(pace, late_share=late_share, tail_is_used=tail_is_used, now_ms=now_ms)
        assert 1 <= pace.allowed <= most
        assert cold_pace.SHORTEST_PAUSE_MS <= pace.pause_ms <= LONGEST_PAUSE_MS
