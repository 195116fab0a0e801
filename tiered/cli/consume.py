"""`tiered consume TOPIC`: records as lines, from an offset to the end or on and on.

Owns positions and when to stop. Every batch's CRC is checked before a record of it is shown. Without a group
nothing is committed anywhere: running it again shows the same.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tiered.cli.aborted import AbortedState
from tiered.cli.cluster import EARLIEST, LATEST, Cluster, Topic, existing_topic, offsets, run_with_cluster
from tiered.cli.failure import EXIT_OK, CommandFailed, UsageError
from tiered.cli.fetcher import Fetcher
from tiered.cli.kafka_errors import NONE, OFFSET_OUT_OF_RANGE, reason
from tiered.cli.record_text import LineFormat, Template, json_line_of, line_format_of
from tiered.cli.times import point_ms
from tiered.errors import CorruptBatch
from tiered.formats.record_batch import BatchHeader, Record, records, verify_crc, whole_batches
from tiered.peer import READ_COMMITTED, READ_UNCOMMITTED
from tiered.runtime import SystemClock
from tiered.wire.fetch import FetchPartitionResult

PATIENCE_S = 60.0
"""So long brokers may have nothing of what they said is there."""
ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where to begin in each partition. Exactly one is set: an offset, records before the end, or a time."""

    offset: int | None = None
    before_end: int | None = None
    timestamp_ms: int | None = None


def start_of(text: str) -> Start:
    """The start that `--offset` means: beginning, end, N, -N (the last N) or @TIME. Raises UsageError."""
    match text:
        case "beginning" | "earliest":
            return Start(offset=EARLIEST)
        case "end" | "latest":
            return Start(before_end=0)
    if text.startswith("@"):
        return Start(timestamp_ms=_time_ms(text))
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or int(digits) >= 1 << 63:
        raise UsageError(f"--offset {text} is not allowed: it must be beginning, end, N, -N (the last N) or @TIME")
    return Start(before_end=int(digits)) if text.startswith("-") else Start(offset=int(digits))


def _time_ms(text: str) -> int:
    if (found := point_ms(text[1:])) is None:
        raise UsageError(
            f"--offset {text} is not allowed: a time is milliseconds since 1970, or such as @2026-01-31T23:59:59Z"
        )
    return found


def run(arguments: argparse.Namespace) -> int:
    """Prints records until the end as it was at the start, until `--count`, or with `--follow` until Ctrl-C."""
    start = start_of(arguments.offset)
    follow = arguments.follow or (start == Start(before_end=0) and not arguments.exit_at_end)
    line_format: LineFormat | Template = line_format_of(arguments.key_separator, arguments.null)
    if arguments.template is not None:
        line_format = Template(arguments.template, arguments.null)
    as_json = arguments.json or arguments.format == "json"
    isolation_level = ISOLATION_LEVELS[arguments.isolation]
    if arguments.group is not None and arguments.partition is not None:
        raise UsageError("--partition and --group do not go together: a group gives out the partitions")
    if arguments.group == "":
        raise UsageError("--group must not be empty")

    async def act(cluster: Cluster) -> int:
        topic = await existing_topic(cluster, arguments.topic)
        lines = Lines(topic.name, None if as_json else line_format)
        fetcher = Fetcher(cluster, topic.name, SystemClock(), isolation_level=isolation_level)
        try:
            if arguments.group is not None:
                from tiered.cli.consume_group import consume_as_member

                await consume_as_member(cluster, topic, fetcher, arguments, start=start, follow=follow, lines=lines)
                return EXIT_OK
            numbers = topic.chosen(arguments.partition)
            positions = await start_positions(cluster, topic, numbers, start)
            latest = dict.fromkeys(numbers, LATEST)
            ends = None if follow else await offsets(cluster, topic, latest, isolation_level)
            await Consumption(fetcher, positions, ends, arguments.count, lines).run()
        finally:
            fetcher.close()
        return EXIT_OK

    try:
        return run_with_cluster(arguments, act)
    except (KeyboardInterrupt, asyncio.CancelledError) as error:  # The latter: a member got SIGTERM.
        if follow:
            return EXIT_OK  # Ctrl-C is how following ends.
        raise KeyboardInterrupt from error


async def start_positions(cluster: Cluster, topic: Topic, numbers: Sequence[int], start: Start) -> dict[int, int]:
    """The first offset to show, for each partition. A time after the last record means the end.

    Raises CommandFailed when a partition does not have the offset that was asked for.
    """
    if start.offset == EARLIEST:
        return await offsets(cluster, topic, dict.fromkeys(numbers, EARLIEST))
    ends = await offsets(cluster, topic, dict.fromkeys(numbers, LATEST))
    if start.timestamp_ms is not None:
        found = await offsets(cluster, topic, dict.fromkeys(numbers, start.timestamp_ms))
        return {number: ends[number] if found[number] < 0 else found[number] for number in numbers}
    if start.before_end == 0:
        return ends
    firsts = await offsets(cluster, topic, dict.fromkeys(numbers, EARLIEST))
    if start.before_end is not None:
        return {number: max(ends[number] - start.before_end, firsts[number]) for number in numbers}
    assert start.offset is not None
    for number in numbers:
        if not firsts[number] <= start.offset <= ends[number]:
            raise CommandFailed(_not_there(number, start.offset, first=firsts[number], end=ends[number]))
    return dict.fromkeys(numbers, start.offset)


