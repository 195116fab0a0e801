"""`tiered consume TOPIC...`: records as lines, from an offset to the end or on and on.

Owns positions and when to stop. Every batch's CRC is checked before a record of it is shown. Without a group
nothing is committed anywhere: running it again shows the same.
"""

import argparse
import asyncio
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from tiered.cli.client.cluster import IS_IT_RUNNING, all_topics, chosen_partitions, existing_topic, run_with_cluster
from tiered.cli.client.refusals import read_replica, topic_refusal
from tiered.cli.failure import EXIT_OK, CommandFailed, UsageError
from tiered.cli.output import complain
from tiered.cli.records.offset_range import End, Start, range_of, start_positions
from tiered.cli.records.open_transactions import ends_of, reasons_of_the_end
from tiered.cli.records.record_text import LineFormat, Template, json_line_of, line_format_of
from tiered.errors import CorruptBatch, RequestTimedOut, Retriable
from tiered.formats.record_batch import BatchHeader, Record, records, verify_crc, whole_batches
from tiered.peer import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    BrokerError,
    Cluster,
    ConnectionLost,
    TopicMetadata,
    TopicPartition,
)
from tiered.rules.security.acl import Operation
from tiered.runtime import Clock, SystemClock
from tiered.wire.error_codes import NONE, OFFSET_OUT_OF_RANGE, is_retriable, reason
from tiered.wire.fetch import AbortedTransaction, FetchPartitionResult

PATIENCE_S = 60.0
"""So long brokers may have nothing of what they said is there."""
RETRY_FOR_MS = 30_000.0
RETRY_EVERY_MS = 250.0
ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


def run(arguments: argparse.Namespace) -> int:
    """Prints records until the end as it was at the start, until `--count`, or with `--follow` until Ctrl-C."""
    start, end = range_of(arguments.offset)
    follow = arguments.follow or (start == Start(before_end=0) and end is None and not arguments.exit_at_end)
    line_format: LineFormat | Template = line_format_of(arguments.key_separator, arguments.null)
    if arguments.template is not None:
        line_format = Template(arguments.template, arguments.null)
    as_json = arguments.json or arguments.format == "json"
    isolation_level = ISOLATION_LEVELS[arguments.isolation]
    if arguments.group is not None and arguments.partition is not None:
        raise UsageError("--partition and --group do not go together: a group gives out the partitions")
    if end is not None and (arguments.follow or arguments.group is not None):
        beside = "--follow" if arguments.follow else "--group"
        raise UsageError(f"--offset {arguments.offset} says where to end, which does not go together with {beside}")
    if arguments.group == "":
        raise UsageError("--group must not be empty")

    async def act(cluster: Cluster) -> None:
        topics = await chosen_topics(cluster, arguments.topics)
        if sys.stderr.isatty() and (replica := await read_replica(cluster)) is not None:
            complain(arguments, replica)
        lines = Lines(None if as_json else line_format)
        on_bad_batch = partial(complain, arguments) if arguments.skip_bad_batches else None
        fetcher = RecordFetcher(cluster, SystemClock(), isolation_level=isolation_level, on_bad_batch=on_bad_batch)
        if arguments.group is not None:
            from tiered.cli.records.consume_group import consume_as_member

            await consume_as_member(cluster, topics, fetcher, arguments, start=start, follow=follow, lines=lines)
            return
        positions: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        early_ends: dict[TopicPartition, int] = {}
        for topic in topics:
            numbers = chosen_partitions(topic, arguments.partition)
            # Partitions differ in what they have: a range shows what each has of it.
            starts = await start_positions(cluster, topic, numbers, start, clips=end is not None)
            positions |= of_topic(topic, starts)
            if not follow:
                last, early = await ends_of(cluster, topic, numbers, end or End(), isolation_level)
                ends, early_ends = ends | last, early_ends | early
        names_offset = start.offset is not None and start.offset >= 0
        if end and names_offset and all(position >= ends[where] for where, position in positions.items()):
            complain(arguments, f"no partition has a record in the range {arguments.offset}")
        consumption = Consumption(fetcher, positions, None if follow else ends, arguments.count, lines)
        await consumption.run()
        if early_ends and consumption.has_shown_all:
            for reason_of_end in await reasons_of_the_end(cluster, early_ends):
                complain(arguments, reason_of_end)

    try:
        return run_with_cluster(arguments, act)
    except (KeyboardInterrupt, asyncio.CancelledError) as error:  # The latter: a member got SIGTERM.
        if follow:
            return EXIT_OK  # Ctrl-C is how following ends.
        raise KeyboardInterrupt from error


async def chosen_topics(cluster: Cluster, names: Sequence[str]) -> list[TopicMetadata]:
    """The topics of these names, and for a name that begins with `^` those that the regular expression finds.

    Raises CommandFailed for a topic that is not there, and UsageError for what cannot be a name.
    """
    found: dict[str, TopicMetadata] = {}
    for name in names:
        if name.startswith("^"):
            try:
                pattern = re.compile(name)
            except re.error as error:
                raise UsageError(f"{name} is no regular expression: {error}") from error
            topics = [each for each in await all_topics(cluster) if not each.is_internal and pattern.search(each.name)]
            if not topics:
                raise CommandFailed(f"no topic's name matches {name}; `tiered topics list` shows those that exist")
        elif "%" in name:
            raise UsageError(f"{name} is no topic's name; did you mean --template '{name}'? -f follows the log here")
        else:
            topics = [await existing_topic(cluster, name)]
        found |= {each.name: each for each in topics}
    return list(found.values())


