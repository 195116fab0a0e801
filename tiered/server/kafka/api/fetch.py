"""Fetch (key 1), versions 4 to 18: record batches from both tiers, as they were written.

Long-polls until `min_bytes` are there, `max_wait_ms` has passed, or any partition has an error (as Kafka's
DelayedFetch). Limits follow KIP-74: whole batches, and the first non-empty partition gives at least one even
above the limits. Partitions are served in the order of the request. Cold partitions are read in parallel
within the same limits. Sessions (KIP-227) are declined: every answer has session id 0, so clients send full
requests. A consumer that names its rack is sent to a follower in it (KIP-392), which serves it up to its own high
watermark; any other reads from the leader alone. Followers themselves are answered by `follower_fetch`.
"""

import asyncio
import logging
from dataclasses import dataclass, field

from tiered.broker.fetch_wait import Watch
from tiered.broker.partition import Partition
from tiered.broker.replication.nearest import nearest_replica
from tiered.errors import (
    LogDirFailed,
    MalformedRequest,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    TieredError,
    UnsupportedCompression,
)
from tiered.file_slice import FileSlice
from tiered.formats import record_batch
from tiered.rules import read_plan
from tiered.rules.acl import Operation
from tiered.server.kafka import follower_fetch, throttling
from tiered.server.kafka.authorize import may_replicate, rights_of, topic_refusal
from tiered.server.kafka.dispatch import Api, RawRequest
from tiered.server.kafka.error_mapping import CLUSTER_AUTHORIZATION_FAILED, NONE, error_code
from tiered.server.kafka.fetch_sessions import NO_SESSION, session_error
from tiered.server.kafka.frame_handler import Answer
from tiered.server.kafka.leader_hints import CODES, LeaderHints
from tiered.server.kafka.outbox import Parts
from tiered.wire import fetch
from tiered.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest, FetchTopicResult
from tiered.wire.primitives import NodeEndpoint

log = logging.getLogger(__name__)

READ_COMMITTED = 1
LEADER = -1
# A longer wait than any client asks for; it bounds how long a vanished client's wait can last.
MAX_WAIT_MS = 600_000
# Up to here copying a range costs less than a system call of its own.
COPY_BYTES = 16 << 10
FIRST_VERSION_WITH_ZSTD = 10
ZSTD = 4
# What a cold partition takes of the request's budget at the least: each one costs a read from the store.
LEAST_COLD_BYTES = 64 << 10
COLD_READS_AT_ONCE = 16
# Partitions in all fetches that wait at one time: each takes half a KiB. One more fetch is answered at once.
MAX_WAITING_PARTITIONS = 1_000_000
# A look at many partitions takes this long before the next one is put off, to ten times as long.
LONG_LOOK_MS = 5.0


@dataclass(slots=True)
class _Entry:
    """One partition of the request and what was found for it."""

    asked: FetchPartition
    partition: Partition | None = None
    error: TieredError | None = None
    records: FileSlice | bytes | None = None
    cold_max_bytes: int = 0
    read_from: int = LEADER
    """The replica that the consumer should read from, when that is not this one."""


@dataclass(slots=True)
class _Found:
    """One pass over all partitions of a request."""

    topics: list[tuple[fetch.FetchTopic, list[_Entry]]] = field(default_factory=list)
    total_bytes: int = 0
    has_error: bool = False
    has_cold: bool = False
    in_doubt: list[_Entry] = field(default_factory=list)
    """Offsets beyond the ends of logs that others may lead by now, until this broker has asked."""
    is_confirmed: bool = False
    """This broker has asked."""

    def entries(self) -> list[_Entry]:
        return [entry for _, entries in self.topics for entry in entries]


