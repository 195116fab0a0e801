"""The meaning of `--offset START:END`, and the offsets that it names in each partition.

Owns the words and the look-ups. Must never fetch a record.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tiered.cli.failure import CommandFailed, UsageError
from tiered.cli.times import point_ms
from tiered.peer import EARLIEST, LATEST, Cluster, TopicMetadata

_MAY_BE = "it must be START or START:END, of beginning, end, N, -N (the last N) and @TIME, such as 100:200"
_A_TIME = "a time is milliseconds since 1970, or such as @2026-01-31T23:59:59Z or @-2h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where to begin in each partition. Exactly one is set: an offset, records before the end, or a time."""

    offset: int | None = None
    before_end: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of what is shown: this offset, or the first record since a time; with neither the end as it is now."""

    offset: int | None = None
    timestamp_ms: int | None = None


def range_of(text: str) -> tuple[Start, End | None]:
    """The start and the end that `--offset` means; None where it says no end. Raises UsageError."""
    # Tried as a whole first, because a time has colons of its own.
    for at in [len(text), *(found.start() for found in re.finditer(":", text))]:
        start, said = _start_of(text[:at] or ("beginning" if text else "")), text[at + 1 :]
        end = _end_of(said, after_time=text.startswith("@")) if said else None
        if start is None or (said and end is None):
            continue
        if end is not None and start.offset is not None and end.offset is not None and end.offset < start.offset:
            raise UsageError(f"--offset {text} is not allowed: it ends before it begins")
        return start, end
    raise UsageError(f"--offset {text} is not allowed: {_A_TIME if text.startswith('@') else _MAY_BE}")


def _start_of(text: str) -> Start | None:
    match text:
        case "beginning" | "earliest" | "start":
            return Start(offset=EARLIEST)
        case "end" | "latest":
            return Start(before_end=0)
    if text.startswith("@"):
        found = point_ms(text[1:])
        return None if found is None else Start(timestamp_ms=found)
    number = _number(text.removeprefix("-"))
    if number is None:
        return None
    return Start(before_end=number) if text.startswith("-") else Start(offset=number)


def _end_of(text: str, *, after_time: bool) -> End | None:
    if text in ("end", "latest"):
        return End()
    if text.startswith("@") or after_time:
        found = point_ms(text.removeprefix("@"))
        return None if found is None else End(timestamp_ms=found)
    number = _number(text)
    return None if number is None else End(offset=number)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and int(text[:20]) < 1 << 63 else None


async def start_positions(
    cluster: Cluster, topic: TopicMetadata, numbers: Sequence[int], start: Start, *, clips: bool = False
) -> dict[int, int]:
    """The first offset to show, for each partition. A time after the last record means the end.

    An offset that a partition does not have is the nearest one there if `clips`; otherwise raises CommandFailed.
    """
    if start.offset == EARLIEST:
        return await cluster.list_offsets(topic.name, dict.fromkeys(numbers, EARLIEST))
    ends = await cluster.list_offsets(topic.name, dict.fromkeys(numbers, LATEST))
    if start.timestamp_ms is not None:
        found = await cluster.list_offsets(topic.name, dict.fromkeys(numbers, start.timestamp_ms))
        return {number: ends[number] if found[number] < 0 else found[number] for number in numbers}
    if start.before_end == 0:
        return ends
    firsts = await cluster.list_offsets(topic.name, dict.fromkeys(numbers, EARLIEST))
    if start.before_end is not None:
        return {number: max(ends[number] - start.before_end, firsts[number]) for number in numbers}
    assert start.offset is not None
    if clips:
        return {number: min(max(start.offset, firsts[number]), ends[number]) for number in numbers}
    for number in numbers:
        if not firsts[number] <= start.offset <= ends[number]:
            raise CommandFailed(_not_there(topic, number, start.offset, first=firsts[number], end=ends[number]))
    return dict.fromkeys(numbers, start.offset)


async def end_positions(
    cluster: Cluster, topic: TopicMetadata, numbers: Sequence[int], end: End, isolation_level: int
) -> dict[int, int]:
    """The offset after the last one to show, for each partition; never beyond the end of the log as it is now."""
    ends = await cluster.list_offsets(topic.name, dict.fromkeys(numbers, LATEST), isolation_level=isolation_level)
    if end.offset is not None:
        return {number: min(end.offset, ends[number]) for number in numbers}
    if end.timestamp_ms is not None:
        found = await cluster.list_offsets(
            topic.name, dict.fromkeys(numbers, end.timestamp_ms), isolation_level=isolation_level
        )
        return {number: min(found[number], ends[number]) if found[number] >= 0 else ends[number] for number in numbers}
    return ends


def _not_there(topic: TopicMetadata, number: int, offset: int, *, first: int, end: int) -> str:
    holds = "it is empty" if first == end else f"it has {first} to {end - 1}"
    return (
        f"partition {number} of {topic.name} has no offset {offset}: {holds}. Begin elsewhere with --offset "
        "(`beginning` always works), or choose other partitions with --partition"
    )