def of_topic(topic: TopicMetadata, offset_of: Mapping[int, int]) -> dict[TopicPartition, int]:
    """The offsets of a topic's partitions among those of other topics."""
    return {(topic.name, number): offset for number, offset in offset_of.items()}


def in_words(where: TopicPartition) -> str:
    """The partition, for a message."""
    return f"partition {where[1]} of {where[0]}"


class RecordFetcher:
    """Fetches several partitions at once, for half a minute as if nothing had come while a leader is away."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        *,
        isolation_level: int = READ_UNCOMMITTED,
        on_bad_batch: Callable[[str], None] | None = None,
    ) -> None:
        self.isolation_level = isolation_level
        self.on_bad_batch = on_bad_batch
        """Told of each batch that nobody can decode and that is stepped over; without it the first one is an error."""
        self._cluster = cluster
        self._clock = clock
        self._failing_since_ms: float | None = None

    async def fetch(self, positions: Mapping[TopicPartition, int]) -> list[tuple[str, FetchPartitionResult]]:
        """The data from each {partition: offset} on; empty when none came within half a second.

        Results stand with their topic's name, and have no error code, or one that trying again does not heal. Raises
        CommandFailed when a leader could not be found or reached for half a minute.
        """
        try:
            results = await self._cluster.fetch_many(positions, isolation_level=self.isolation_level)
        except BrokerError as error:
            failure = CommandFailed(f"{error.message}: {reason(error.code, None)}")
            if not isinstance(error, Retriable):
                raise failure from error
            return await self._pause(failure)
        except (ConnectionLost, RequestTimedOut) as error:
            seconds = RETRY_FOR_MS / 1000
            return await self._pause(CommandFailed(f"no answer for {seconds:g} seconds: {IS_IT_RUNNING} ({error})"))
        for topic, result in results:
            if result.error_code != NONE and is_retriable(result.error_code):
                where = in_words((topic, result.partition_index))
                return await self._pause(CommandFailed(f"{where}: {reason(result.error_code, None)}"))
        self._failing_since_ms = None
        return results

    def refusal(self, where: TopicPartition, code: int) -> str:
        """Why a partition was not read."""
        return topic_refusal(self._cluster, Operation.READ, where[0], code)

    async def _pause(self, failure: CommandFailed) -> list[tuple[str, FetchPartitionResult]]:
        """Nothing, after a moment. Raises `failure` when nothing has helped for half a minute."""
        now_ms = self._clock.monotonic_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        elif now_ms - self._failing_since_ms > RETRY_FOR_MS:
            raise failure
        await asyncio.sleep(RETRY_EVERY_MS / 1000)
        return []


class Lines:
    """Writes records to stdout, as JSON when there is no line format."""

    def __init__(self, line_format: LineFormat | Template | None) -> None:
        self._format = line_format
        self._out = sys.stdout.buffer

    def write(self, record: Record, where: TopicPartition) -> None:
        topic, partition = where
        if self._format is None:
            self._out.write(json_line_of(record, topic=topic, partition=partition))
        elif isinstance(self._format, Template):
            self._out.write(self._format.text_of(record, topic=topic, partition=partition))
        else:
            self._out.write(self._format.line_of(record))

    def flush(self) -> None:
        self._out.flush()


class AbortedState:
    """The aborted transactions that one fetch names, for batches in the order of their offsets."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._waiting = sorted(transactions, key=lambda each: each.first_offset, reverse=True)
        self._aborted: set[int] = set()

    def hides(self, header: BatchHeader) -> bool:
        """True for a batch of records whose transaction was aborted. A marker ends its producer's transaction."""
        while self._waiting and self._waiting[-1].first_offset <= header.last_offset:
            self._aborted.add(self._waiting.pop().producer_id)
        if header.is_control:
            # A commit marker can be that of an earlier transaction only when the abort has not begun yet.
            self._aborted.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._aborted