def handle(request: RawRequest) -> Answer:
    """The answer: at once when there is enough in memory, else later."""
    broker = request.context.broker
    asked = fetch.decode_fetch_request(request.buffer, request.position, request.end, request.context.api_version)
    broker.counters.requests["Fetch"] += 1
    limit = broker.settings.tiered_max_partitions
    if sum(len(topic.partitions) for topic in asked.topics) > limit:
        raise MalformedRequest(f"a Fetch asks for more than {limit} partitions; more cannot be (tiered.max.partitions)")
    refusal = session_error(asked)
    if refusal != NONE:
        return fetch.encode_fetch_response(request.context.api_version, request.correlation_id, refusal, NO_SESSION, [])
    if asked.replica_id >= 0:
        if not may_replicate(request.context):
            refusal, version = CLUSTER_AUTHORIZATION_FAILED, request.context.api_version
            return fetch.encode_fetch_response(version, request.correlation_id, refusal, NO_SESSION, [])
        return follower_fetch.handle(request, asked)
    if request.context.throttle_ms or broker.client_quotas.limits_fetch:
        throttle_ms, most_bytes = throttling.fetch_allowance(request.context)
        if throttle_ms:
            version = request.context.api_version
            return fetch.encode_fetch_response(version, request.correlation_id, NONE, NO_SESSION, [], throttle_ms)
        if most_bytes is not None:
            asked = asked._replace(max_bytes=min(asked.max_bytes, most_bytes))
    found = _look(request, asked)
    is_ready = _is_enough(found, asked) and not found.has_cold and not found.in_doubt
    if is_ready and _all_resident(request, found):
        return _answer(request, asked, found)
    return _answer_later(request, asked, found, _watch(found))


def _look(request: RawRequest, asked: FetchRequest, *, is_confirmed: bool = False) -> _Found:
    """What is there now, within the request's limits. Reads nothing yet: hot ranges are slices, cold ones a plan."""
    found = _Found(is_confirmed=is_confirmed)
    topics = request.context.broker.topics
    budget = min(max(0, asked.max_bytes), request.context.broker.settings.fetch_max_bytes)
    committed_only = asked.isolation_level == READ_COMMITTED
    rights = rights_of(request.context)
    for topic in asked.topics:
        entries: list[_Entry] = []
        denied = None
        if rights is not None:
            denied = topic_refusal(request.context, Operation.READ, topic.name, topic.topic_id, rights)
        for each in topic.partitions:
            entry = _Entry(each)
            entries.append(entry)
            try:
                if denied is not None:
                    raise denied
                if topic.topic_id is not None:
                    known = topics.by_id(topic.topic_id)
                else:
                    known = topics.by_name(topic.name or "")
                entry.partition = known.partition(each.partition)
                entry.partition.check_leader_epoch(each.current_leader_epoch)
                if entry.partition.leadership is None:
                    _require_follower(entry.partition, each.fetch_offset, asked.rack_id)
                elif asked.rack_id:
                    nearest = nearest_replica(request.context.broker, entry.partition, asked.rack_id, each.fetch_offset)
                    if nearest is not None:
                        entry.read_from = nearest
                        found.has_error = True  # Said at once, without records.
                        continue
                budget -= _look_at(entry, entry.partition, min(budget, each.partition_max_bytes), committed_only, found)
            except TieredError as error:
                entry.error = error
                found.has_error = True
            except OSError as error:
                entry.error = _disk_error(request, entry.partition, error)
                found.has_error = True
        found.topics.append((topic, entries))
    return found


def _require_follower(partition: Partition, fetch_offset: int, rack_id: str) -> None:
    """Returns when a consumer that wants to may read this replica. Raises NotLeader, OffsetNotAvailable."""
    if not rack_id:
        partition.require_leader()
    partition.require_replica()
    if fetch_offset > partition.log.log_end_offset:
        raise OffsetNotAvailable(f"{partition.name}: offset {fetch_offset} is not on this replica yet; retry")


def _look_at(entry: _Entry, partition: Partition, max_bytes: int, committed_only: bool, found: _Found) -> int:
    """Fills in `entry`; returns the bytes that it takes of the request's budget."""
    first = found.total_bytes == 0
    match partition.plan_read(entry.asked.fetch_offset, committed_only=committed_only):
        case read_plan.Hot():
            if max_bytes <= 0 and not first:
                return 0
            found_slice = partition.read_hot(
                entry.asked.fetch_offset, max(0, max_bytes), committed_only=committed_only, at_least_one=first
            )
            if found_slice is None:
                return 0
            entry.records = found_slice
            found.total_bytes += found_slice.length
            return found_slice.length
        case read_plan.Cold():
            if max_bytes <= 0 and not first:
                return 0
            entry.cold_max_bytes = max(1, max_bytes)
            found.has_cold = True
            found.total_bytes += entry.cold_max_bytes
            return max(entry.cold_max_bytes, LEAST_COLD_BYTES)
        case read_plan.OutOfRange():
            is_beyond = entry.asked.fetch_offset > partition.log.log_end_offset
            if is_beyond and not found.is_confirmed and partition.leadership and partition.leadership.has_followers:
                found.in_doubt.append(entry)
                return 0
            raise OffsetOutOfRange(
                f"{partition.name}: offset {entry.asked.fetch_offset} is not in {partition.log_start_offset} to "
                f"{partition.log.log_end_offset}"
            )
        case _:
            return 0


