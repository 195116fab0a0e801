"""When the active segment is closed."""

from typing import Any

import pytest

from tiered.rules.partition.rolling import (
    MAX_RELATIVE_OFFSET,
    SMALL_AT_ONCE,
    SMALL_PER_S,
    SMALL_SEGMENT_BYTES,
    SmallClosesState,
    should_roll,
)


def rolls(**changes: Any) -> bool:
    values: dict[str, Any] = {
        "segment_bytes_now": 500,
        "incoming_bytes": 100,
        "first_append_ms": 1_000,
        "now_ms": 2_000,
        "segment_bytes": 1_000,
        "segment_ms": 5_000,
        "base_offset": 100,
        "incoming_last_offset": 120,
        "index_is_full": False,
    }
    return should_roll(**(values | changes))


def test_a_young_segment_with_room_stays() -> None:
    assert not rolls()


@pytest.mark.parametrize(("incoming", "expected"), [(500, False), (501, True)])
def test_size_rolls_before_the_append_that_would_exceed_it(incoming: int, expected: bool) -> None:
    assert rolls(incoming_bytes=incoming) is expected


@pytest.mark.parametrize(("now_ms", "expected"), [(5_999, False), (6_000, True)])
def test_age_counts_from_the_first_append(now_ms: int, expected: bool) -> None:
    assert rolls(now_ms=now_ms) is expected


def test_age_alone_rolls_a_log_at_rest() -> None:
    assert rolls(incoming_bytes=0, incoming_last_offset=100, now_ms=6_000)


def test_a_clock_that_went_back_rolls_nothing() -> None:
    assert not rolls(now_ms=-1_000_000)


def test_an_empty_segment_takes_any_batch() -> None:
    assert not rolls(segment_bytes_now=0, incoming_bytes=10**9, first_append_ms=None, now_ms=10**9, index_is_full=True)


@pytest.mark.parametrize(("beyond", "expected"), [(0, False), (1, True)])
def test_offsets_too_far_from_the_base_roll(beyond: int, expected: bool) -> None:
    assert rolls(incoming_last_offset=100 + MAX_RELATIVE_OFFSET + beyond) is expected


def test_a_full_index_rolls() -> None:
    assert rolls(index_is_full=True)


def test_small_segments_are_closed_at_a_bounded_rate_and_large_ones_at_any() -> None:
    closes, now_ms = SmallClosesState(), 10**12
    assert sum(closes.may_close(100, now_ms) for _ in range(10 * SMALL_AT_ONCE)) == SMALL_AT_ONCE
    assert all(closes.may_close(SMALL_SEGMENT_BYTES, now_ms) for _ in range(10))
    assert sum(closes.may_close(100, now_ms + 1000) for _ in range(100)) == SMALL_PER_S
    assert not closes.may_close(100, now_ms - 10**9), "the clock went back"
    assert closes.may_close(100, now_ms - 10**9 + 1000)