class Consumption:
    """Shows records from `positions` on, up to `ends` (None: for ever) or until `count` of them were written."""

    def __init__(
        self,
        fetcher: RecordFetcher,
        positions: dict[TopicPartition, int],
        ends: dict[TopicPartition, int] | None,
        count: int | None,
        lines: Lines,
    ) -> None:
        self._fetcher = fetcher
        self._positions = positions
        self._ends = ends
        self._lines = lines
        self._turn = 0
        self._progress_s = asyncio.get_running_loop().time()
        self.left = count
        """How many records may still be shown; None for any number."""
        self.shown: dict[TopicPartition, int] = {}
        """For each partition that got on, the offset after what was written and flushed."""

    async def run(self) -> None:
        """Returns when there is no more to show. Raises CommandFailed."""
        while not self.has_ended:
            await self.step()

    @property
    def partitions(self) -> Iterable[TopicPartition]:
        """The partitions that it was given."""
        return self._positions.keys()

    @property
    def has_nothing(self) -> bool:
        """True when it was given no partition at all."""
        return not self._positions

    @property
    def has_ended(self) -> bool:
        """True when there is no more to show; never while it follows."""
        return (self.left is not None and self.left <= 0) or self.has_shown_all

    @property
    def has_shown_all(self) -> bool:
        """True when every partition was shown to its end, and no `--count` ended it."""
        return self._ends is not None and not self._unfinished()

    async def step(self) -> None:
        """Fetches once and shows what came. Raises CommandFailed."""
        wanted = self._wanted()
        before = {each: self._positions[each] for each in wanted}
        for topic, result in await self._fetcher.fetch(before):
            if (topic, result.partition_index) not in before:
                raise CommandFailed(
                    f"the broker answers for partition {result.partition_index} of {topic}, which was not asked"
                )
            self._take((topic, result.partition_index), result)
        self._lines.flush()
        after = {each: self._positions[each] for each in wanted}
        self.shown |= after
        if self._ends is not None:
            self._check_progress(before, after)

    def _check_progress(self, before: dict[TopicPartition, int], after: dict[TopicPartition, int]) -> None:
        """Raises CommandFailed when brokers have had nothing for long, though the log went further at the start."""
        now_s = asyncio.get_running_loop().time()
        if before != after or self.has_ended:
            self._progress_s = now_s
        elif now_s - self._progress_s > PATIENCE_S:
            where, position = next(iter(after.items()))
            raise CommandFailed(
                f"{in_words(where)}: the broker gives nothing from offset {position} on, and said that it has records "
                "there. Try again; if it lasts, look into the broker's log"
            )

    def _wanted(self) -> list[TopicPartition]:
        """The partitions that have more to show, each one first in its turn, so that none starves another."""
        numbers = self._unfinished()
        self._turn = (self._turn + 1) % len(numbers)
        return numbers[self._turn :] + numbers[: self._turn]

    def _unfinished(self) -> list[TopicPartition]:
        ends = self._ends
        return [each for each, position in self._positions.items() if ends is None or position < ends[each]]

    def _take(self, where: TopicPartition, result: FetchPartitionResult) -> None:
        if result.error_code == OFFSET_OUT_OF_RANGE:
            raise CommandFailed(
                f"offset {self._positions[where]} of {in_words(where)} is not in the log any more: retention or "
                "deletion was faster. Begin again with --offset beginning"
            )
        if result.error_code != NONE:
            raise CommandFailed(f"{in_words(where)}: {self._fetcher.refusal(where, result.error_code)}")
        if isinstance(result.records, memoryview | bytes | bytearray):
            self._show(where, memoryview(result.records), AbortedState(result.aborted_transactions or ()))

    def _show(self, where: TopicPartition, buffer: memoryview, aborted: AbortedState) -> None:
        last: BatchHeader | None = None
        first_wanted = self._positions[where]
        try:
            for position, header in whole_batches(buffer, 0, len(buffer)):
                last = header
                is_hidden = aborted.hides(header)
                if header.end_offset <= self._positions[where]:
                    continue
                verify_crc(buffer, position, header.size_bytes)
                if not header.is_control and not is_hidden and not self._show_batch(where, buffer, position, header):
                    return
                self._positions[where] = header.end_offset
        except CorruptBatch as error:
            raise CommandFailed(f"{in_words(where)}, from offset {self._positions[where]} on: {error}") from error
        if last is not None and last.end_offset <= first_wanted:  # To ask again would go on for ever.
            raise CommandFailed(
                f"{in_words(where)}: asked for offset {first_wanted}, the broker gives records up to "
                f"{last.end_offset - 1}"
            )

    def _show_batch(self, where: TopicPartition, buffer: memoryview, position: int, header: BatchHeader) -> bool:
        """As `_show_one`. Raises CommandFailed for a batch whose CRC is right and whose records nobody can decode."""
        try:
            return all(self._show_one(where, record) for record in records(buffer, position))
        except CorruptBatch as error:
            problem = f"{in_words(where)}: offsets {self._positions[where]} to {header.last_offset} cannot be decoded"
            if self._fetcher.on_bad_batch is None:
                raise CommandFailed(f"{problem}: {error}. --skip-bad-batches steps over them") from error
            self._fetcher.on_bad_batch(f"{problem}, and are stepped over: {error}")
            return True

    def _show_one(self, where: TopicPartition, record: Record) -> bool:
        """False when the partition, or everything, ends before this record."""
        if record.offset < self._positions[where]:
            return True  # The batch begins before the offset that was asked for.
        if self._ends is not None and record.offset >= self._ends[where]:
            self._positions[where] = record.offset
            return False
        if self.left is not None:
            if self.left <= 0:
                return False
            self.left -= 1
        self._lines.write(record, where)
        self._positions[where] = record.offset + 1
        return True
