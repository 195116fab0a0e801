"""`tiered produce TOPIC [FILE]`: lines become records.

Owns gathering and sending. With acks=all the producer is idempotent, so a batch that is sent again is stored
once. Must never report a record as sent before its batch was acknowledged.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tiered.cli.cluster import Cluster, Topic, created_topic, run_with_cluster
from tiered.cli.failure import EXIT_OK, CommandFailed, UsageError
from tiered.cli.kafka_errors import NONE, advice, reason
from tiered.cli.line_reader import LineReader
from tiered.cli.output import counted, print_json
from tiered.cli.progress import Report, progress_of
from tiered.cli.record_text import LineFormat, header_of, line_format_of, record_of_json
from tiered.errors import TieredError, UnsupportedVersion
from tiered.formats.record_batch import Compression, Record, encode_batch
from tiered.peer import ACKS_ALL, BrokerError
from tiered.rules.partitioner import next_partition, partition_for_key
from tiered.runtime import SystemClock, new_uuid

RECORD_OVERHEAD_BYTES = 24
"""About what a record takes besides its key, value and headers."""
ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1}
_INIT_PRODUCER_ID = 22


def run(arguments: argparse.Namespace) -> int:
    """Sends every line of the file, or of stdin. Raises CommandFailed when a record was not acknowledged."""
    line_format = line_format_of(arguments.key_separator, arguments.null)
    headers = tuple(header_of(text) for text in arguments.header)
    read = _record_of_json(headers) if arguments.format == "json" else _record_of_text(line_format, headers)
    with _input(arguments.file) as fd:

        async def act(cluster: Cluster) -> int:
            topic = await created_topic(cluster, arguments.topic)
            if arguments.partition is not None:
                topic.chosen([arguments.partition])
            sender = Sender(cluster, topic, ACKS[arguments.acks], Compression[arguments.compression.upper()])
            gathering = Gathering(
                len(topic.partitions),
                fixed_partition=arguments.partition,
                max_records=arguments.batch_records,
                max_bytes=arguments.batch_bytes,
            )
            await sender.start()
            try:
                with progress_of(fd, "sent") as progress:
                    reader = LineReader(fd)
                    await _produce_lines(reader, read, gathering, sender, arguments.linger_ms, progress)
            except CommandFailed as error:
                raise CommandFailed(f"{error} ({counted(sender.records, 'record')} sent before)") from error
            _tell(arguments, sender)
            return EXIT_OK

        return run_with_cluster(arguments.bootstrap, act)


@contextlib.contextmanager
def _input(path: str | None) -> Iterator[int]:
    if path is None or path == "-":
        yield sys.stdin.fileno()
        return
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    try:
        yield fd
    finally:
        os.close(fd)


Headers = tuple[tuple[str, bytes | None], ...]
ReadLine = Callable[[bytes, int, int], Record]
"""Takes a line, its number from 1 on, and the time; gives its record."""


def _record_of_text(line_format: LineFormat, headers: Headers) -> ReadLine:
    return lambda line, _number, now_ms: line_format.record_of(line, offset=0, timestamp_ms=now_ms, headers=headers)


def _record_of_json(headers: Headers) -> ReadLine:
    def read(line: bytes, number: int, now_ms: int) -> Record:
        try:
            found = record_of_json(line, offset=0, timestamp_ms=now_ms)
        except (ValueError, RecursionError) as error:
            raise CommandFailed(f"line {number} is no record in JSON: {error}") from error
        return dataclasses.replace(found, headers=found.headers + headers) if headers else found

    return read


async def _produce_lines(
    reader: LineReader,
    read: ReadLine,
    gathering: "Gathering",
    sender: "Sender",
    linger_ms: float,
    progress: Report,
) -> None:
    clock = SystemClock()
    number = 0
    reader.start()
    while (lines := await reader.next(linger_ms if gathering.records else None)) is not None:
        now_ms = clock.now_ms()
        for line in lines:
            number += 1
            gathering.add(read(line, number, now_ms))
        # Nothing new within the linger: what is there goes now, so that an interactive line does not wait.
        await sender.send(gathering.take(everything=not lines))
        progress(sender.records, reader.position)
    await sender.send(gathering.take(everything=True))


def _tell(arguments: argparse.Namespace, sender: "Sender") -> None:
    if arguments.json:
        partitions = [
            {
                "partition": number,
                "records": done.records,
                "first_offset": done.first_offset,
                "last_offset": done.last_offset,
            }
            for number, done in sorted(sender.done.items())
        ]
        print_json({"topic": arguments.topic, "records": sender.records, "partitions": partitions})
    elif sys.stderr.isatty():
        where = counted(len(sender.done), "partition")
        print(f"{counted(sender.records, 'record')} sent to {where} of {arguments.topic}", file=sys.stderr)


@dataclass(slots=True)
class BatchState:
    """Records of one batch to be. Their offsets count from 0."""

    partition: int
    records: list[Record] = field(default_factory=list)
    size_bytes: int = 0


class Gathering:
    """Sorts records into batches, one open batch for each partition."""

    def __init__(self, partition_count: int, *, fixed_partition: int | None, max_records: int, max_bytes: int) -> None:
        self._partition_count = partition_count
        self._fixed = fixed_partition
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._open: dict[int, BatchState] = {}
        self._full: list[BatchState] = []
        # Not always the first: many short runs would fill it alone.
        self._sticky = new_uuid().int % partition_count
        self.records = 0
        """Records that wait."""

    def add(self, record: Record) -> None:
        """Puts the record into its partition's open batch; its offset becomes its place there."""
        if self._fixed is not None:
            partition = self._fixed
        elif record.key is not None:
            partition = partition_for_key(record.key, self._partition_count)
        else:
            partition = self._sticky
        size_bytes = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size_bytes += sum(len(name) + len(value or b"") for name, value in record.headers)
        batch = self._open.get(partition)
        if batch is not None and batch.size_bytes + size_bytes > self._max_bytes:
            self._close(batch)
            batch = None
        if batch is None:
            batch = self._open[partition] = BatchState(partition)
        batch.records.append(
            Record(
                offset=len(batch.records),
                timestamp_ms=record.timestamp_ms,
                key=record.key,
                value=record.value,
                headers=record.headers,
            )
        )
        batch.size_bytes += size_bytes
        self.records += 1
        if len(batch.records) >= self._max_records:
            self._close(batch)

    def take(self, *, everything: bool) -> list[BatchState]:
        """The batches that are full, oldest first; with `everything` the others as well."""
        if everything:
            for batch in list(self._open.values()):
                self._close(batch)
        taken, self._full = self._full, []
        self.records -= sum(len(batch.records) for batch in taken)
        return taken

    def _close(self, batch: BatchState) -> None:
        del self._open[batch.partition]
        self._full.append(batch)
        if batch.partition == self._sticky:
            self._sticky = next_partition(self._sticky, self._partition_count)


