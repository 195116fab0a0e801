"""Fetch (key 1), versions 4 to 18: record batches from both tiers, as they were written.

Long-polls until `min_bytes` are there, `max_wait_ms` has passed, or any partition has an error (as Kafka's
DelayedFetch). Limits follow KIP-74: whole batches, and the first non-empty partition gives at least one even
above the limits. Partitions are served in the order of the request. Cold partitions are read in parallel
within the same limits. Sessions (KIP-227) are declined: every answer has session id 0, so clients send full
requests. A consumer that names its rack is sent to a follower in it (KIP-392), which serves it up to its own high
watermark; any other reads from the leader alone. `__consumer_offsets` is a view of SQL, read from its slots'
coordinators. Followers themselves are answered by `fetch.followers`; a read replica refuses them.

On a read replica everything that can be read is cold: an answer waits for downloads or, at the end, for new segments to
be seen in the bucket. High watermark and last stable offset are where the store ends.
"""

import asyncio
import math
from collections.abc import Iterator

from tiered.broker.groups.offsets_topic import OffsetsPartition
from tiered.broker.partitions.fetch_wait import Waiters, Watch
from tiered.broker.partitions.readable import Readable
from tiered.broker.replication.nearest_replica import nearest_replica
from tiered.errors import MalformedRequest, NotLeader, TieredError
from tiered.file_slice import FileSlice
from tiered.rules.partition import read_plan
from tiered.rules.security.acl import Operation
from tiered.server.kafka import throttling
from tiered.server.kafka.authorize import may_replicate, rights_of, topic_refusal
from tiered.server.kafka.dispatch import Api, RawRequest, in_turns
from tiered.server.kafka.fetch import followers as follower_fetch
from tiered.server.kafka.fetch.answer import (
    NO_SESSION,
    READ_COMMITTED,
    FetchEntry,
    FetchLook,
    answer,
    answer_in_turns,
    disk_error,
    keep_to_limits,
)
from tiered.server.kafka.transport.outbox import Parts
from tiered.server.kafka.transport.requests import Answer
from tiered.wire import fetch
from tiered.wire.error_codes import CLUSTER_AUTHORIZATION_FAILED, FETCH_SESSION_ID_NOT_FOUND, INVALID_REQUEST, NONE
from tiered.wire.fetch import FetchRequest

# A Fetch of more partitions is looked at, and answered, in turns: one of 50,000 would hold everybody up for seconds.
LONG_FETCH_PARTITIONS = 200
# A look at many partitions takes this long before the next one is put off, to ten times as long.
LONG_LOOK_MS = 5.0
# A longer wait than any client asks for; it bounds how long a vanished client's wait can last.
MAX_WAIT_MS = 600_000
# The most that one answer has of logs, whatever its client would take: that asks for more at once. The C library maps
# blocks above 32 MiB anew each time, page by page, which is a third of the CPU of a librdkafka that is answered 50 MiB.
# Of what is cold each partition may have one chunk all the same.
ANSWER_BYTES = 16 << 20
# The least that a cold partition takes of the request's budget: each one costs a read from the store.
LEAST_COLD_BYTES = 64 << 10
COLD_READS_AT_ONCE = 16
# Partitions in all fetches that wait at one time: each takes a quarter of a KiB. One more fetch is answered at once, as
# is one of an owner who has as many as are free.
MAX_WAITING_PARTITIONS = 500_000
FULL_EPOCHS = (0, -1)
"""Of a request that names all its partitions: one that would begin a session (KIP-227), and one that wants none."""


