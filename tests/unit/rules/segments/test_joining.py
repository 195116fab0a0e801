"""Which small segments are joined: enough neighbours of one generation, within the bounds of the topic."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.pacing.early_closes import AT_ONCE, EarlyClosesState
from tiered.rules.segments import joining
from tiered.rules.segments.joining import JOINED_AT_ONCE, MAX_JOINED_BYTES
from tiered.rules.segments.retention import UNLIMITED

HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS
BYTES_AN_HOUR = 10_000
"""A record of 100 bytes a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    base_offset: int
    end_offset: int
    log_bytes: int = 1000
    max_timestamp_ms: int = -1
    max_timestamp_is_proven: bool | None = True
    committed_at_ms: int = 0
    joined_count: int | None = None
    is_compacted: bool = False


def stored(count: int, *, start: int = 0, log_bytes: int = 1000, joined_count: int | None = None) -> list[Stored]:
    """One an hour, a record each."""
    return [
        Stored(
            base_offset=number,
            end_offset=number + 1,
            log_bytes=log_bytes,
            max_timestamp_ms=number * HOUR_MS,
            committed_at_ms=number * HOUR_MS,
            joined_count=joined_count,
        )
        for number in range(start, start + count)
    ]


def next_join(
    rows: Sequence[Stored],
    *,
    segment_bytes: int = 1 << 30,
    retention_bytes: int = UNLIMITED,
    retention_ms: int = UNLIMITED,
    is_free: Callable[[Stored], bool] = lambda _row: True,
) -> tuple[Stored, ...]:
    return joining.next_join(
        rows,
        segment_bytes=segment_bytes,
        retention_bytes=retention_bytes,
        retention_ms=retention_ms,
        is_free=is_free,
    )


def offsets(rows: Sequence[Stored]) -> tuple[int, int] | None:
    return (rows[0].base_offset, rows[-1].end_offset) if rows else None


def test_sixteen_uploads_are_joined_and_the_newest_stays_as_it_is() -> None:
    assert next_join(stored(16)) == ()
    assert next_join(stored(17)) == tuple(stored(16))
    assert offsets(next_join(stored(40))) == (0, 16)


def test_what_was_joined_waits_until_there_are_sixteen_of_it() -> None:
    """However they alternate with uploads that were joined with nothing."""
    joined = stored(15, joined_count=16)
    assert next_join([*joined, *stored(16, start=15)]) == ()
    assert offsets(next_join([*joined, *stored(17, start=15)])) == (15, 31)
    assert offsets(next_join([*joined, *stored(1, start=15, joined_count=255), *stored(3, start=16)])) == (0, 16)
    assert next_join([*joined, *stored(1, start=15, joined_count=256), *stored(3, start=16)]) == ()


@pytest.mark.parametrize(
    "limits",
    [
        {"segment_bytes": 15_999},
        {"retention_bytes": 8 * 16_000 - 1},
        {"retention_ms": 8 * 15 * HOUR_MS - 1},
    ],
)
def test_a_joined_segment_keeps_to_the_size_of_segments_and_an_eighth_of_retention(
    limits: dict[str, int],
) -> None:
    rows = stored(17)
    assert next_join(rows, **limits) == ()  # type: ignore[arg-type]
    assert next_join(rows, **{name: limit + 1 for name, limit in limits.items()})  # type: ignore[arg-type]


def test_large_and_compacted_segments_and_those_that_are_not_free_stay_alone() -> None:
    row = stored(9)[8]
    for alone in (replace(row, log_bytes=MAX_JOINED_BYTES + 1), replace(row, is_compacted=True)):
        rows = stored(34)
        rows[8] = alone
        assert offsets(next_join(rows)) == (9, 25)
    assert offsets(next_join(stored(34), is_free=lambda row: row.base_offset not in (0, 2, 5))) == (6, 22)


