"""Where the offset of a group goes when it is reset: to an end of the log, an offset, a time, or some records on.

Owns that rule, which is that of Kafka's `kafka-consumer-groups`: an offset outside the log becomes the nearest inside
it, and the caller is told. Must never ask a log or a group: their answers are arguments.
"""

from dataclasses import dataclass
from typing import assert_never

from tiered.rules.partition.partition_state import LogBounds


@dataclass(frozen=True, slots=True, kw_only=True)
class ToEarliest:
    """The first offset of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToLatest:
    """The end of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToOffset:
    """The same offset in every partition."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTimestamp:
    """The first record that is not older; the end of the log when all are."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftBy:
    """So many records on from what is committed, or back."""

    records: int


Target = ToEarliest | ToLatest | ToOffset | ToTimestamp | ShiftBy


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOffset:
    """`asked` is None, or the offset that was meant where the log does not have it."""

    offset: int
    asked: int | None


def new_offset(
    target: Target, bounds: LogBounds, *, committed: int | None = None, found: int | None = None
) -> NewOffset | None:
    """The offset that `target` means in a partition; None where a shift has nothing to count from.

    `found` is the first offset since the time of a ToTimestamp, None when every record is older.
    """
    match target:
        case ToEarliest():
            wanted = bounds.log_start_offset
        case ToLatest():
            wanted = bounds.high_watermark
        case ToTimestamp():
            wanted = bounds.high_watermark if found is None else found
        case ToOffset():
            wanted = target.offset
        case ShiftBy():
            if committed is None:
                return None
            wanted = committed + target.records
        case _:
            assert_never(target)
    offset = min(max(wanted, bounds.log_start_offset), bounds.high_watermark)
    return NewOffset(offset=offset, asked=None if offset == wanted else wanted)