def handle(request: RawRequest) -> Answer:
    """The answer: at once when there is enough in memory, else later."""
    broker = request.context.broker
    limit = broker.settings.limits.tiered_max_partitions
    version = request.context.api_version
    # A topic for each partition.
    asked = fetch.decode_fetch_request(request.buffer, request.position, request.end, version, max_items=2 * limit)
    broker.counters.requests["Fetch"] += 1
    count = _count(asked)
    if count > limit:
        raise MalformedRequest(f"a Fetch asks for more than {limit} partitions; more cannot be (tiered.max.partitions)")
    if asked.session_epoch not in FULL_EPOCHS:  # A full request would at most end the session that it names.
        refusal = FETCH_SESSION_ID_NOT_FOUND
        return fetch.encode_fetch_response(version, request.correlation_id, refusal, NO_SESSION, [])
    if asked.replica_id >= 0:
        if broker.options.read_only or not may_replicate(request.context):
            refusal = INVALID_REQUEST if broker.options.read_only else CLUSTER_AUTHORIZATION_FAILED
            return fetch.encode_fetch_response(version, request.correlation_id, refusal, NO_SESSION, [])
        return follower_fetch.handle(request, asked)
    if request.context.throttle_ms or broker.client_quotas.limits_fetch:
        throttle_ms, most_bytes = throttling.fetch_allowance(request.context)
        if throttle_ms:
            return fetch.encode_fetch_response(version, request.correlation_id, NONE, NO_SESSION, [], throttle_ms)
        if most_bytes is not None:
            asked = asked._replace(max_bytes=min(asked.max_bytes, most_bytes))
    if count > LONG_FETCH_PARTITIONS:
        return _answer_long(request, asked)
    found = _look(request, asked)
    is_ready = _is_enough(found, asked) and not (found.has_cold or found.in_doubt or found.to_load)
    if is_ready and _all_resident(request, found):
        return answer(request, asked, found)
    return _answer_later(request, asked, found, _watch(found))


async def _answer_long(request: RawRequest, asked: FetchRequest) -> Parts:
    found, watch = await _look_again(request, asked)
    return await _answer_later(request, asked, found, watch)


def _count(asked: FetchRequest) -> int:
    return sum(len(topic.partitions) for topic in asked.topics)


def _look(request: RawRequest, asked: FetchRequest, *, is_confirmed: bool = False) -> FetchLook:
    """The data that is there now, within the request's limits. Only plans: hot ranges are slices, cold ones unread."""
    found = FetchLook(is_confirmed=is_confirmed)
    for _ in _looking(request, asked, found):
        pass
    return found


async def _look_again(
    request: RawRequest, asked: FetchRequest, *, is_confirmed: bool = False
) -> tuple[FetchLook, Watch]:
    """The data that is there, and a watch for later changes. Many partitions are looked at in turns."""
    if _count(asked) <= LONG_FETCH_PARTITIONS:
        found = _look(request, asked, is_confirmed=is_confirmed)
        return found, _watch(found)
    found = FetchLook(is_confirmed=is_confirmed)
    seen: dict[Waiters, int] = {}
    async for entry in in_turns(_looking(request, asked, found)):
        if entry.source is not None:  # A change during a later turn has to count.
            seen.setdefault(entry.source.waiters, entry.source.waiters.changes)
    return found, Watch(seen, changes=sum(seen.values()))


def _looking(request: RawRequest, asked: FetchRequest, found: FetchLook) -> Iterator[FetchEntry]:
    """Fills in `found`, one partition after the other."""
    topics = request.context.broker.topics
    budget = min(max(0, asked.max_bytes), request.context.broker.settings.limits.fetch_max_bytes)
    committed_only = asked.isolation_level == READ_COMMITTED
    rights = rights_of(request.context)
    for topic in asked.topics:
        entries: list[FetchEntry] = []
        denied = None
        if rights is not None:
            denied = topic_refusal(request.context, Operation.READ, topic.name, topic.topic_id, rights)
        for each in topic.partitions:
            entry = FetchEntry(each)
            entries.append(entry)
            try:
                if denied is not None:
                    raise denied
                if topic.topic_id is not None:
                    known = topics.by_id(topic.topic_id)
                else:
                    known = topics.by_name(topic.name or "")
                if known.is_internal:
                    entry.offsets = request.context.broker.groups.offsets_topic.partition(each.partition)
                    budget -= _look_at_offsets(entry, entry.offsets, min(budget, each.partition_max_bytes), found)
                    yield entry
                    continue
                entry.partition = partition = known.partition(each.partition)
                names_rack = bool(asked.rack_id)
                partition.require_readable(each.current_leader_epoch, each.fetch_offset, names_rack=names_rack)
                if names_rack and partition.leadership is not None:
                    broker = request.context.broker
                    nearest = nearest_replica(
                        broker.context, broker.image, partition, rack=asked.rack_id, fetch_offset=each.fetch_offset
                    )
                    if nearest is not None:
                        entry.read_from = nearest
                        found.has_error = True  # Said at once, without records.
                        yield entry
                        continue
                budget -= _look_at(entry, partition, min(budget, each.partition_max_bytes), committed_only, found)
            except TieredError as error:
                entry.error = error.without_frames()
                found.has_error = True
            except OSError as error:
                entry.error = disk_error(request, entry.partition, error)
                found.has_error = True
            yield entry
        found.topics.append((topic, entries))