def _not_there(number: int, offset: int, *, first: int, end: int) -> str:
    holds = "it is empty" if first == end else f"it has {first} to {end - 1}"
    return (
        f"partition {number} has no offset {offset}: {holds}. Begin elsewhere with --offset (`beginning` always "
        "works), or choose other partitions with --partition"
    )


class Lines:
    """Writes records to stdout, as JSON when there is no line format."""

    def __init__(self, topic: str, line_format: LineFormat | Template | None) -> None:
        self._topic = topic
        self._format = line_format
        self._out = sys.stdout.buffer

    def write(self, record: Record, partition: int) -> None:
        if self._format is None:
            self._out.write(json_line_of(record, topic=self._topic, partition=partition))
        elif isinstance(self._format, Template):
            self._out.write(self._format.text_of(record, topic=self._topic, partition=partition))
        else:
            self._out.write(self._format.line_of(record))

    def flush(self) -> None:
        self._out.flush()


class Consumption:
    """Shows records from `positions` on, up to `ends` (None: for ever) or until `count` of them were written."""

    def __init__(
        self, fetcher: Fetcher, positions: dict[int, int], ends: dict[int, int] | None, count: int | None, lines: Lines
    ) -> None:
        self._fetcher = fetcher
        self._positions = positions
        self._ends = ends
        self._lines = lines
        self._turn = 0
        self._progress_s = asyncio.get_running_loop().time()
        self.left = count
        """How many records may still be shown; None for any number."""
        self.shown: dict[int, int] = {}
        """For each partition that got on, the offset after what was written and flushed."""

    async def run(self) -> None:
        """Returns when there is no more to show. Raises CommandFailed."""
        while not self.has_ended:
            await self.step()

    @property
    def has_nothing(self) -> bool:
        """True when it was given no partition at all."""
        return not self._positions

    @property
    def has_ended(self) -> bool:
        """True when there is no more to show; never while it follows."""
        return (self.left is not None and self.left <= 0) or (self._ends is not None and not self._unfinished())

    async def step(self) -> None:
        """Fetches once and shows what came. Raises CommandFailed."""
        wanted = self._wanted()
        before = {number: self._positions[number] for number in wanted}
        for result in await self._fetcher.fetch(before):
            if result.partition_index not in before:
                raise CommandFailed(f"the broker answers for partition {result.partition_index}, which was not asked")
            self._take(result)
        self._lines.flush()
        after = {number: self._positions[number] for number in wanted}
        self.shown |= after
        if self._ends is not None:
            self._check_progress(before, after)

    def _check_progress(self, before: dict[int, int], after: dict[int, int]) -> None:
        """Raises CommandFailed when brokers have had nothing for long, though the log went further at the start."""
        now_s = asyncio.get_running_loop().time()
        if before != after or self.has_ended:
            self._progress_s = now_s
        elif now_s - self._progress_s > PATIENCE_S:
            number, position = next(iter(after.items()))
            raise CommandFailed(
                f"partition {number}: the broker gives nothing from offset {position} on, and said that it has records "
                "there. Try again; if it lasts, look into the broker's log"
            )

    def _wanted(self) -> list[int]:
        """The partitions that have more to show, each one first in its turn, so that none starves another."""
        numbers = self._unfinished()
        self._turn = (self._turn + 1) % len(numbers)
        return numbers[self._turn :] + numbers[: self._turn]

    def _unfinished(self) -> list[int]:
        ends = self._ends
        return [each for each, position in self._positions.items() if ends is None or position < ends[each]]

    def _take(self, result: FetchPartitionResult) -> None:
        number = result.partition_index
        if result.error_code == OFFSET_OUT_OF_RANGE:
            raise CommandFailed(
                f"offset {self._positions[number]} of partition {number} is not in the log any more: retention or "
                "deletion was faster. Begin again with --offset beginning"
            )
        if result.error_code != NONE:
            raise CommandFailed(f"partition {number}: {reason(result.error_code, None)}")
        if isinstance(result.records, memoryview | bytes | bytearray):
            self._show(number, memoryview(result.records), AbortedState(result.aborted_transactions or ()))

    def _show(self, number: int, buffer: memoryview, aborted: AbortedState) -> None:
        last: BatchHeader | None = None
        first_wanted = self._positions[number]
        try:
            for position, header in whole_batches(buffer, 0, len(buffer)):
                last = header
                is_hidden = aborted.hides(header)
                if header.end_offset <= self._positions[number]:
                    continue
                verify_crc(buffer, position, header.size_bytes)
                if not header.is_control and not is_hidden:
                    for record in records(buffer, position):
                        if not self._show_one(number, record):
                            return
                self._positions[number] = header.end_offset
        except CorruptBatch as error:
            raise CommandFailed(f"partition {number}, from offset {self._positions[number]} on: {error}") from error
        if last is not None and last.end_offset <= first_wanted:  # To ask again would go on for ever.
            raise CommandFailed(
                f"partition {number}: asked for offset {first_wanted}, the broker gives records up to "
                f"{last.end_offset - 1}"
            )

    def _show_one(self, number: int, record: Record) -> bool:
        """False when the partition, or everything, ends before this record."""
        if record.offset < self._positions[number]:
            return True  # The batch begins before the offset that was asked for.
        if self._ends is not None and record.offset >= self._ends[number]:
            self._positions[number] = record.offset
            return False
        if self.left is not None:
            if self.left <= 0:
                return False
            self.left -= 1
        self._lines.write(record, number)
        self._positions[number] = record.offset + 1
        return True