def test_records_that_are_years_apart_are_not_joined_though_they_came_together() -> None:
    """What retention takes from one of them first would have to wait for the other."""
    rows = [replace(row, max_timestamp_ms=row.base_offset * WEEK_MS, committed_at_ms=0) for row in stored(40)]
    assert next_join(rows, retention_ms=52 * WEEK_MS) == ()
    assert next_join(rows)


def joined_to_one(run: Sequence[Stored]) -> Stored:
    return replace(
        run[-1],
        base_offset=run[0].base_offset,
        log_bytes=sum(row.log_bytes for row in run),
        joined_count=sum(row.joined_count or 1 for row in run),
    )


def most_objects_in_a_year(*, every_ms: int, retention_ms: int = UNLIMITED) -> int:
    """What one partition has in the store at the most that uploads a segment every so often; after three times its
    retention it has no more."""
    rows: list[Stored] = []
    most, year_ms = 0, 365 * 24 * HOUR_MS
    for number in range((year_ms if retention_ms == UNLIMITED else 3 * retention_ms) // every_ms):
        at_ms = number * every_ms
        row = Stored(base_offset=number, end_offset=number + 1, max_timestamp_ms=at_ms, committed_at_ms=at_ms)
        rows.append(replace(row, log_bytes=every_ms * BYTES_AN_HOUR // HOUR_MS))
        while run := next_join(rows, retention_ms=retention_ms):
            at = rows.index(run[0])
            rows[at : at + len(run)] = [joined_to_one(run)]
        while retention_ms != UNLIMITED and at_ms - rows[0].max_timestamp_ms > retention_ms:
            del rows[0]
        most = max(most, len(rows))
    return most


@pytest.mark.parametrize(
    ("retention_ms", "every_hour", "where_there_are_ten_thousand_partitions"),
    [(UNLIMITED, 64, 42), (30 * 24 * HOUR_MS, 61, 32), (WEEK_MS, 26, 61)],
)
def test_the_objects_of_a_partition_that_is_hardly_written_to_are_those_that_the_costs_say(
    retention_ms: int, every_hour: int, where_there_are_ten_thousand_partitions: int
) -> None:
    """A broker closes 3,600 an hour, so one of each of its ten thousand partitions every 10,000 s. Sixteen of them span
    more than an eighth of a week."""
    closes = EarlyClosesState()
    places_ms = [closes.place_ms(number, 0.0, per_hour=3600) for number in range(10_000)]
    closes.give_back(0)
    every_ms = round(closes.place_ms(0, places_ms[0], per_hour=3600) - places_ms[0])
    assert abs(every_ms - 10_000_000) <= AT_ONCE * 1000
    assert most_objects_in_a_year(every_ms=HOUR_MS, retention_ms=retention_ms) == every_hour
    objects = most_objects_in_a_year(every_ms=10_000_000, retention_ms=retention_ms)
    assert objects == where_there_are_ten_thousand_partitions


@given(st.lists(st.integers(1, 40 << 20), min_size=1, max_size=600))
def test_no_record_is_joined_more_often_than_the_generations_there_are(sizes: list[int]) -> None:
    rows: list[Stored] = []
    joins_of_offset = [0] * len(sizes)
    for number, size in enumerate(sizes):
        rows.append(Stored(base_offset=number, end_offset=number + 1, log_bytes=size))
        while run := next_join(rows):
            at = rows.index(run[0])
            assert rows[at : at + len(run)] == list(run)
            assert sum(each.log_bytes for each in run) <= MAX_JOINED_BYTES
            one = Stored(
                base_offset=run[0].base_offset,
                end_offset=run[-1].end_offset,
                log_bytes=sum(each.log_bytes for each in run),
                joined_count=sum(each.joined_count or 1 for each in run),
            )
            rows[at : at + len(run)] = [one]
            for offset in range(one.base_offset, one.end_offset):
                joins_of_offset[offset] += 1
    generations = 0
    while JOINED_AT_ONCE ** (generations + 1) <= len(sizes):
        generations += 1
    assert max(joins_of_offset) <= generations
    assert [row.base_offset for row in rows] == [0, *(row.end_offset for row in rows[:-1])]