def _look_at(entry: FetchEntry, partition: Readable, max_bytes: int, committed_only: bool, found: FetchLook) -> int:
    """Fills in `entry`; returns the bytes that it takes of the request's budget."""
    first = found.total_bytes == 0
    match partition.plan_read(entry.asked.fetch_offset, committed_only=committed_only):
        case read_plan.Hot():
            max_bytes = min(max_bytes, ANSWER_BYTES - found.total_bytes)
            if max_bytes <= 0 and not first:
                return 0
            offset = entry.asked.fetch_offset
            batches = partition.read_hot(offset, max(0, max_bytes), committed_only=committed_only, at_least_one=first)
            if batches is None:
                if not isinstance(partition.plan_read(offset, committed_only=committed_only), read_plan.Hot):
                    return _look_at(entry, partition, max_bytes, committed_only, found)  # Retention was faster.
                return 0
            entry.records, entry.aborted = batches.records, batches.aborted
            found.total_bytes += batches.records.length
            return batches.records.length
        case read_plan.Cold():
            if max_bytes <= 0 and not first:
                return 0
            entry.cold_max_bytes = max(1, max_bytes)
            found.has_cold = True
            found.total_bytes += entry.cold_max_bytes
            return max(entry.cold_max_bytes, LEAST_COLD_BYTES)
        case read_plan.OutsideLog() as plan:
            is_beyond = plan.offset > plan.log_end_offset
            if is_beyond and not found.is_confirmed and partition.leadership and partition.leadership.has_followers:
                found.in_doubt.append(entry)
                return 0
            raise partition.outside(plan)
        case _:
            return 0


def _look_at_offsets(entry: FetchEntry, partition: OffsetsPartition, max_bytes: int, found: FetchLook) -> int:
    """The same for a partition of `__consumer_offsets`."""
    first = found.total_bytes == 0
    if partition.needs_loading:
        found.to_load.append(partition)
    elif max_bytes > 0 or first:
        entry.records = partition.read(entry.asked.fetch_offset, max(0, max_bytes), at_least_one=first)
        found.total_bytes += len(entry.records)
        return len(entry.records)
    return 0


