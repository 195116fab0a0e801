"""What may be deleted, and why the rest stays."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.segments.retention import (
    SMALL_KEPT_MS,
    Pin,
    Retention,
    RetentionReason,
    local_delete_before,
    new_log_start_offset,
)

NOW_MS = 1_000_000


@dataclass(frozen=True)
class Local:
    base_offset: int
    end_offset: int
    size_bytes: int = 100
    max_timestamp_ms: int = NOW_MS
    created_ms: int = NOW_MS
    written_ms: int = NOW_MS
    closed: bool = True
    times_are_proven: bool = True


@dataclass(frozen=True)
class Committed:
    base_offset: int
    end_offset: int
    log_bytes: int = 100
    max_timestamp_ms: int = NOW_MS
    committed_at_ms: int = NOW_MS
    max_timestamp_is_proven: bool = True


def aged(ages_ms: list[int]) -> list[Local]:
    """Closed segments of ten offsets and these ages, and an active one."""
    closed = [Local(10 * i, 10 * i + 10, max_timestamp_ms=NOW_MS - age) for i, age in enumerate(ages_ms)]
    end = 10 * len(ages_ms)
    return [*closed, Local(end, end + 5, closed=False)]


def local(segments: list[Local], **changes: int | bool) -> Retention:
    arguments: dict[str, int | bool] = {
        "log_start_offset": 0,
        "cold_end_offset": 1000,
        "high_watermark": 1000,
        "local_retention_ms": -1,
        "local_retention_bytes": -1,
        "small_bytes": 0,
        "remote_enabled": True,
        "now_ms": NOW_MS,
    }
    return local_delete_before(segments, **{**arguments, **changes})  # type: ignore[arg-type]


def total(cold: list[Committed], segments: list[Local], pins: tuple[Pin, ...] = (), **changes: int | bool) -> Retention:
    arguments: dict[str, int | bool] = {
        "log_start_offset": 0,
        "cold_end_offset": cold[-1].end_offset if cold else 0,
        "high_watermark": 1000,
        "retention_ms": -1,
        "retention_bytes": -1,
        "remote_enabled": True,
        "now_ms": NOW_MS,
    }
    return new_log_start_offset(cold, segments, pins=pins, **{**arguments, **changes})  # type: ignore[arg-type]


def reasons(retention: Retention) -> list[RetentionReason]:
    return [verdict.why for verdict in retention.verdicts]


# Local files (T4)


def test_old_local_segments_go_when_the_store_has_them() -> None:
    decided = local(aged([500, 300, 100]), local_retention_ms=200)
    assert decided.delete_before_offset == 20
    assert reasons(decided) == [
        RetentionReason.EXPIRED,
        RetentionReason.EXPIRED,
        RetentionReason.WITHIN_RETENTION,
        RetentionReason.ACTIVE,
    ]


def test_local_segment_that_is_not_committed_stays_however_old() -> None:
    decided = local(aged([500, 500, 500]), local_retention_ms=0, cold_end_offset=10)
    assert decided.delete_before_offset == 10
    assert reasons(decided)[1] is RetentionReason.NOT_COMMITTED
    assert local(aged([500, 500]), local_retention_ms=0, cold_end_offset=9).delete_before_offset == 0


def test_age_is_strictly_greater_than_the_retention() -> None:
    assert local(aged([200]), local_retention_ms=200).delete_before_offset == 0
    assert local(aged([201]), local_retention_ms=200).delete_before_offset == 10


def test_size_keeps_at_least_the_retention() -> None:
    segments = aged([0, 0, 0])  # 400 bytes with the active one
    assert local(segments, local_retention_bytes=301).delete_before_offset == 0
    assert local(segments, local_retention_bytes=300).delete_before_offset == 10
    assert local(segments, local_retention_bytes=0).delete_before_offset == 30


def test_a_small_local_segment_that_the_store_has_goes_after_a_day() -> None:
    small, later_ms = aged([1, 1, 0, 0]), NOW_MS + SMALL_KEPT_MS
    decided = local(small, small_bytes=101, now_ms=later_ms)
    assert decided.delete_before_offset == 20
    assert reasons(decided)[1:3] == [RetentionReason.SMALL, RetentionReason.WITHIN_RETENTION]
    for stays in (
        local(small, now_ms=later_ms, small_bytes=0),
        local(small, now_ms=later_ms, small_bytes=100),
        local(small, now_ms=later_ms, small_bytes=101, remote_enabled=False),
        local(small, now_ms=later_ms, small_bytes=101, cold_end_offset=9),
    ):
        assert stays.delete_before_offset == 0
    large = [replace(small[0], size_bytes=101), *small[1:]]
    assert reasons(local(large, small_bytes=101, now_ms=later_ms))[:2] == [
        RetentionReason.WITHIN_RETENTION,
        RetentionReason.BEHIND_ONE_THAT_STAYS,
    ]


def test_local_copy_of_a_record_from_a_clock_that_is_ahead_goes_by_the_brokers_clock() -> None:
    ahead, *others = aged([0, 500, 500])
    segments = [replace(ahead, max_timestamp_ms=2**63 - 1, written_ms=NOW_MS - 201), *others]
    assert local(segments, local_retention_ms=200).delete_before_offset == 30
    assert local(segments, local_retention_ms=201).delete_before_offset == 0


def test_active_segment_stays() -> None:
    decided = local(aged([]), local_retention_ms=0, local_retention_bytes=0, now_ms=NOW_MS + 1000)
    assert (decided.delete_before_offset, reasons(decided)) == (0, [RetentionReason.ACTIVE])


def test_without_the_remote_tier_only_what_is_below_the_log_start_goes() -> None:
    decided = local(
        aged([500, 500, 500]), remote_enabled=False, log_start_offset=25, local_retention_ms=0, cold_end_offset=0
    )
    assert decided.delete_before_offset == 20
    assert reasons(decided)[:2] == [RetentionReason.BELOW_LOG_START, RetentionReason.BELOW_LOG_START]


def test_deleted_records_go_even_if_they_were_never_uploaded() -> None:
    assert local(aged([0, 0, 0]), log_start_offset=20, cold_end_offset=0).delete_before_offset == 20


def test_segment_above_the_high_watermark_stays() -> None:
    decided = local(aged([500, 500]), local_retention_ms=0, high_watermark=15)
    assert decided.delete_before_offset == 10
    assert reasons(decided)[1] is RetentionReason.NOT_STABLE


def test_newer_segment_waits_for_an_older_one_that_stays() -> None:
    decided = local(aged([0, 900, 900]), local_retention_ms=200)
    assert decided.delete_before_offset == 0
    assert reasons(decided)[1] is RetentionReason.BEHIND_ONE_THAT_STAYS


def test_empty_log_deletes_nothing() -> None:
    assert local([], log_start_offset=7).delete_before_offset == 7


# The whole log (T6)

COLD = [
    Committed(0, 10, max_timestamp_ms=NOW_MS - 900),
    Committed(10, 20, max_timestamp_ms=NOW_MS - 700),
    Committed(20, 30, max_timestamp_ms=NOW_MS - 500),
]
HOT = [
    Local(20, 30, max_timestamp_ms=NOW_MS - 500),
    Local(30, 40, max_timestamp_ms=NOW_MS - 300),
    Local(40, 45, closed=False),
]


def test_total_retention_by_time_retires_committed_segments() -> None:
    decided = total(COLD, HOT, retention_ms=600)
    assert decided.delete_before_offset == 20
    assert [(verdict.base_offset, verdict.why) for verdict in decided.verdicts] == [
        (0, RetentionReason.EXPIRED),
        (10, RetentionReason.EXPIRED),
        (20, RetentionReason.WITHIN_RETENTION),
        (30, RetentionReason.NOT_COMMITTED),
        (40, RetentionReason.ACTIVE),
    ]


def test_segment_in_both_tiers_counts_once() -> None:
    # 3 cold + 1 closed local above them + active = 500 bytes, not 600.
    assert total(COLD, HOT, retention_bytes=401).delete_before_offset == 0
    assert total(COLD, HOT, retention_bytes=400).delete_before_offset == 10
    assert len(total(COLD, HOT).verdicts) == 5


def test_log_start_never_passes_what_is_uploaded_while_the_remote_tier_is_on() -> None:
    decided = total(COLD, HOT, retention_ms=0)
    assert decided.delete_before_offset == 30
    assert decided.verdicts[3].why is RetentionReason.NOT_COMMITTED


def test_without_the_remote_tier_local_segments_expire_by_total_retention() -> None:
    decided = total([], HOT, retention_ms=400, remote_enabled=False, log_start_offset=20)
    assert decided.delete_before_offset == 30
    assert total([], HOT, retention_bytes=0, remote_enabled=False, log_start_offset=20).delete_before_offset == 40


def test_turning_the_remote_tier_off_lets_both_tiers_expire_in_order() -> None:
    decided = total(COLD, HOT, retention_ms=200, remote_enabled=False)
    assert decided.delete_before_offset == 40
    assert reasons(decided)[-1] is RetentionReason.ACTIVE


def test_future_timestamps_keep_a_segment_and_say_so() -> None:
    cold = [replace(COLD[0], max_timestamp_ms=NOW_MS + 1)]
    decided = total(cold, [], retention_ms=0)
    assert decided.delete_before_offset == 0
    assert reasons(decided) == [RetentionReason.IN_THE_FUTURE]
    assert total(cold, [], retention_bytes=0).delete_before_offset == 10, "size does not care about time"


def test_local_segment_without_timestamps_ages_from_its_last_append() -> None:
    untimed, *others = aged([0, 0])
    segments = [replace(untimed, max_timestamp_ms=-1, created_ms=0, written_ms=NOW_MS - 100), *others]
    assert total([], segments, retention_ms=100, remote_enabled=False).delete_before_offset == 0
    assert total([], segments, retention_ms=99, remote_enabled=False).delete_before_offset == 10


def test_segment_without_timestamps_ages_from_its_commit() -> None:
    cold = [replace(COLD[0], max_timestamp_ms=-1, committed_at_ms=NOW_MS - 100)]
    assert total(cold, [], retention_ms=100).delete_before_offset == 0
    assert total(cold, [], retention_ms=99).delete_before_offset == 10


@pytest.mark.parametrize(
    ("start", "end", "expires", "expected"),
    [(5, 8, 1, 0), (15, 16, 1, 10), (30, 40, 1, 30), (5, 8, 0, 30), (10, 10, 1, 30), (19, 21, 1, 10)],
)
def test_live_pin_holds_its_segments_and_what_follows(start: int, end: int, expires: int, expected: int) -> None:
    pin = Pin(name="job", start_offset=start, end_offset=end, expires_at_ms=NOW_MS + expires)
    decided = total(COLD, HOT, (pin,), retention_ms=100)
    assert decided.delete_before_offset == expected
    pinned = [verdict for verdict in decided.verdicts if verdict.why is RetentionReason.PINNED]
    assert all(verdict.pin == "job" for verdict in pinned)
    assert all(start < verdict.end_offset and verdict.base_offset < end for verdict in pinned)


def test_log_start_inside_a_segment_does_not_go_back() -> None:
    decided = total(COLD, HOT, log_start_offset=15)
    assert decided.delete_before_offset == 15
    assert reasons(decided)[0] is RetentionReason.BELOW_LOG_START


@given(
    cold_ages=st.lists(st.integers(-50, 1000), max_size=6),
    hot_ages=st.lists(st.integers(-50, 1000), max_size=4),
    log_start=st.integers(0, 100),
    retention_ms=st.integers(-1, 1000),
    retention_bytes=st.integers(-1, 900),
    remote=st.booleans(),
    pins=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(-5, 5)), max_size=3),
)
def test_log_start_only_grows_and_respects_pins_and_the_tiers(
    cold_ages: list[int],
    hot_ages: list[int],
    log_start: int,
    retention_ms: int,
    retention_bytes: int,
    remote: bool,
    pins: list[tuple[int, int, int]],
) -> None:
    cold = [Committed(10 * i, 10 * i + 10, max_timestamp_ms=NOW_MS - age) for i, age in enumerate(cold_ages)]
    end = 10 * len(cold)
    hot = [Local(end + 10 * i, end + 10 * i + 10, max_timestamp_ms=NOW_MS - age) for i, age in enumerate(hot_ages)]
    hot.append(Local(end + 10 * len(hot_ages), end + 10 * len(hot_ages) + 5, closed=False))
    log_start = min(log_start, end if remote else end + 10 * len(hot_ages))
    held = tuple(
        Pin(name=str(i), start_offset=start, end_offset=stop, expires_at_ms=NOW_MS + expires)
        for i, (start, stop, expires) in enumerate(pins)
    )
    decided = total(
        cold,
        hot,
        held,
        log_start_offset=log_start,
        cold_end_offset=end,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        remote_enabled=remote,
    )
    start = decided.delete_before_offset
    assert start >= log_start
    assert start <= hot[-1].base_offset
    if remote:
        assert start <= end
    for pin in held:
        is_held = pin.expires_at_ms is None or pin.expires_at_ms > NOW_MS
        if is_held and pin.start_offset < pin.end_offset:
            assert start <= max(pin.start_offset, log_start) or start <= log_start or pin.end_offset <= log_start
    kept = [verdict for verdict in decided.verdicts if not verdict.deletes]
    assert [verdict.base_offset for verdict in kept] == sorted(verdict.base_offset for verdict in kept)
    deletes = [verdict.deletes for verdict in decided.verdicts]
    assert deletes == sorted(deletes, reverse=True)
    assert len(decided.verdicts) == len(cold) + len(hot)


# What a producer has said of its records' times, and no broker has looked at


@pytest.mark.parametrize("claimed_ms", [-1, 0, NOW_MS - 10_000, NOW_MS - 50])
def test_a_time_that_is_not_proven_makes_no_record_older_than_its_segment(claimed_ms: int) -> None:
    young = replace(COLD[0], max_timestamp_ms=claimed_ms, committed_at_ms=NOW_MS - 100, max_timestamp_is_proven=False)
    kept_ms = 50 if claimed_ms == NOW_MS - 50 else 100
    assert total([young], [], retention_ms=kept_ms).delete_before_offset == 0
    assert total([young], [], retention_ms=kept_ms - 1).delete_before_offset == 10
    written, *others = aged([0, 0])
    local_one = replace(written, max_timestamp_ms=claimed_ms, written_ms=NOW_MS - 100, times_are_proven=False)
    segments = [local_one, *others]
    assert total([], segments, retention_ms=kept_ms, remote_enabled=False).delete_before_offset == 0
    assert total([], segments, retention_ms=kept_ms - 1, remote_enabled=False).delete_before_offset == 10


def test_old_and_new_segments_go_by_what_is_known_of_each() -> None:
    rows = [
        replace(COLD[0], max_timestamp_ms=-1, committed_at_ms=NOW_MS - 900, max_timestamp_is_proven=False),
        replace(COLD[1], max_timestamp_ms=NOW_MS - 900, committed_at_ms=NOW_MS),
        replace(COLD[2], max_timestamp_ms=NOW_MS - 900, committed_at_ms=NOW_MS, max_timestamp_is_proven=False),
    ]
    assert total(rows, [], retention_ms=500).delete_before_offset == 20


def test_a_local_copy_whose_times_are_not_proven_ages_from_its_last_append() -> None:
    first, *others = aged([500, 500])
    segments = [replace(first, times_are_proven=False, written_ms=NOW_MS - 100), *others]
    assert local(segments, local_retention_ms=100).delete_before_offset == 0
    assert local(segments, local_retention_ms=99).delete_before_offset == 20
