"""Which tier answers a read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.errors import CorruptMetadata
from tiered.rules.partition.read_plan import CaughtUp, Cold, Hot, OutsideLog, plan

BOUNDS = {
    "log_start_offset": 100,
    "local_log_start_offset": 500,
    "cold_end_offset": 800,
    "readable_end_offset": 1000,
    "log_end_offset": 1010,
}


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (-1, OutsideLog(offset=-1, log_start_offset=100, log_end_offset=1010)),
        (99, OutsideLog(offset=99, log_start_offset=100, log_end_offset=1010)),
        (100, Cold(offset=100, end_offset=800)),
        (499, Cold(offset=499, end_offset=800)),
        (500, Hot(offset=500, end_offset=1000)),
        (999, Hot(offset=999, end_offset=1000)),
        (1000, CaughtUp(offset=1000)),
        (1010, CaughtUp(offset=1010)),
        (1011, OutsideLog(offset=1011, log_start_offset=100, log_end_offset=1010)),
    ],
)
def test_each_bound_belongs_to_the_tier_that_holds_it(offset: int, expected: object) -> None:
    assert plan(offset, **BOUNDS) == expected


def test_without_a_log_end_the_readable_end_bounds_the_offsets() -> None:
    bounds: dict[str, Any] = {**BOUNDS, "log_end_offset": None}
    assert plan(1000, **bounds) == CaughtUp(offset=1000)
    assert plan(1001, **bounds) == OutsideLog(offset=1001, log_start_offset=100, log_end_offset=1000)


def test_empty_log_is_caught_up_at_its_start() -> None:
    empty = dict.fromkeys(BOUNDS, 0)
    assert plan(0, **empty) == CaughtUp(offset=0)
    assert plan(1, **empty) == OutsideLog(offset=1, log_start_offset=0, log_end_offset=0)


def test_hole_between_the_tiers_is_corruption_not_an_empty_answer() -> None:
    with pytest.raises(CorruptMetadata, match=r"800.*900"):
        plan(850, **{**BOUNDS, "local_log_start_offset": 900})


@given(
    offset=st.integers(-5, 45),
    bounds=st.lists(st.integers(0, 40), min_size=5, max_size=5).map(sorted),
    local_first=st.booleans(),
)
def test_every_offset_of_a_sound_log_has_exactly_one_answer(offset: int, bounds: list[int], local_first: bool) -> None:
    log_start, local_start, cold_end, readable_end, log_end = bounds
    answer = plan(
        offset,
        log_start_offset=log_start,
        local_log_start_offset=log_start if local_first else local_start,
        cold_end_offset=cold_end,
        readable_end_offset=readable_end,
        log_end_offset=log_end,
    )
    match answer:
        case OutsideLog():
            assert not log_start <= offset <= log_end
        case CaughtUp():
            assert readable_end <= offset <= log_end
        case Hot() | Cold():
            assert log_start <= offset < answer.end_offset <= readable_end