def _is_enough(found: _Found, asked: FetchRequest) -> bool:
    is_urgent = found.has_error or found.has_cold or bool(found.in_doubt)
    return is_urgent or found.total_bytes >= asked.min_bytes or asked.max_wait_ms <= 0


def _all_resident(request: RawRequest, found: _Found) -> bool:
    reader = request.context.broker.reader
    return all(reader.is_resident(each.records) for each in found.entries() if isinstance(each.records, FileSlice))


async def _answer_later(request: RawRequest, asked: FetchRequest, found: _Found, watch: Watch) -> Parts:
    """Waits for enough, then for the bytes to be in memory. A client that goes away cancels only the waiting."""
    count = sum(len(topic.partitions) for topic in asked.topics)
    broker = request.context.broker
    if not _is_enough(found, asked) and broker.waiting_partitions + count <= MAX_WAITING_PARTITIONS:
        broker.waiting_partitions += count
        try:
            found = await _wait(request, asked, found, watch)
        finally:
            broker.waiting_partitions -= count
    if found.in_doubt:
        found = await _look_once_sure(request, asked, found)
    cold = [entry for entry in found.entries() if entry.cold_max_bytes]
    if cold:
        places = asyncio.Semaphore(COLD_READS_AT_ONCE)
        await asyncio.gather(*(_read_cold(request, asked, entry, places) for entry in cold))
        _keep_to_limits(found.entries())
    reader = request.context.broker.reader
    for entry in found.entries():
        if isinstance(entry.records, FileSlice):
            try:
                await reader.make_resident(entry.records)
            except OSError as error:
                entry.error = _disk_error(request, entry.partition, error)
    return _answer(request, asked, found)


async def _look_once_sure(request: RawRequest, asked: FetchRequest, found: _Found) -> _Found:
    """What is there once this broker knows what it leads. Where it cannot find out, somebody else may lead."""
    try:
        await request.context.broker.leadership_check.confirm()
    except NotLeader as error:
        for entry in found.in_doubt:
            entry.error = error
        found.has_error = True
        return found
    return _look(request, asked, is_confirmed=True)


def _watch(found: _Found) -> Watch:
    """Of all that has just been looked at."""
    return Watch(each.waiters for each in {entry.partition for entry in found.entries() if entry.partition is not None})


async def _wait(request: RawRequest, asked: FetchRequest, found: _Found, watch: Watch) -> _Found:
    """What is there when it is enough, or when the client's patience is over."""
    clock = request.context.broker.clock
    deadline_ms = clock.monotonic_ms() + min(asked.max_wait_ms, MAX_WAIT_MS)
    while request.context.broker.serving and not _is_enough(found, asked):
        changed = await watch.change(deadline_ms - clock.monotonic_ms())
        started_ms = clock.monotonic_ms()
        found = _look(request, asked)
        watch = _watch(found)
        if not changed:
            break
        took_ms = clock.monotonic_ms() - started_ms
        if took_ms > LONG_LOOK_MS:  # Or a busy topic, asked for along with all others, would take all our time.
            await asyncio.sleep(min(10 * took_ms, max(0.0, deadline_ms - clock.monotonic_ms())) / 1000.0)
    return found


async def _read_cold(request: RawRequest, asked: FetchRequest, entry: _Entry, places: asyncio.Semaphore) -> None:
    """Fills in one cold partition; if retention was faster than the read, plans once more."""
    assert entry.partition is not None
    partition, offset = entry.partition, entry.asked.fetch_offset
    try:
        async with places:
            entry.records = await request.context.broker.reader.read_cold(partition, offset, entry.cold_max_bytes)
        if entry.records is None:
            again = _Found()
            _look_at(entry, partition, entry.cold_max_bytes, asked.isolation_level == READ_COMMITTED, again)
    except TieredError as error:
        request.context.broker.counters.cold_read_errors += 1
        entry.error = error
    except OSError as error:
        request.context.broker.counters.cold_read_errors += 1
        entry.error = _disk_error(request, partition, error)