@dataclass(slots=True)
class DoneState:
    """What was acknowledged of one partition. Offsets are None where the broker did not say them."""

    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None


class Sender:
    """Sends batches to their leaders and waits for the acknowledgements, one batch of a partition at a time."""

    def __init__(self, cluster: Cluster, topic: Topic, acks: int, compression: Compression) -> None:
        self._cluster = cluster
        self._topic = topic
        self._acks = acks
        self._compression = compression
        self._producer_id = self._producer_epoch = -1
        self._sequences: dict[int, int] = {}
        self.done: dict[int, DoneState] = {}

    @property
    def records(self) -> int:
        """Records acknowledged so far."""
        return sum(each.records for each in self.done.values())

    async def start(self) -> None:
        """Gets a producer id, by which a batch that is sent again is recognised. Raises CommandFailed."""
        if self._acks != ACKS_ALL:
            return
        try:
            answer = await self._cluster.request(
                _INIT_PRODUCER_ID,
                lambda make: make.InitProducerIdRequest(transactional_id=None, transaction_timeout=60_000),
            )
        except UnsupportedVersion:
            return  # An old broker: it does without, and what may have been written is not sent again.
        if answer.error_code != NONE:
            raise CommandFailed(f"the broker gave no producer id: {reason(answer.error_code, None)}")
        self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch

    async def send(self, batches: Sequence[BatchState]) -> None:
        """Returns when all are acknowledged. Raises CommandFailed when one is not; others may be even then."""
        by_partition: dict[int, list[BatchState]] = {}
        for batch in batches:
            by_partition.setdefault(batch.partition, []).append(batch)
        outcomes = await asyncio.gather(*map(self._send_in_turn, by_partition.values()), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _send_in_turn(self, batches: Sequence[BatchState]) -> None:
        for batch in batches:
            try:
                produced = await self._cluster.produce(
                    self._topic.name,
                    batch.partition,
                    self._encoded(batch),
                    acks=self._acks,
                    repeatable=self._producer_id >= 0,
                )
            except TieredError as error:
                code = error.code if isinstance(error, BrokerError) else NONE
                hint = f"; {advice(code)}" if advice(code) else ""
                raise CommandFailed(f"{error}{hint}") from error
            self._acknowledged(batch, produced.base_offset)

    def _encoded(self, batch: BatchState) -> bytes:
        sequence = -1
        if self._producer_id >= 0:
            sequence = self._sequences.get(batch.partition, 0)
            self._sequences[batch.partition] = (sequence + len(batch.records)) & 0x7FFFFFFF
        return encode_batch(
            batch.records,
            compression=self._compression,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence,
        )

    def _acknowledged(self, batch: BatchState, base_offset: int) -> None:
        done = self.done.setdefault(batch.partition, DoneState())
        done.records += len(batch.records)
        if base_offset >= 0:
            if done.first_offset is None:
                done.first_offset = base_offset
            done.last_offset = base_offset + len(batch.records) - 1
