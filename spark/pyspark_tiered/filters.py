"""Filters that Spark offers become bounds: what need not even be fetched.

Owns the translation alone. Bounds only prune: every filter is given back to Spark, which applies it to the rows
that are left, so a filter that is not understood costs time and never rows.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from pyspark_tiered.plan import NO_BOUNDS, FilterBounds

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bounds_of(filters: Iterable[Filter]) -> FilterBounds:
    """The bounds that all of `filters` together put on topic, partition, offset and timestamp."""
    bounds = NO_BOUNDS
    for each in filters:
        bounds = _narrowed(bounds, each)
    return bounds


def _narrowed(bounds: FilterBounds, each: Filter) -> FilterBounds:
    match each:
        case EqualTo(attribute=("topic",), value=str(topic)) | EqualNullSafe(attribute=("topic",), value=str(topic)):
            return _of_topics(bounds, frozenset([topic]))
        case In(attribute=("topic",), value=topics) if all(isinstance(topic, str) for topic in topics):
            return _of_topics(bounds, frozenset(topics))
        case EqualTo(attribute=("partition",), value=value) | EqualNullSafe(attribute=("partition",), value=value):
            return _of_partitions(bounds, frozenset([value])) if _is_number(value) else bounds
        case In(attribute=("partition",), value=partitions) if all(_is_number(value) for value in partitions):
            return _of_partitions(bounds, frozenset(partitions))
        case EqualTo(attribute=("offset",), value=value) | EqualNullSafe(attribute=("offset",), value=value):
            return _of_offsets(bounds, value, value)
        case In(attribute=("offset",), value=values) if values and all(_is_number(value) for value in values):
            return _of_offsets(bounds, min(values), max(values))
        case GreaterThan(attribute=("offset",), value=value) | GreaterThanOrEqual(attribute=("offset",), value=value):
            return _of_offsets(bounds, value, None)
        case LessThan(attribute=("offset",), value=value) | LessThanOrEqual(attribute=("offset",), value=value):
            return _of_offsets(bounds, None, value)
        case EqualTo(attribute=("timestamp",), value=value) | EqualNullSafe(attribute=("timestamp",), value=value):
            return _of_times(bounds, value, value)
        case (
            GreaterThan(attribute=("timestamp",), value=value)
            | GreaterThanOrEqual(attribute=("timestamp",), value=value)
        ):
            return _of_times(bounds, value, None)
        case LessThan(attribute=("timestamp",), value=value) | LessThanOrEqual(attribute=("timestamp",), value=value):
            return _of_times(bounds, None, value)
    return bounds


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _of_topics(bounds: FilterBounds, topics: frozenset[str]) -> FilterBounds:
    return replace(bounds, topics=topics if bounds.topics is None else bounds.topics & topics)


def _of_partitions(bounds: FilterBounds, partitions: frozenset[int]) -> FilterBounds:
    return replace(bounds, partitions=partitions if bounds.partitions is None else bounds.partitions & partitions)


def _of_offsets(bounds: FilterBounds, first: object, last: object) -> FilterBounds:
    if isinstance(first, int) and not isinstance(first, bool):
        bounds = replace(bounds, first_offset=max(bounds.first_offset, first))
    if isinstance(last, int) and not isinstance(last, bool):
        bounds = replace(bounds, last_offset=min(bounds.last_offset, last))
    return bounds


def _of_times(bounds: FilterBounds, first: object, last: object) -> FilterBounds:
    """Whole milliseconds that enclose the filter's microseconds."""
    if isinstance(first, datetime) and first.tzinfo is not None:
        first_ms = -((_EPOCH - first) // timedelta(milliseconds=1))
        bounds = replace(bounds, first_timestamp_ms=max(bounds.first_timestamp_ms, first_ms - 1))
    if isinstance(last, datetime) and last.tzinfo is not None:
        last_ms = (last - _EPOCH) // timedelta(milliseconds=1)
        bounds = replace(bounds, last_timestamp_ms=min(bounds.last_timestamp_ms, last_ms + 1))
    return bounds