def _keep_to_limits(entries: list[_Entry]) -> None:
    """A batch above its partition's limit goes out only as the first one of an answer (KIP-74)."""
    first = True
    for entry in entries:
        if not isinstance(entry.records, FileSlice) or not entry.records.length:
            continue
        if entry.cold_max_bytes and not first and entry.records.length > entry.cold_max_bytes:
            entry.records = None
        first = False


def _disk_error(request: RawRequest, partition: Partition | None, error: Exception) -> LogDirFailed:
    """What a partition answers whose local file cannot be read; said in the log as well, for it is our disk."""
    name = partition.name if partition is not None else "a partition"
    request.context.broker.counters.disk_errors += 1
    log.error("%s cannot be read: %s", name, error)
    return LogDirFailed(f"{name} cannot be read from the broker's disk: {error}")


def _answer(request: RawRequest, asked: FetchRequest, found: _Found) -> Parts:
    version = request.context.api_version
    counters = request.context.broker.counters
    results = []
    sent_bytes = 0
    for topic, entries in found.topics:
        answers = []
        for entry in entries:
            try:
                answers.append(_result(entry, asked, version))
            except (OSError, EOFError) as error:
                answers.append(_refusal(entry, _disk_error(request, entry.partition, error)))
            except TieredError as error:
                answers.append(_refusal(entry, error))
            if entry.records is not None:
                length = len(entry.records) if isinstance(entry.records, bytes) else entry.records.length
                sent_bytes += length
                counters.fetched_bytes += length
                counters.fetched_local_bytes += 0 if entry.cold_max_bytes else length
                if entry.partition is not None:
                    entry.partition.traffic.fetched_bytes += length
        results.append(FetchTopicResult(topic.name, topic.topic_id, answers))
    endpoints: tuple[NodeEndpoint, ...] = ()
    if found.has_error and version >= fetch.FIRST_FLEXIBLE:
        endpoints = _name_leaders(results, LeaderHints(request))
    throttle_ms = throttling.fetched(request.context, sent_bytes)
    return fetch.encode_fetch_response(
        version, request.correlation_id, NONE, NO_SESSION, results, throttle_ms, node_endpoints=endpoints
    )


def _name_leaders(results: list[FetchTopicResult], hints: LeaderHints) -> tuple[NodeEndpoint, ...]:
    """Completes refusals by who leads; where those listen."""
    for topic in results:
        answers = topic.partitions
        assert isinstance(answers, list)
        for index, answer in enumerate(answers):
            if answer.error_code in CODES:
                leader = hints.leader(topic.name, topic.topic_id, answer.partition_index)
                answers[index] = answer._replace(current_leader=leader)
    return hints.endpoints


def _result(entry: _Entry, asked: FetchRequest, version: int) -> FetchPartitionResult:
    if entry.error is None and version < FIRST_VERSION_WITH_ZSTD and isinstance(entry.records, FileSlice):
        _refuse_zstd(entry)
    if entry.error is not None:
        return _refusal(entry, entry.error)
    assert entry.partition is not None
    if isinstance(entry.records, FileSlice) and entry.records.length <= COPY_BYTES:
        entry.records = entry.records.read()
    partition = entry.partition
    return FetchPartitionResult(
        entry.asked.partition,
        NONE,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
        entry.records,
        [] if asked.isolation_level == READ_COMMITTED else None,
        entry.read_from,
    )


def _refusal(entry: _Entry, error: TieredError) -> FetchPartitionResult:
    entry.records = None
    return FetchPartitionResult(entry.asked.partition, error_code(error))


def _refuse_zstd(entry: _Entry) -> None:
    """Clients from before KIP-110 cannot read zstd; they are told, instead of being handed it."""
    assert isinstance(entry.records, FileSlice)
    data = entry.records.read()
    if any(header.compression == ZSTD for _, header in record_batch.whole_batches(data, 0, len(data))):
        entry.error = UnsupportedCompression("zstd records need Fetch version 10 or later; upgrade the client")


API = Api(key=1, name="Fetch", min_version=4, max_version=18, raw=handle)
