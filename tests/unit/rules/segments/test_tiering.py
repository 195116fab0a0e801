"""Which closed segments are uploaded next."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.segments.tiering import UploadPlan, UploadWait, next_uploads

NOW_MS = 1_000_000


@dataclass(frozen=True)
class Segment:
    base_offset: int
    end_offset: int
    size_bytes: int = 100
    max_timestamp_ms: int = NOW_MS - 10
    created_ms: int = NOW_MS - 20
    written_ms: int = NOW_MS - 10
    closed: bool = True
    times_are_proven: bool = True


LOG = [Segment(0, 10), Segment(10, 20), Segment(20, 30), replace(Segment(30, 35), closed=False)]


def decide(segments: list[Segment] = LOG, **changes: Any) -> UploadPlan[Segment]:
    arguments: dict[str, Any] = {
        "log_start_offset": 0,
        "cold_end_offset": 0,
        "high_watermark": 35,
        "last_stable_offset": 35,
        "remote_enabled": True,
        "copy_lag_ms": 0,
        "copy_lag_bytes": -1,
        "now_ms": NOW_MS,
        "limit": 10,
    }
    return next_uploads(segments, **{**arguments, **changes})


def test_closed_segments_are_uploaded_oldest_first_and_the_active_one_is_not() -> None:
    plan = decide()
    assert [segment.base_offset for segment in plan.uploads] == [0, 10, 20]
    assert plan.waiting is UploadWait.ACTIVE
    assert plan.overdue_bytes == 300
    assert plan.skip_to_offset is None


def test_upload_goes_on_where_the_store_ends() -> None:
    assert [segment.base_offset for segment in decide(cold_end_offset=20).uploads] == [20]
    done = decide(cold_end_offset=30)
    assert (done.uploads, done.waiting, done.overdue_bytes) == ((), UploadWait.ACTIVE, 0)
    assert decide(LOG[:3], cold_end_offset=30).waiting is UploadWait.NOTHING_LEFT


@pytest.mark.parametrize("bound", ["high_watermark", "last_stable_offset"])
def test_nothing_above_the_stable_end_is_uploaded(bound: str) -> None:
    below: dict[str, Any] = {bound: 29}
    plan = decide(**below)
    assert [segment.base_offset for segment in plan.uploads] == [0, 10]
    assert plan.waiting is UploadWait.NOT_STABLE
    assert plan.overdue_bytes == 200
    above: dict[str, Any] = {bound: 30}
    assert decide(**above).uploads == tuple(LOG[:3])


def test_disabled_topic_uploads_nothing_and_owes_nothing() -> None:
    plan = decide(remote_enabled=False)
    assert (plan.uploads, plan.waiting, plan.overdue_bytes) == ((), UploadWait.DISABLED, 0)


def test_a_round_is_limited() -> None:
    plan = decide(limit=2)
    assert [segment.base_offset for segment in plan.uploads] == [0, 10]
    assert plan.waiting is UploadWait.LIMIT


def test_copy_lag_by_age_waits_for_the_newest_record() -> None:
    assert decide(copy_lag_ms=11).waiting is UploadWait.COPY_LAG
    assert decide(copy_lag_ms=11).uploads == ()
    assert len(decide(copy_lag_ms=10).uploads) == 3


@pytest.mark.parametrize("claimed_ms", [-1, NOW_MS + 1, 2**63 - 1])
def test_copy_lag_of_a_time_that_is_missing_or_ahead_counts_from_the_last_append(claimed_ms: int) -> None:
    segments = [replace(segment, max_timestamp_ms=claimed_ms) for segment in LOG]
    assert decide(segments, copy_lag_ms=11).uploads == ()
    assert len(decide(segments, copy_lag_ms=10).uploads) == 3


def test_copy_lag_by_size_counts_the_bytes_after_the_segment() -> None:
    plan = decide(copy_lag_ms=-1, copy_lag_bytes=200)
    assert [segment.base_offset for segment in plan.uploads] == [0, 10]
    assert plan.waiting is UploadWait.COPY_LAG


def test_either_lag_makes_a_segment_due() -> None:
    assert len(decide(copy_lag_ms=1 << 40, copy_lag_bytes=0).uploads) == 3
    assert len(decide(copy_lag_ms=5, copy_lag_bytes=1 << 40).uploads) == 3
    assert decide(copy_lag_ms=-1, copy_lag_bytes=-1).uploads == ()


def test_what_was_deleted_before_its_upload_is_skipped_and_said_so() -> None:
    plan = decide(LOG[1:], log_start_offset=15)
    assert [segment.base_offset for segment in plan.uploads] == [10, 20]
    assert plan.skip_to_offset == 10
    plan = decide(log_start_offset=15)
    assert [segment.base_offset for segment in plan.uploads] == [10, 20]
    assert plan.skip_to_offset == 10


def test_segment_that_holds_the_log_start_is_uploaded_whole() -> None:
    plan = decide(log_start_offset=5)
    assert plan.uploads[0] == LOG[0]
    assert plan.skip_to_offset is None


def test_readable_offsets_that_are_missing_locally_stop_the_uploads() -> None:
    plan = decide(LOG[1:], log_start_offset=0)
    assert (plan.uploads, plan.waiting) == ((), UploadWait.MISSING_LOCALLY)


def test_segment_into_which_delete_records_moved_both_bounds_is_uploaded_whole() -> None:
    plan = decide(log_start_offset=15, cold_end_offset=15)
    assert [segment.base_offset for segment in plan.uploads] == [10, 20]
    assert (plan.waiting, plan.skip_to_offset) == (UploadWait.ACTIVE, None)


def test_segment_across_the_end_of_the_store_is_not_uploaded_twice() -> None:
    plan = decide(cold_end_offset=15)
    assert (plan.uploads, plan.waiting) == ((), UploadWait.MISALIGNED)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8),
    log_start=st.integers(0, 30),
    cold_end=st.integers(0, 30),
    high_watermark=st.integers(0, 40),
    last_stable=st.integers(0, 40),
    lag=st.sampled_from([(0, -1), (-1, 150), (15, 250)]),
    limit=st.integers(1, 5),
)
def test_uploads_are_contiguous_closed_and_stable(
    sizes: list[int],
    log_start: int,
    cold_end: int,
    high_watermark: int,
    last_stable: int,
    lag: tuple[int, int],
    limit: int,
) -> None:
    segments: list[Segment] = []
    base = 0
    for size in sizes:
        segments.append(Segment(base, base + size))
        base += size
    segments[-1] = replace(segments[-1], closed=False)
    plan = decide(
        segments,
        log_start_offset=log_start,
        cold_end_offset=cold_end,
        high_watermark=high_watermark,
        last_stable_offset=last_stable,
        copy_lag_ms=lag[0],
        copy_lag_bytes=lag[1],
        limit=limit,
    )
    expected = cold_end if plan.skip_to_offset is None else plan.skip_to_offset
    if plan.uploads and plan.uploads[0].base_offset < cold_end == log_start:
        expected = plan.uploads[0].base_offset  # Both offsets lie within the segment: it goes as a whole.
    assert plan.skip_to_offset is None or cold_end < plan.skip_to_offset <= log_start
    assert len(plan.uploads) <= limit
    for segment in plan.uploads:
        assert segment.base_offset == expected
        assert segment.closed
        assert segment.end_offset <= min(high_watermark, last_stable)
        expected = segment.end_offset
