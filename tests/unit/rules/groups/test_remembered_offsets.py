"""The two times of R12: how long a coordinator answers from memory, and how long its successor waits."""

from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.groups.remembered_offsets import (
    ANSWERS_MS,
    ASKS_AGAIN_MS,
    SUCCESSOR_WAITS_MS,
    is_to_be_asked_again,
    may_answer,
    successor_waits_ms,
)

TIMES = st.floats(min_value=0, max_value=10_000)
RATES = st.floats(min_value=0.9, max_value=1.1)
"""Of a clock, beside the time that passes."""


@given(asked=TIMES, later=TIMES, gained_after=TIMES, rates=st.tuples(RATES, RATES))
def test_nobody_answers_from_memory_any_more_when_a_successor_writes(
    asked: float, later: float, gained_after: float, rates: tuple[float, float]
) -> None:
    """SQL said that the slot was its holder's, then gave it away, then its new holder heard of it."""
    old_rate, new_rate = rates
    gained = asked + gained_after
    answers = may_answer(asked_ms=asked * old_rate, now_ms=(asked + later) * old_rate)
    writes = successor_waits_ms(gained_ms=gained * new_rate, now_ms=(asked + later) * new_rate) == 0
    assert not (answers and writes and asked + later >= gained)


def test_both_begin_at_once_and_have_an_end() -> None:
    assert may_answer(asked_ms=7, now_ms=7)
    assert not may_answer(asked_ms=7, now_ms=7 + ANSWERS_MS)
    assert successor_waits_ms(gained_ms=7, now_ms=7) == SUCCESSOR_WAITS_MS
    assert successor_waits_ms(gained_ms=7, now_ms=7 + SUCCESSOR_WAITS_MS) == 0
    assert successor_waits_ms(gained_ms=7, now_ms=1e9) == 0


def test_sql_is_asked_again_while_what_is_remembered_still_counts() -> None:
    assert not is_to_be_asked_again(asked_ms=7, now_ms=7)
    assert is_to_be_asked_again(asked_ms=7, now_ms=7 + ASKS_AGAIN_MS)
    assert may_answer(asked_ms=7, now_ms=7 + ASKS_AGAIN_MS)
