"""`tiered produce TOPIC [FILE]`: lines become records.

Owns the thread that reads lines, a few chunks ahead, and when what has been read is sent; `peer.producer` gathers and
sends. With acks=all the producer is idempotent, so a batch that is sent again is stored once. Must never block the
event loop, nor report a record as sent before its batch was acknowledged.
"""

import argparse
import asyncio
import concurrent.futures
import contextlib
import dataclasses
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

from tiered.cli.client.cluster import chosen_partitions, created_topic, run_with_cluster
from tiered.cli.failure import CommandFailed, UsageError
from tiered.cli.output import counted, print_json, say
from tiered.cli.progress import Report, progress_of
from tiered.cli.records.record_text import LineFormat, header_of, line_format_of, record_of_json
from tiered.errors import TieredError
from tiered.formats.record_batch import Compression, Record
from tiered.peer import ACKS_ALL, BrokerError, Cluster
from tiered.peer.producer import BatchState, Gathering, Sender
from tiered.runtime import SystemClock, new_uuid
from tiered.wire.error_codes import NONE, advice

ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1}
CHUNK_BYTES = 1 << 18
CHUNKS_AHEAD = 4
MAX_LINE_BYTES = 64 << 20


def run(arguments: argparse.Namespace) -> int:
    """Sends every line of the file, or of stdin. Raises CommandFailed when a record was not acknowledged."""
    line_format = line_format_of(arguments.key_separator, arguments.null)
    headers = tuple(header_of(text, arguments.null) for text in arguments.header)
    read = _record_of_json(headers) if arguments.format == "json" else _record_of_text(line_format, headers)
    with _input(arguments.file) as fd:

        async def act(cluster: Cluster) -> None:
            described = (await cluster.metadata([arguments.topic])).topics.get(arguments.topic)
            topic = await created_topic(cluster, arguments.topic)
            if described is None or described.error_code:
                _say(f"topic {topic.name} created with {counted(len(topic.partitions), 'partition')}")
            if arguments.partition is not None:
                chosen_partitions(topic, [arguments.partition])
            sender = Sender(cluster, acks=ACKS[arguments.acks], compression=Compression[arguments.compression.upper()])
            gathering = Gathering(
                len(topic.partitions),
                max_records=arguments.batch_records,
                max_bytes=arguments.batch_bytes,
                # Not always the first: many short runs would fill it alone.
                sticky=new_uuid().int,
            )
            try:
                await sender.start()
            except BrokerError as error:
                raise _failed(error) from error
            if os.isatty(fd):
                _say("each line is a record; Ctrl-D ends")
            try:
                with progress_of(fd, "sent") as progress:
                    await _produce_lines(LineReader(fd), read, gathering, sender, arguments, progress)
            except CommandFailed as error:
                raise CommandFailed(f"{error} ({counted(sender.records, 'record')} sent before)") from error
            _tell(arguments, sender)

        return run_with_cluster(arguments, act)


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
    reader: "LineReader",
    read: ReadLine,
    gathering: Gathering,
    sender: Sender,
    arguments: argparse.Namespace,
    progress: Report,
) -> None:
    clock = SystemClock()
    number = 0
    reader.start()
    while (lines := await reader.next(arguments.linger_ms if gathering.records else None)) is not None:
        now_ms = clock.now_ms()
        for line in lines:
            number += 1
            gathering.add(read(line, number, now_ms), arguments.partition)
        # Nothing new within the linger: what is there goes now, so that an interactive line does not wait.
        await _send(sender, arguments.topic, gathering.take(everything=not lines))
        progress(sender.records, reader.position)
    await _send(sender, arguments.topic, gathering.take(everything=True))


async def _send(sender: Sender, topic: str, batches: Sequence[BatchState]) -> None:
    try:
        await sender.send(topic, batches)
    except TieredError as error:
        raise _failed(error) from error


def _failed(error: TieredError) -> CommandFailed:
    hint = advice(error.code if isinstance(error, BrokerError) else NONE)
    return CommandFailed(f"{error}; {hint}" if hint else str(error))


def _tell(arguments: argparse.Namespace, sender: Sender) -> None:
    if arguments.json:
        partitions = [
            {
                "partition": number,
                "records": done.records,
                "first_offset": done.first_offset,
                "last_offset": done.last_offset,
            }
            for (_, number), done in sorted(sender.done.items())
        ]
        print_json({"topic": arguments.topic, "records": sender.records, "partitions": partitions})
    else:
        where = f"{counted(len(sender.done), 'partition')} of {arguments.topic}"
        if len(sender.done) == 1:
            (((_, number), done),) = sender.done.items()
            where = f"partition {number} of {arguments.topic}, offsets {done.first_offset} to {done.last_offset}"
        _say(f"{counted(sender.records, 'record')} sent to {where}")


def _say(text: str) -> None:
    """For somebody who looks on: scripts get nothing on stderr but errors."""
    if sys.stderr.isatty():
        say(text, file=sys.stderr)


class LineReader:
    """Reads the file descriptor `fd` without ever blocking the loop; `next` gives the lines that came since."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(CHUNKS_AHEAD)
        self._partial = bytearray()
        self._ended = False
        self.position = 0
        """Bytes that were taken so far."""

    def start(self) -> None:
        """Begins to read. The thread is a daemon: a read from a terminal may never end."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), name="lines", daemon=True).start()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        # os.read and not a file object: a daemon thread must hold no buffer's lock when the interpreter ends.
        while True:
            chunk: bytes | OSError
            try:
                chunk = os.read(self._fd, CHUNK_BYTES)
            except OSError as error:
                chunk = error
            put = self._chunks.put(chunk)
            try:
                asyncio.run_coroutine_threadsafe(put, loop).result()
            except (RuntimeError, concurrent.futures.CancelledError):
                put.close()
                return  # The loop has ended: nobody takes lines any more.
            if not chunk or isinstance(chunk, OSError):
                return

    async def next(self, wait_ms: float | None) -> list[bytes] | None:
        """The next lines, without their ends; none when `wait_ms` passed without one; None at the end of the input.

        Raises CommandFailed when the input cannot be read, or at a line of more than `MAX_LINE_BYTES`.
        """
        if self._ended:
            return None
        try:
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000.0):
                chunk = await self._chunks.get()
        except TimeoutError:
            return []
        if isinstance(chunk, OSError):
            raise CommandFailed(f"cannot read the input: {chunk.strerror}")
        if not chunk:
            self._ended = True
            return [bytes(self._partial)] if self._partial else None
        self.position += len(chunk)
        head, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._partial += chunk
            if len(self._partial) > MAX_LINE_BYTES:
                raise CommandFailed(f"a line of the input has more than {MAX_LINE_BYTES >> 20} MiB")
            return []
        lines = head.split(b"\n")
        if self._partial:
            lines[0] = bytes(self._partial) + lines[0]
            self._partial.clear()
        self._partial += rest
        return lines
