"""Filters become bounds that never exclude a row the filter would keep."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pyspark_tiered.filters import bounds_of
from pyspark_tiered.plan import NO_BOUNDS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_filters_narrow_together() -> None:
    bounds = bounds_of(
        [
            EqualTo(("topic",), "a"),
            In(("partition",), (1, 2)),
            In(("partition",), (2, 3)),
            GreaterThan(("offset",), 5),
            LessThanOrEqual(("offset",), 9),
        ]
    )
    assert bounds.topics == frozenset({"a"})
    assert bounds.partitions == frozenset({2})
    assert (bounds.first_offset, bounds.last_offset) == (5, 9)


@pytest.mark.parametrize(
    "unknown",
    [
        Not(EqualTo(("partition",), 1)),
        IsNull(("key",)),
        StringStartsWith(("topic",), "a"),
        EqualTo(("value",), b"x"),
        EqualTo(("partition",), None),
        EqualTo(("partition",), True),
        EqualTo(("offset", "nested"), 1),
        GreaterThan(("timestamp",), datetime(2024, 1, 1)),  # noqa: DTZ001 - one without a zone says nothing
        In(("partition",), (1, None)),
        In(("offset",), ()),
    ],
)
def test_a_filter_that_is_not_understood_leaves_everything(unknown: Filter) -> None:
    assert bounds_of([unknown]) == NO_BOUNDS


@given(
    value_us=st.integers(-(10**15), 4 * 10**15),
    row_ms=st.integers(-(10**12), 4 * 10**12) | st.none(),
    kind=st.sampled_from([EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]),
    hours=st.integers(-12, 12),
)
def test_bounds_on_time_keep_every_row_that_the_filter_keeps(
    value_us: int, row_ms: int | None, kind: Callable[[tuple[str, ...], datetime], Filter], hours: int
) -> None:
    row = value_us // 1000 if row_ms is None else row_ms
    value = (EPOCH + timedelta(microseconds=value_us)).astimezone(timezone(timedelta(hours=hours)))
    kept: dict[object, bool] = {
        EqualTo: row * 1000 == value_us,
        EqualNullSafe: row * 1000 == value_us,
        GreaterThan: row * 1000 > value_us,
        GreaterThanOrEqual: row * 1000 >= value_us,
        LessThan: row * 1000 < value_us,
        LessThanOrEqual: row * 1000 <= value_us,
    }
    if kept[kind]:
        assert bounds_of([kind(("timestamp",), value)]).may_hold_times(row, row)
