"""What bounds a round of retention, what stops it, and how its verdicts are told."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.segments.retention import (
    DELETING,
    UNLIMITED,
    Pin,
    Retention,
    RetentionReason,
    new_log_start_offset,
    runs_of,
)

NOW_MS = 1_000_000


@dataclass(frozen=True)
class Committed:
    base_offset: int
    end_offset: int
    max_timestamp_ms: int
    log_bytes: int = 100
    committed_at_ms: int = NOW_MS
    max_timestamp_is_proven: bool = True


def aged(ages_ms: Sequence[int]) -> list[Committed]:
    return [Committed(10 * i, 10 * i + 10, NOW_MS - age) for i, age in enumerate(ages_ms)]


def decided(cold: Sequence[Committed], **changes: Any) -> Retention:
    arguments: dict[str, Any] = {
        "log_start_offset": 0,
        "cold_end_offset": 1000,
        "high_watermark": 1000,
        "retention_ms": UNLIMITED,
        "retention_bytes": UNLIMITED,
        "remote_enabled": True,
        "pins": (),
        "now_ms": NOW_MS,
    }
    return new_log_start_offset(cold, [], **{**arguments, **changes})


def reasons(found: Retention) -> list[RetentionReason]:
    return [verdict.why for verdict in found.verdicts]


# Bounds of a round


def test_a_round_takes_the_oldest_up_to_its_bound_and_says_that_more_will_go() -> None:
    found = decided(aged([900, 800, 700, 1]), retention_ms=100, max_segments=2)
    assert found.delete_before_offset == 20
    assert reasons(found) == [
        RetentionReason.EXPIRED,
        RetentionReason.EXPIRED,
        RetentionReason.ENOUGH_FOR_ONE_ROUND,
        RetentionReason.WITHIN_RETENTION,
    ]


def test_what_went_already_does_not_count_against_the_bound() -> None:
    found = decided(aged([900, 800, 700]), retention_ms=100, max_segments=1, log_start_offset=20)
    assert found.delete_before_offset == 30
    assert reasons(found)[:2] == [RetentionReason.BELOW_LOG_START] * 2


# The clock


def test_nothing_goes_for_its_age_while_the_clock_is_not_trusted() -> None:
    found = decided(aged([900, 800, 50]), retention_ms=100, clock_is_trusted=False)
    assert found.delete_before_offset == 0
    assert reasons(found) == [
        RetentionReason.CLOCK_JUMPED,
        RetentionReason.CLOCK_JUMPED,
        RetentionReason.WITHIN_RETENTION,
    ]


def test_retention_by_size_does_not_need_the_clock() -> None:
    found = decided(aged([900, 800, 50]), retention_ms=100, retention_bytes=200, clock_is_trusted=False)
    assert found.delete_before_offset == 10
    assert reasons(found) == [RetentionReason.OVERSIZE, RetentionReason.CLOCK_JUMPED, RetentionReason.WITHIN_RETENTION]


# Explanations


def test_each_segment_behind_one_that_stays_tells_its_own_reason() -> None:
    pin = Pin(name="snapshot kept", start_offset=5, end_offset=6, expires_at_ms=None)
    found = decided(aged([900, 900, 50]), retention_ms=100, pins=(pin,))
    assert reasons(found) == [
        RetentionReason.PINNED,
        RetentionReason.BEHIND_ONE_THAT_STAYS,
        RetentionReason.WITHIN_RETENTION,
    ]
    assert found.verdicts[0].pin == "snapshot kept"


def test_a_pin_without_an_end_holds_for_good() -> None:
    pin = Pin(name="snapshot kept", start_offset=15, end_offset=16, expires_at_ms=None)
    assert decided(aged([900] * 3), retention_ms=100, pins=(pin,), now_ms=2**62).delete_before_offset == 10


def test_neighbours_with_one_verdict_are_told_as_one() -> None:
    found = runs_of(decided(aged([900, 800, 50, 40, 30]), retention_ms=100).verdicts)
    assert [(run.base_offset, run.end_offset, run.segments, run.size_bytes, run.deletes) for run in found] == [
        (0, 20, 2, 200, True),
        (20, 50, 3, 300, False),
    ]
    assert [run.newest_ms for run in found] == [NOW_MS - 800, NOW_MS - 30]
    assert runs_of([]) == ()


# Properties

AGES = st.lists(st.integers(-50, 1000), max_size=8)
PINS = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90), st.sampled_from([None, -1, 1])), max_size=3)


def pins_of(found: list[tuple[int, int, int | None]]) -> tuple[Pin, ...]:
    return tuple(
        Pin(name=str(i), start_offset=start, end_offset=end, expires_at_ms=None if when is None else NOW_MS + when)
        for i, (start, end, when) in enumerate(found)
    )


@given(
    ages=AGES,
    retention_ms=st.integers(-1, 900),
    retention_bytes=st.integers(-1, 900),
    pins=PINS,
    most=st.integers(1, 3),
)
def test_rounds_with_a_bound_end_where_one_without_would_and_none_takes_more(
    ages: list[int], retention_ms: int, retention_bytes: int, pins: list[tuple[int, int, int | None]], most: int
) -> None:
    limits = {"retention_ms": retention_ms, "retention_bytes": retention_bytes, "pins": pins_of(pins)}
    whole = decided(aged(ages), **limits).delete_before_offset
    cold, start = aged(ages), 0
    for _ in range(len(ages) + 1):
        found = decided(cold, log_start_offset=start, max_segments=most, **limits)
        gone = [each for each in found.verdicts if each.deletes]
        assert len(gone) <= most
        start = found.delete_before_offset
        cold = [each for each in cold if each.end_offset > start]
    assert start == whole


@given(ages=AGES, retention_ms=st.integers(-1, 900), retention_bytes=st.integers(-1, 900), pins=PINS)
def test_without_trust_in_the_clock_a_round_takes_what_it_would_without_a_time(
    ages: list[int], retention_ms: int, retention_bytes: int, pins: list[tuple[int, int, int | None]]
) -> None:
    limits = {"retention_bytes": retention_bytes, "pins": pins_of(pins)}
    doubted = decided(aged(ages), retention_ms=retention_ms, clock_is_trusted=False, **limits)
    timeless = decided(aged(ages), retention_ms=UNLIMITED, **limits)
    assert doubted.delete_before_offset == timeless.delete_before_offset
    assert RetentionReason.EXPIRED not in reasons(doubted)


@given(ages=AGES, retention_ms=st.integers(-1, 900), retention_bytes=st.integers(-1, 900), pins=PINS)
def test_runs_tell_every_segment_once_and_in_order(
    ages: list[int], retention_ms: int, retention_bytes: int, pins: list[tuple[int, int, int | None]]
) -> None:
    found = decided(
        aged(ages), retention_ms=retention_ms, retention_bytes=retention_bytes, pins=pins_of(pins), max_segments=2
    )
    runs = runs_of(found.verdicts)
    assert sum(run.segments for run in runs) == len(ages)
    assert sum(run.size_bytes for run in runs) == 100 * len(ages)
    assert [run.base_offset for run in runs] == [0, *(run.end_offset for run in runs[:-1])][: len(runs)]
    assert all(run.deletes == (run.why in DELETING) for run in runs)
    assert [run.deletes for run in runs] == sorted((run.deletes for run in runs), reverse=True)
    going = max((run.end_offset for run in runs if run.deletes), default=0)
    assert found.delete_before_offset == going


@given(ages=AGES, pins=PINS)
def test_a_live_pin_is_never_passed_whatever_the_limits(
    ages: list[int], pins: list[tuple[int, int, int | None]]
) -> None:
    held = pins_of(pins)
    found = decided(aged(ages), retention_ms=0, retention_bytes=0, pins=held)
    for pin in held:
        is_live = pin.expires_at_ms is None or pin.expires_at_ms > NOW_MS
        if is_live and pin.start_offset < pin.end_offset:
            assert found.delete_before_offset <= pin.start_offset or found.delete_before_offset <= 0
    without = decided(aged(ages), retention_ms=0, retention_bytes=0, pins=[replace(pin, end_offset=0) for pin in held])
    assert found.delete_before_offset <= without.delete_before_offset
