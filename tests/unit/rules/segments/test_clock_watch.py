"""A clock that jumps ahead is not believed, however long ago it was; one that goes on, or back, is."""

from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.segments.clock_watch import NEVER_MIND, Judgement, Reading, look

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def at(wall_ms: int, elapsed_ms: float) -> Reading:
    return Reading(wall_ms=START_MS + wall_ms, elapsed_ms=elapsed_ms)


def judged(*readings: Reading, database_ms: int | None = None, max_jump_ms: int = HOUR_MS) -> Judgement:
    found: Judgement | None = None
    for each in readings:
        found = look(found, each, database_ms=database_ms, max_jump_ms=max_jump_ms)
    assert found is not None
    return found


def test_the_first_reading_is_believed_and_so_is_the_passage_of_time() -> None:
    assert judged(at(0, 5)).is_trusted
    assert judged(at(0, 5), at(9 * HOUR_MS, 5 + 9 * HOUR_MS)).is_trusted


def test_a_jump_of_more_than_is_allowed_says_how_far_it_went() -> None:
    assert judged(at(0, 0), at(HOUR_MS, 0)).is_trusted
    found = judged(at(0, 0), at(HOUR_MS + 1, 0))
    assert (found.is_trusted, found.jumped_ms, found.ahead_ms) == (False, HOUR_MS + 1, HOUR_MS + 1)


def test_a_clock_that_is_set_back_is_believed_again() -> None:
    assert judged(at(0, 0), at(9 * HOUR_MS, 1), at(10, 10)).is_trusted


def test_a_clock_far_ahead_of_the_databases_is_not_believed_from_the_start() -> None:
    found = judged(at(2 * HOUR_MS, 0), database_ms=START_MS)
    assert (found.jumped_ms, found.ahead_of_database_ms) == (0, 2 * HOUR_MS)
    assert not found.is_trusted
    # Not asked: its clock goes on from what it said.
    assert not look(found, at(2 * HOUR_MS + 5, 5), database_ms=None, max_jump_ms=HOUR_MS).is_trusted
    assert look(found, at(5, 5), database_ms=None, max_jump_ms=HOUR_MS).is_trusted
    assert look(found, at(2 * HOUR_MS, 0), database_ms=START_MS + HOUR_MS, max_jump_ms=HOUR_MS).is_trusted


def test_a_clock_behind_the_databases_is_believed() -> None:
    assert judged(at(0, 0), database_ms=START_MS + 99 * HOUR_MS).is_trusted


def test_somebody_can_say_that_the_clock_is_right() -> None:
    jumped = judged(at(0, 0), at(99 * HOUR_MS, 0))
    assert not jumped.is_trusted
    for allowed in (NEVER_MIND, 100 * HOUR_MS):
        believed = look(jumped, at(99 * HOUR_MS, 1), database_ms=None, max_jump_ms=allowed)
        assert believed.is_trusted
        # From here on it is believed under the old bound too, unless the database says otherwise.
        assert look(believed, at(99 * HOUR_MS, 1), database_ms=None, max_jump_ms=HOUR_MS).is_trusted
        assert not look(believed, at(99 * HOUR_MS, 1), database_ms=START_MS, max_jump_ms=HOUR_MS).is_trusted


@given(st.lists(st.tuples(st.integers(0, 10 * HOUR_MS), st.integers(-20 * HOUR_MS, HOUR_MS)), max_size=20))
def test_whatever_passes_or_goes_back_a_clock_without_a_jump_is_always_believed(steps: list[tuple[int, int]]) -> None:
    wall_ms = elapsed_ms = 0
    readings = [at(0, 0)]
    for passed_ms, set_by_ms in steps:
        elapsed_ms += passed_ms
        wall_ms += passed_ms + set_by_ms
        readings.append(at(wall_ms, elapsed_ms))
    assert judged(*readings).is_trusted


@given(
    jump_ms=st.integers(HOUR_MS + 1, 10**13),
    waits_ms=st.lists(st.integers(0, 10**9), max_size=20),
    allowed_ms=st.integers(0, HOUR_MS),
)
def test_a_jump_is_never_forgiven_because_it_was_long_ago(jump_ms: int, waits_ms: list[int], allowed_ms: int) -> None:
    now_ms = 0
    readings = [at(0, 0), at(jump_ms, 0)]
    for each in waits_ms:
        now_ms += each
        readings.append(at(now_ms + jump_ms, now_ms))
    assert judged(*readings, max_jump_ms=allowed_ms).ahead_ms == jump_ms
