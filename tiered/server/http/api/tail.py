"""`/api/v1/topics/{topic}/tail`: records as they come, as server-sent events, whoever leads the partitions.

Owns the form of the events and what becomes of a listener that does not read. The id of each event holds the next
offset of every partition, so Last-Event-ID resumes without loss or repeats. Must never hold more than one page for
a listener: while it does not read, nothing is read for it.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, assert_never

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.broker.partitions.topics import Topic
from tiered.broker.people.tail import Behind, Ended, LocalTopicTail, TailRecords, check_count
from tiered.errors import NotAuthorized, NotLeader
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.security.quotas import QuotaKey
from tiered.rules.security.sasl.failures import AuthenticationFailed
from tiered.server.http.api.lookups import topic_with_records
from tiered.server.http.api.partition_facts import facts_of
from tiered.server.http.api.record_choice import (
    KEY,
    KEY_PREFIX,
    LAST_ID,
    PARTITIONS,
    chosen_partitions,
    event_id_of,
    last_positions,
    wanted_keys,
)
from tiered.server.http.api.records import ISOLATION, READ_COMMITTED
from tiered.server.http.api.topic_tail import TopicTail, open_tail
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.quotas import count_and_rest
from tiered.server.http.door.rights import require_still
from tiered.server.http.messages import schema
from tiered.server.http.messages.parameters import TOPIC, query_number, query_text
from tiered.server.http.messages.record_json import renderer
from tiered.server.http.messages.route import Answer, route, tagged

CONTENT_TYPE = "text/event-stream"
# A listener that keeps us waiting this long is told how far it has fallen behind.
SLOW_MS = 1_000.0
# How long a listener that was cut off has to read why.
LAST_WORDS_MS = 5_000.0
RECONNECT_AFTER_MS = 1_000
MAX_FIELD_BYTES = 256 << 10
DEFAULT_FIELD_BYTES = 16 << 10
SKIP = "skip"

_FROM = query_text("from", "Where to begin without Last-Event-ID.", allowed=("latest", "earliest"), default="latest")
_WHEN_BEHIND = query_text(
    "when_behind",
    "What a listener gets that was too slow: the next records all the same, or the newest ones.",
    allowed=("continue", SKIP),
    default="continue",
)
FIELD_BYTES = query_number(
    "field_bytes",
    "How much of each key and value is shown, in bytes, and of all headers together.",
    maximum=MAX_FIELD_BYTES,
    default=DEFAULT_FIELD_BYTES,
)
_FOR_LEADERS = (KEY, KEY_PREFIX, ISOLATION, FIELD_BYTES)


async def tail(request: web.Request) -> web.StreamResponse:
    """Records as they come, as server-sent events that can be resumed."""
    broker = request.app[BROKER]
    topic = topic_with_records(request)
    takes_new_partitions = PARTITIONS.find(request) is None
    committed_only = ISOLATION.of(request) == READ_COMMITTED
    wanted = wanted_keys(request)
    field_bytes = FIELD_BYTES.of(request)
    render = cache(lambda number: renderer(field_bytes, {"partition": number}))
    if takes_new_partitions:
        check_count(topic, topic.partition_count)
    positions = await _positions(request, topic)
    check_count(topic, len(positions))

    def local(topic: Topic, positions: Mapping[int, int]) -> LocalTopicTail:
        return LocalTopicTail(
            topic,
            context=broker.context,
            topics=broker.topics,
            records=broker.records,
            positions=positions,
            committed_only=committed_only,
            wanted=wanted,
            render=render,
        )

    skips = _WHEN_BEHIND.of(request) == SKIP
    response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE, "X-Accel-Buffering": "no"})
    response.force_close()
    await response.prepare(request)
    async with open_tail(
        request,
        topic,
        positions=positions,
        takes_new_partitions=takes_new_partitions,
        committed_only=committed_only,
        local=local,
        query={each.name: value for each in _FOR_LEADERS if (value := each.text_in(request)) is not None},
    ) as listener:
        try:
            await _Stream(broker, request, response, listener, skips=skips).run()
        except ConnectionResetError:
            pass  # The listener has gone; it may come back with its last id.
    return response


class _Stream:
    """Events on their way to one listener."""

    def __init__(
        self, broker: Broker, request: web.Request, response: web.StreamResponse, listener: TopicTail, *, skips: bool
    ) -> None:
        self._broker = broker
        self._request = request
        self._response = response
        self._tail = listener
        self._skips = skips
        self._told = dict(listener.positions)
        self._waited_ms = 0.0
        self._slow_after_ms = SLOW_MS

    async def run(self) -> None:
        """Returns when the tail has ended or the listener was cut off."""
        # A client that loses the connection before the first record resumes from here too.
        start = {
            # Another topic of the same name has other records under these offsets.
            "topic_id": str(self._tail.topic_id),
            "positions": [{"partition": key, "offset": value} for key, value in sorted(self._told.items())],
        }
        alive = await self._send(f"retry: {RECONNECT_AFTER_MS}\n".encode() + self._event("start", start))
        while alive:
            event = await self._tail.next(self._broker.settings.http.tiered_tail_heartbeat_interval_ms)
            event = self._refusal() or event
            match event:
                case None:
                    self._told.update(self._tail.positions)
                    alive = await self._send(f": heartbeat\nid: {self._id()}\n\n".encode())
                case TailRecords():
                    alive = await self._send(data := self._records(event))
                    await count_and_rest(self._request, QuotaKey.CONSUMER_BYTE_RATE, len(data))
                case Behind():
                    alive = await self._send(self._behind(event))
                case Ended():
                    await self._send(self._event("end", {"reason": event.reason, "message": event.message}))
                    return
                case _:
                    assert_never(event)
            if alive and self._waited_ms >= self._slow_after_ms:
                alive = await self._tell_slow()

    def _refusal(self) -> Ended | None:
        """Why the listener may not be here any more; before what was found goes out."""
        try:
            require_still(self._request, Operation.READ, ResourceType.TOPIC, TOPIC.of(self._request))
        except (AuthenticationFailed, NotAuthorized) as error:
            return Ended(reason="refused", message=str(error))
        return None

    async def _tell_slow(self) -> bool:
        """True while the listener is there. Says how far it is behind, and skips that if it wants so."""
        self._waited_ms = 0.0
        missed = await self._tail.lag()
        # Less and less often while it does not catch up: one that reads a long past is slow all the time.
        self._slow_after_ms = 2 * self._slow_after_ms if missed else SLOW_MS
        if not missed:
            return True
        count = sum(each.to_offset - each.from_offset for each in missed)
        if self._skips:
            self._tail.skip(missed)
        rest = "they were skipped" if self._skips else "they follow"
        message = f"you read more slowly than records come: {count} are not sent yet, {rest}"
        return await self._send(
            self._behind(Behind(reason="slow", message=message, skipped=self._skips, missed=missed))
        )

    async def _send(self, data: bytes) -> bool:
        """False when the listener did not read for so long that it was cut off."""
        clock = self._broker.clock
        started_ms = clock.monotonic_ms()
        try:
            async with asyncio.timeout(self._broker.settings.http.tiered_tail_stall_timeout_ms / 1000.0):
                await self._response.write(data)
        except TimeoutError:
            await self._cut_off()
            return False
        self._waited_ms += clock.monotonic_ms() - started_ms
        return True

    async def _cut_off(self) -> None:
        """The last event lies behind all that was sent; if it is not fetched soon, the connection breaks."""
        message = "you have not read for too long; connect again with the id of the last event that you have read"
        last = Behind(reason="cut_off", message=message, skipped=False, missed=await self._tail.lag())
        try:
            async with asyncio.timeout(LAST_WORDS_MS / 1000.0):
                await self._response.write(self._behind(last))
                await self._response.write_eof()
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()

    # The form of events

    def _records(self, found: TailRecords) -> bytes:
        """Each with its own id: the connection may break after any of them."""
        # Of all the positions in an id only this partition's changes from record to record.
        lower = "".join(f"{number}:{at}," for number, at in sorted(self._told.items()) if number < found.partition)
        higher = "".join(f",{number}:{at}" for number, at in sorted(self._told.items()) if number > found.partition)
        before, after = f"{lower}{found.partition}:".encode(), higher.encode()
        parts = []
        for offset, rendered in found.records:
            parts.append(b"event: record\nid: %s%d%s\ndata: %s\n\n" % (before, offset + 1, after, rendered))
            self._told[found.partition] = offset + 1
        return b"".join(parts)

    def _behind(self, behind: Behind) -> bytes:
        if behind.skipped:
            self._told.update({each.partition: each.to_offset for each in behind.missed})
        return self._event(
            "behind",
            {
                "reason": behind.reason,
                "message": behind.message,
                "skipped": behind.skipped,
                "partitions": list(map(asdict, behind.missed)),
            },
        )

    def _event(self, name: str, data: Mapping[str, Any]) -> bytes:
        return f"event: {name}\nid: {self._id()}\ndata: {json.dumps(data)}\n\n".encode()

    def _id(self) -> str:
        return event_id_of(self._told.items())


async def _positions(request: web.Request, topic: Topic) -> dict[int, int]:
    """Where to begin in each partition: as the last event's id says, else as `from` does."""
    chosen = chosen_partitions(request, topic)
    resumed = last_positions(request, topic)
    end = "last_stable_offset" if ISOLATION.of(request) == READ_COMMITTED else "high_watermark"
    numbers = chosen if chosen is not None else list(range(topic.partition_count))
    if all(number in resumed for number in numbers):
        return {number: resumed[number] for number in numbers}
    facts = {each["partition"]: each for each in await facts_of(request, topic)}
    found = {}
    for number in numbers:
        if number in resumed:
            found[number] = resumed[number]
        elif _FROM.of(request) == "earliest" or (resumed and chosen is None):
            # A partition that the last event did not name is newer: the client has seen none of it.
            found[number] = facts[number]["log_start_offset"]
        elif facts[number]["told_by"] is None:
            raise NotLeader(f"where {topic.name}-{number} ends is not known: its leader does not answer; try again")
        else:
            found[number] = facts[number][end]
    return found


ROUTES = tagged(
    "records",
    route(
        "GET",
        "/api/v1/topics/{topic}/tail",
        tail,
        {200: Answer(description="Events.", content_type=CONTENT_TYPE, schema=schema.text())},
        *(PARTITIONS, _FROM, KEY, KEY_PREFIX, ISOLATION, _WHEN_BEHIND, FIELD_BYTES, LAST_ID),
        description=(
            "Events: start, record, behind (what was missed, or that the listener is too slow), end. The id of each "
            "is the next offset of every partition; send it as Last-Event-ID to resume."
        ),
        has_deadline=False,
    ),
)