def _is_enough(found: FetchLook, asked: FetchRequest) -> bool:
    is_urgent = found.has_error or found.has_cold or bool(found.in_doubt)
    min_bytes = min(asked.min_bytes, ANSWER_BYTES // 2)  # Not all: the next batch may be too large for the rest.
    return is_urgent or found.total_bytes >= min_bytes or asked.max_wait_ms <= 0


def _all_resident(request: RawRequest, found: FetchLook) -> bool:
    reader = request.context.broker.reader
    return all(reader.is_resident(each.records) for each in found.entries() if isinstance(each.records, FileSlice))


async def _answer_later(request: RawRequest, asked: FetchRequest, found: FetchLook, watch: Watch) -> Parts:
    """Waits for enough, then for the bytes to be in memory. A client that goes away cancels only the waiting."""
    count = _count(asked)
    broker = request.context.broker
    if found.to_load:
        await asyncio.gather(*(broker.groups.offsets_topic.load(each) for each in found.to_load))
        found, watch = await _look_again(request, asked)
    owner, waiting = request.context.connection.owner, broker.waiting_partitions
    if not _is_enough(found, asked) and waiting.has_room(owner, count, MAX_WAITING_PARTITIONS):
        with waiting.taken_by(owner, count):
            found = await _wait(request, asked, found, watch)
    if found.in_doubt:
        found = await _look_once_sure(request, asked, found)
    cold = [entry for entry in found.entries() if entry.cold_max_bytes]
    if cold:
        places = asyncio.Semaphore(COLD_READS_AT_ONCE)
        joined_bytes = ANSWER_BYTES // len(cold)
        await asyncio.gather(*(_read_cold(request, asked, entry, places, joined_bytes) for entry in cold))
        keep_to_limits(found.entries())
    reader = request.context.broker.reader
    async for entry in in_turns(found.entries()):
        if isinstance(entry.records, FileSlice):
            try:
                await reader.make_resident(entry.records, owner=owner)
            except OSError as error:
                entry.error = disk_error(request, entry.partition, error)
    if count > LONG_FETCH_PARTITIONS:
        return await answer_in_turns(request, asked, found)
    return answer(request, asked, found)


async def _look_once_sure(request: RawRequest, asked: FetchRequest, found: FetchLook) -> FetchLook:
    """The data that is there once this broker knows what it leads. If it cannot find out, another may lead."""
    try:
        await request.context.broker.leadership_check.confirm()
    except NotLeader as error:
        for entry in found.in_doubt:
            entry.error = error.without_frames()
        found.has_error = True
        return found
    return (await _look_again(request, asked, is_confirmed=True))[0]


def _watch(found: FetchLook) -> Watch:
    """Of all that has just been looked at."""
    return Watch({entry.source.waiters for entry in found.entries() if entry.source is not None})


async def _wait(request: RawRequest, asked: FetchRequest, found: FetchLook, watch: Watch) -> FetchLook:
    """The data that is there when it is enough, or when the client's wait, or its session, is over."""
    clock, session = request.context.broker.clock, request.context.connection.sasl
    patience_ms = min(asked.max_wait_ms, MAX_WAIT_MS, math.inf if session is None else session.left_ms)
    deadline_ms = clock.monotonic_ms() + patience_ms
    while request.context.broker.serving and not _is_enough(found, asked):
        changed = await watch.change(deadline_ms - clock.monotonic_ms())
        started_ms = clock.monotonic_ms()
        found, watch = await _look_again(request, asked)
        if not changed:
            break
        took_ms = clock.monotonic_ms() - started_ms
        if took_ms > LONG_LOOK_MS:  # Or a busy topic, asked for along with all others, would take all our time.
            await asyncio.sleep(min(10 * took_ms, max(0.0, deadline_ms - clock.monotonic_ms())) / 1000.0)
    return found


async def _read_cold(
    request: RawRequest, asked: FetchRequest, entry: FetchEntry, places: asyncio.Semaphore, joined_bytes: int
) -> None:
    """Fills in one cold partition; if retention was faster than the read, plans once more."""
    assert entry.partition is not None
    partition, offset = entry.partition, entry.asked.fetch_offset
    try:
        async with places:
            found = await request.context.broker.reader.read_cold(
                partition, offset, entry.cold_max_bytes, joined_bytes, owner=request.context.connection.owner
            )
        if found is not None:
            entry.records, entry.aborted = found.records, found.aborted
        else:
            again = FetchLook()
            _look_at(entry, partition, entry.cold_max_bytes, asked.isolation_level == READ_COMMITTED, again)
    except TieredError as error:
        request.context.broker.counters.cold_read_errors += 1
        entry.error = error.without_frames()
    except OSError as error:
        request.context.broker.counters.cold_read_errors += 1
        entry.error = disk_error(request, partition, error)


API = Api(
    1,
    "Fetch",
    (4, 18),
    rights="READ on the topic; "
    "with a replica id CLUSTER_ACTION on the cluster, and the id of the broker's registration",
    raw=handle,
    on_replica=handle,
)
