"""Fetch on a read replica, in the versions of a broker: record batches from the object store, as they were written.

Everything that can be read is cold, so an answer waits for downloads or, at the end, for new segments to be seen in the
bucket, up to `max_wait_ms`. Limits are those of KIP-74; partitions are read in parallel. High watermark and last stable
offset are where the store ends. Below the log's start an offset is OFFSET_OUT_OF_RANGE, with the bounds; above
the end OFFSET_NOT_AVAILABLE: brokers may have what is not in the bucket yet, and nobody is sent back to the beginning
for it. Sessions are declined. Leader epochs that clients claim are not looked at: what is cold is never truncated.
Followers are refused.
"""

import asyncio
import math
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tiered.broker.partitions.fetch_wait import Watch
from tiered.errors import (
    OffsetNotAvailable,
    OffsetOutOfRange,
    TieredError,
)
from tiered.rules.partition import read_plan
from tiered.rules.segments.cold_partition import ColdPartition
from tiered.server.kafka.dispatch import ReplicaRequest, in_turns
from tiered.server.kafka.fetch.answer import Entry, Found, Told, disk_error, keep_to_limits, telling
from tiered.server.kafka.fetch.bounds import (
    COLD_READS_AT_ONCE,
    LEAST_COLD_BYTES,
    MAX_WAIT_MS,
    MAX_WAITING_PARTITIONS,
    too_many_partitions,
)
from tiered.server.kafka.fetch.sessions import NO_SESSION, session_error
from tiered.server.kafka.transport.outbox import Parts
from tiered.wire import fetch
from tiered.wire.error_codes import INVALID_REQUEST, NONE
from tiered.wire.fetch import FetchRequest

if TYPE_CHECKING:
    from tiered.read_replica.replica import ReadReplica


def handle(request: ReplicaRequest) -> Parts | Coroutine[Any, Any, Parts | None]:
    """The answer: at once where it is a refusal, else later."""
    replica = request.context.broker
    limit = replica.settings.limits.tiered_max_partitions
    version = request.context.api_version
    # A topic for each partition.
    asked = fetch.decode_fetch_request(request.buffer, request.position, request.end, version, max_items=2 * limit)
    replica.counters.requests["Fetch"] += 1
    if sum(len(topic.partitions) for topic in asked.topics) > limit:
        raise too_many_partitions(limit)
    refusal = INVALID_REQUEST if asked.replica_id >= 0 else session_error(asked)
    if refusal != NONE:
        return fetch.encode_fetch_response(version, request.correlation_id, refusal, NO_SESSION, [])
    return _answer(request, asked)


async def _answer(request: ReplicaRequest, asked: FetchRequest) -> Parts:
    replica = request.context.broker
    session = request.context.connection.sasl
    found = await _wait(replica, asked, math.inf if session is None else session.left_ms)
    entries = found.entries()
    places = asyncio.Semaphore(COLD_READS_AT_ONCE)
    await asyncio.gather(*(_read(request, entry, places) for entry in entries if entry.cold_max_bytes))
    keep_to_limits(entries)
    told = Told()
    async for _ in in_turns(telling(request, asked, found, told)):
        pass
    return fetch.encode_fetch_response(
        request.context.api_version, request.correlation_id, NONE, NO_SESSION, told.results, node_endpoints=()
    )


async def _wait(replica: "ReadReplica", asked: FetchRequest, session_left_ms: float) -> Found:
    """What there is to answer, once there is something, or when the client's patience, or its session, is over."""
    count = sum(len(topic.partitions) for topic in asked.topics)
    patience_ms = min(max(0, asked.max_wait_ms), MAX_WAIT_MS, session_left_ms)
    deadline_ms = replica.clock.monotonic_ms() + patience_ms
    watch = Watch([replica.catalogue.waiters])
    found = _look(replica, asked)
    if _is_enough(found, asked) or replica.waiting_partitions + count > MAX_WAITING_PARTITIONS:
        return found
    replica.waiting_partitions += count
    try:
        while replica.serving and not _is_enough(found, asked):
            changed = await watch.change(deadline_ms - replica.clock.monotonic_ms())
            watch = Watch([replica.catalogue.waiters])
            found = _look(replica, asked)
            if not changed:
                break
    finally:
        replica.waiting_partitions -= count
    return found


def _is_enough(found: Found, asked: FetchRequest) -> bool:
    if asked.max_wait_ms <= 0 or asked.min_bytes <= 0:
        return True
    return any(entry.error is not None or entry.cold_max_bytes for entry in found.entries())


def _look(replica: "ReadReplica", asked: FetchRequest) -> Found:
    """Who gets how much of the request's budget. Reads nothing yet."""
    budget = min(max(0, asked.max_bytes), replica.settings.limits.fetch_max_bytes)
    found = Found()
    first = True
    for topic in asked.topics:
        entries = [Entry(each) for each in topic.partitions]
        found.topics.append((topic, entries))
        for entry in entries:
            try:
                known = (
                    replica.catalogue.by_id(topic.topic_id)
                    if topic.topic_id is not None
                    else replica.catalogue.by_name(topic.name or "")
                )
                entry.bucket = replica.catalogue.partition(known, entry.asked.partition)
                is_cold = _is_cold(entry.bucket, entry.asked.fetch_offset)
            except TieredError as error:
                entry.error = error.without_frames()
                continue
            max_bytes = min(budget, entry.asked.partition_max_bytes)
            if is_cold and (max_bytes > 0 or first):
                entry.cold_max_bytes = max(1, max_bytes)
                budget -= max(entry.cold_max_bytes, LEAST_COLD_BYTES)
                first = False
    return found


def _is_cold(partition: ColdPartition, offset: int) -> bool:
    """Whether there is something to read at `offset`. Raises OffsetOutOfRange, OffsetNotAvailable."""
    match partition.plan_read(offset):
        case read_plan.OutOfRange():
            if offset > partition.cold_end_offset:
                raise OffsetNotAvailable(
                    f"{partition.name}: offset {offset} is not in the bucket, which ends at "
                    f"{partition.cold_end_offset}; ask the brokers, or again later"
                )
            raise OffsetOutOfRange(
                f"{partition.name}: offset {offset} is below the log's start, {partition.log_start_offset}"
            )
        case read_plan.Cold():
            return True
        case _:
            return False


async def _read(request: ReplicaRequest, entry: Entry, places: asyncio.Semaphore) -> None:
    """Fills in one partition, whose bounds may be other ones afterwards."""
    assert entry.bucket is not None
    replica = request.context.broker
    try:
        async with places:
            entry.bucket, entry.records = await replica.read(
                entry.bucket, entry.asked.fetch_offset, entry.cold_max_bytes
            )
        if entry.records is None:
            _is_cold(entry.bucket, entry.asked.fetch_offset)  # Says what has become of the offset.
        else:
            await replica.make_resident(entry.records)
    except TieredError as error:
        replica.counters.cold_read_errors += 1
        entry.error = error.without_frames()
    except OSError as error:
        replica.counters.cold_read_errors += 1
        entry.error = disk_error(request, entry.bucket, error)
