"""The data that a Fetch has found, and its answer: small data is copied, more is sent as ranges of files.

Owns the values of one look, and their encoding. Must never look at a partition's offsets twice, nor wait for disk or
store: `api.fetch` does. Reading what is small takes time: an answer about many partitions is made in turns.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tiered.broker.groups.offsets_topic import OffsetsPartition
from tiered.broker.partitions.readable import Readable
from tiered.errors import LogDirFailed, TieredError, UnsupportedCompression
from tiered.file_slice import FileSlice
from tiered.formats import record_batch
from tiered.formats.aborted_ranges import AbortedRange
from tiered.server.kafka import throttling
from tiered.server.kafka.dispatch import RawRequest, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code
from tiered.server.kafka.listed_brokers import LeaderHints
from tiered.server.kafka.transport.outbox import Parts
from tiered.wire import fetch
from tiered.wire.fetch import AbortedTransaction, FetchPartition, FetchPartitionResult, FetchRequest, FetchTopicResult
from tiered.wire.primitives import NodeEndpoint

log = logging.getLogger(__name__)

READ_COMMITTED = 1
LEADER = -1
# Up to this size copying a range costs less than an extra system call.
COPY_BYTES = 16 << 10
NO_SESSION = 0
"""Fetch sessions (KIP-227) are declined in every answer, so clients send full requests."""
FIRST_VERSION_WITH_ZSTD = 10
ZSTD = 4


@dataclass(slots=True)
class FetchEntry:
    """One partition of the request and what was found for it."""

    asked: FetchPartition
    partition: Readable | None = None
    offsets: OffsetsPartition | None = None
    """In its place, of `__consumer_offsets`."""
    error: TieredError | None = None
    records: FileSlice | bytes | None = None
    aborted: Sequence[AbortedRange] = ()
    """The aborted transactions that have a part in them."""
    cold_max_bytes: int = 0
    read_from: int = LEADER
    """The replica that the consumer should read from, when that is not this one."""

    @property
    def source(self) -> Readable | OffsetsPartition | None:
        """The topic of these records, once it is found."""
        return self.partition if self.partition is not None else self.offsets


@dataclass(slots=True)
class FetchLook:
    """One look at all partitions of a request."""

    topics: list[tuple[fetch.FetchTopic, list[FetchEntry]]] = field(default_factory=list)
    total_bytes: int = 0
    has_error: bool = False
    has_cold: bool = False
    in_doubt: list[FetchEntry] = field(default_factory=list)
    """Offsets beyond the ends of logs that others may lead by now, until this broker has asked."""
    is_confirmed: bool = False
    """This broker has asked."""
    to_load: list[OffsetsPartition] = field(default_factory=list)
    """Nobody has read them for a while: SQL is asked first."""

    def entries(self) -> list[FetchEntry]:
        return [entry for _, entries in self.topics for entry in entries]


def disk_error(request: RawRequest, partition: Readable | None, error: Exception) -> LogDirFailed:
    """The answer for a partition whose local file cannot be read. It is logged as well, because the disk is ours."""
    name = partition.name if partition is not None else "a partition"
    request.context.broker.counters.disk_errors += 1
    log.error("%s cannot be read: %s", name, error)
    return LogDirFailed(f"{name} cannot be read from the broker's disk: {error}")


def keep_to_limits(entries: list[FetchEntry]) -> None:
    """A batch above its partition's limit goes out only as the first one of an answer (KIP-74)."""
    first = True
    for entry in entries:
        if not isinstance(entry.records, FileSlice) or not entry.records.length:
            continue
        if entry.cold_max_bytes and not first and entry.records.length > entry.cold_max_bytes:
            entry.records, entry.aborted = None, ()
        first = False


@dataclass(slots=True)
class FetchAnswer:
    """An answer that is being made."""

    results: list[FetchTopicResult] = field(default_factory=list)
    sent_bytes: int = 0


