"""Where a reset puts the offset of a group: never outside the log, and whoever asked for that is told."""

import pytest

from tiered.rules.groups.offset_reset import (
    NewOffset,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTimestamp,
    new_offset,
)
from tiered.rules.partition.partition_state import LogBounds


@pytest.mark.parametrize(
    ("target", "found", "expected", "asked"),
    [
        (ToEarliest(), None, 10, None),
        (ToLatest(), None, 20, None),
        (ToOffset(offset=15), None, 15, None),
        (ToOffset(offset=20), None, 20, None),
        (ToOffset(offset=3), None, 10, 3),
        (ToOffset(offset=21), None, 20, 21),
        (ShiftBy(records=3), None, 15, None),
        (ShiftBy(records=-3), None, 10, 9),
        (ShiftBy(records=0), None, 12, None),
        (ToTimestamp(timestamp_ms=1), 14, 14, None),
        (ToTimestamp(timestamp_ms=1), None, 20, None),
    ],
)
def test_a_reset_never_leaves_the_log_and_says_what_was_asked(
    target: Target, found: int | None, expected: int, asked: int | None
) -> None:
    new = new_offset(target, LogBounds(log_start_offset=10, high_watermark=20), committed=12, found=found)
    assert new == NewOffset(offset=expected, asked=asked)


def test_a_shift_needs_an_offset_to_count_from() -> None:
    assert new_offset(ShiftBy(records=1), LogBounds(log_start_offset=0, high_watermark=9)) is None