def answer(request: RawRequest, asked: FetchRequest, found: FetchLook) -> Parts:
    """The answer to a Fetch of few partitions."""
    told = FetchAnswer()
    for _ in telling(request, asked, found, told):
        pass
    return _finish(request, found, told)()


async def answer_in_turns(request: RawRequest, asked: FetchRequest, found: FetchLook) -> Parts:
    """The same for one of many: others get their turn meanwhile."""
    told = FetchAnswer()
    async for _ in in_turns(telling(request, asked, found, told)):
        pass
    return await asyncio.to_thread(_finish(request, found, told))


def telling(request: RawRequest, asked: FetchRequest, found: FetchLook, told: FetchAnswer) -> Iterator[None]:
    """Adds what each partition is answered."""
    version = request.context.api_version
    counters, now_ms = request.context.broker.counters, request.context.broker.clock.now_ms()
    for topic, entries in found.topics:
        answers = []
        for entry in entries:
            try:
                answers.append(_result(entry, asked, version))
            except (OSError, EOFError) as error:
                answers.append(_refusal(entry, disk_error(request, entry.partition, error)))
            except TieredError as error:
                answers.append(_refusal(entry, error))
            if entry.records is not None:
                length = len(entry.records) if isinstance(entry.records, bytes) else entry.records.length
                told.sent_bytes += length
                counters.fetched_bytes += length
                counters.fetched_local_bytes += 0 if entry.cold_max_bytes else length
                if entry.partition is not None:
                    entry.partition.traffic.begin(now_ms)
                    entry.partition.traffic.fetched_bytes += length
            yield
        told.results.append(FetchTopicResult(topic.name, topic.topic_id, answers))


def _finish(request: RawRequest, found: FetchLook, told: FetchAnswer) -> Callable[[], Parts]:
    """The function that encodes the answer, with the addresses of the leaders of refused partitions."""
    version, results = request.context.api_version, told.results
    endpoints: tuple[NodeEndpoint, ...] = ()
    if found.has_error and version >= fetch.FIRST_FLEXIBLE:
        hints = LeaderHints(request)
        results = [each._replace(partitions=hints.complete(*each)) for each in results]
        endpoints = hints.endpoints
    throttle_ms = throttling.fetched(request.context, told.sent_bytes)
    return lambda: fetch.encode_fetch_response(
        version, request.correlation_id, NONE, NO_SESSION, results, throttle_ms, node_endpoints=endpoints
    )


def _result(entry: FetchEntry, asked: FetchRequest, version: int) -> FetchPartitionResult:
    if entry.error is None and version < FIRST_VERSION_WITH_ZSTD and isinstance(entry.records, FileSlice):
        _refuse_zstd(entry)
    if entry.error is not None:
        return _refusal(entry, entry.error)
    partition = entry.source
    assert partition is not None
    if isinstance(entry.records, FileSlice) and entry.records.length <= COPY_BYTES:
        entry.records = entry.records.read()
    return FetchPartitionResult(
        entry.asked.partition,
        NONE,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
        entry.records,
        _aborted(entry) if asked.isolation_level == READ_COMMITTED else None,
        entry.read_from,
    )


def _aborted(entry: FetchEntry) -> list[AbortedTransaction]:
    return [AbortedTransaction(each.producer_id, each.first_offset) for each in entry.aborted]


def _refusal(entry: FetchEntry, error: TieredError) -> FetchPartitionResult:
    entry.records = None
    start_offset, end_offset = (-1, -1) if entry.partition is None else entry.partition.bounds_of_refusal()
    return FetchPartitionResult(entry.asked.partition, error_code(error), end_offset, end_offset, start_offset)


def _refuse_zstd(entry: FetchEntry) -> None:
    """Clients from before KIP-110 cannot read zstd; they are told, instead of being handed it."""
    assert isinstance(entry.records, FileSlice)
    data = entry.records.read()
    if any(header.compression == ZSTD for _, header in record_batch.whole_batches(data, 0, len(data))):
        entry.error = UnsupportedCompression("zstd records need Fetch version 10 or later; upgrade the client")
