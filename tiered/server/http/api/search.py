"""`/api/v1/topics/{topic}/search`: records that match, sought in all partitions, as server-sent events with progress.

Owns what the query means, the bounds of one search and the form of its events. The id of each event is the next offset
of every partition, so a search goes on where any of its events was, as a tail does. Must never read anything before the
right to the topic and the place of a search are there, nor for a client that has gone.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from aiohttp import web

from tiered import account
from tiered.broker.partitions.topics import Topic
from tiered.broker.people import record_match
from tiered.broker.people.record_reader import ReadCost, Wanted
from tiered.broker.people.record_search import Place, Sought, Step, Trouble
from tiered.broker.people.tail import check_count, ended
from tiered.errors import InvalidRequest, NotAuthorized
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.security.quotas import QuotaKey
from tiered.rules.security.sasl.failures import AuthenticationFailed
from tiered.runtime import in_turns
from tiered.server.http.api.lookups import topic_with_records
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
from tiered.server.http.api.search_sources import open_sources
from tiered.server.http.api.tail import CONTENT_TYPE, FIELD_BYTES
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.quotas import count, require_none_owed
from tiered.server.http.door.rights import is_broker, require_still
from tiered.server.http.messages import schema
from tiered.server.http.messages.origin import is_forwarded
from tiered.server.http.messages.parameters import query_number, query_text
from tiered.server.http.messages.record_json import renderer
from tiered.server.http.messages.route import Answer, route, tagged

DEFAULT_MATCHES = 100
MAX_MATCHES = 1_000
MAX_RECORDS = 2_000_000
MAX_BYTES = 512 << 20
MAX_MS = 30_000.0
PROGRESS_MS = 250.0
MAX_TROUBLES = 100
"""The bound of those that the last event repeats."""

_TEXT = query_text("text", "Only records whose value has this text in it (UTF-8), letter by letter.", max_length=500)
_REGEX = query_text(
    "regex",
    f"Only records in whose value, or in its first {record_match.MAX_MATCHED_BYTES >> 10} KiB, this regular expression "
    "is found. Its syntax is RE2's.",
    max_length=500,
)
_JSON_PATH = query_text(
    "json_path",
    f"Only records whose value is JSON, of {record_match.MAX_PARSED_BYTES >> 10} KiB and "
    f"{record_match.MAX_PARSED_STRUCTURES:,} objects and lists at most, and has this field, like items.0.sku or "
    "$.items[0].sku.",
    max_length=500,
)
_JSON_VALUE = query_text(
    "json_value", "Only those whose field is this: a string without quotes, or JSON.", max_length=500
)
_HEADER = query_text("header", "Only records with this header.", max_length=500)
_HEADER_VALUE = query_text("header_value", "Only those whose header is this (UTF-8).", max_length=500)
_FROM_MS = query_number("from_ms", "Only records that are not older than this time.")
_TO_MS = query_number("to_ms", "Only records that are not newer than this time.")
_LIMIT = query_number(
    "limit", "Records that are given at the most.", minimum=1, maximum=MAX_MATCHES, default=DEFAULT_MATCHES
)
FOR_LEADERS = (
    *(KEY, KEY_PREFIX, _TEXT, _REGEX, _JSON_PATH, _JSON_VALUE, _HEADER, _HEADER_VALUE),
    *(_FROM_MS, _TO_MS, _LIMIT, ISOLATION, FIELD_BYTES),
)


async def search(request: web.Request) -> web.StreamResponse:
    """Records that match, sought in all partitions, as server-sent events with progress."""
    broker = request.app[BROKER]
    require_none_owed(request, QuotaKey.CONSUMER_BYTE_RATE)
    topic = topic_with_records(request)
    chosen = chosen_partitions(request, topic)
    numbers = list(range(topic.partition_count)) if chosen is None else chosen
    check_count(topic, len(numbers))
    positions = last_positions(request, topic)
    is_part = is_forwarded(request) and (is_broker(request) or not broker.authentication.tells_brokers)
    payer = account.current()
    async with broker.searches.place(is_part=is_part) as turn:

        def charge(cost: ReadCost) -> None:
            turn.worked_ms = cost.worked_ms
            if payer is not None and payer.charge is not None:
                payer.charge(cost.worked_ms)
            count(request, QuotaKey.CONSUMER_BYTE_RATE, cost.read_bytes)

        # To compile an expression takes milliseconds, and its principal may send as many as it likes.
        sought = await asyncio.to_thread(_sought, request)
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE, "X-Accel-Buffering": "no"})
        response.force_close()
        await response.prepare(request)
        texts = ((parameter.name, parameter.text_in(request)) for parameter in FOR_LEADERS)
        query = {name: text for name, text in texts if text is not None}
        steps: asyncio.Queue[Step | None] = asyncio.Queue(maxsize=1)
        stream = _Stream(request, response, topic, numbers, positions)
        async with open_sources(request, topic, numbers, sought, positions, query=query, steps=steps, charge=charge):
            try:
                await stream.run(steps, _LIMIT.of(request))
            except ConnectionResetError:
                pass  # The client has gone, and nothing more is read for it.
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()  # It has not read what was found.
    return response


class _Stream:
    """Events on their way to one client, and how far the search is."""

    def __init__(
        self,
        request: web.Request,
        response: web.StreamResponse,
        topic: Topic,
        numbers: Sequence[int],
        positions: Mapping[int, int],
    ) -> None:
        self._broker = request.app[BROKER]
        self._request = request
        self._response = response
        self._topic = topic
        self._numbers = numbers
        self._positions = {number: positions[number] for number in numbers if number in positions}
        self._places: dict[int, Place] = {}
        self._troubles: list[Trouble] = []
        self._trouble_count = 0
        self._looked_records = 0
        self._read_bytes = 0
        self._matches = 0

    async def run(self, steps: "asyncio.Queue[Step | None]", limit: int) -> None:
        """Takes steps until None comes, which ends them, or a bound is reached."""
        now = asyncio.get_running_loop().time
        end_s, progress_s = now() + MAX_MS / 1000.0, 0.0
        while (reason := self._bound(end_s - now(), limit)) is None:
            step: Step | None = Step(places={})
            try:
                async with asyncio.timeout(PROGRESS_MS / 1000.0):
                    step = await steps.get()
            except TimeoutError:
                pass  # Progress shows that the search lives, though a store may be slow.
            reason = self._refusal() or (self._end_of_sources() if step is None else None)
            if reason is not None or step is None:
                break
            events = await self._taken(step, limit)
            if events or now() >= progress_s:
                progress_s = now() + PROGRESS_MS / 1000.0
                await self._send(b"".join([*events, self._event("progress", self._progress())]))
        assert reason is not None
        fields = {"reason": reason[0], "message": reason[1], **self._progress()}
        await self._send(self._event("end", {**fields, "troubles": list(map(asdict, self._troubles))}))
        async with self._patience():
            await self._response.write_eof()

    async def _taken(self, step: Step, limit: int) -> list[bytes]:
        """The events of one step. Where more matches would come than are wanted, the place stays behind the last.

        In turns: the id of each of 1,000 matches names each of 100 partitions."""
        events: list[bytes] = []
        self._looked_records += step.looked_records
        self._read_bytes += step.read_bytes
        async for partition, offset, rendered in in_turns(step.records):
            self._positions[partition] = offset + 1
            events.append(b"event: match\nid: %s\ndata: %s\n\n" % (self._id(), rendered))
            self._matches += 1
            if self._matches == limit:
                self._stop_behind(partition, offset, step)
                return events
        self._places.update(step.places)
        self._positions.update({partition: place.next_offset for partition, place in step.places.items()})
        for trouble in step.troubles:
            self._trouble_count += 1
            if self._trouble_count <= MAX_TROUBLES:
                self._troubles.append(trouble)
                events.append(self._event("trouble", asdict(trouble)))
        return events

    def _stop_behind(self, partition: int, offset: int, step: Step) -> None:
        """What the step has looked at behind the last match is looked at again when the search goes on."""
        place = step.places.get(partition) or self._places.get(partition)
        if place is not None:
            self._looked_records -= min(max(0, place.next_offset - offset - 1), step.looked_records)
            self._places[partition] = replace(place, next_offset=offset + 1)

    def _refusal(self) -> tuple[str, str] | None:
        """Why the client may have no more of it."""
        topic = self._broker.topics.find_id(self._topic.topic_id)
        end = ended(self._broker.state, topic, self._topic.name)
        if end is not None:
            return end.reason, end.message
        try:
            require_still(self._request, Operation.READ, ResourceType.TOPIC, self._topic.name)
        except (AuthenticationFailed, NotAuthorized) as error:
            return "refused", str(error)
        return None

    def _bound(self, left_s: float, limit: int) -> tuple[str, str] | None:
        if self._matches >= limit:
            return "limit", f"{self._matches} records are given, as many as the limit allows; {_GO_ON}"
        if self._looked_records >= MAX_RECORDS or self._read_bytes >= MAX_BYTES or left_s <= 0:
            return "bounds", _BOUNDS
        return None

    def _end_of_sources(self) -> tuple[str, str]:
        if self._troubles:
            first = self._troubles[0]
            return "trouble", f"not all could be looked at, of partition {first.partition} for one: {first.message}"
        places = [self._places.get(number) for number in self._numbers]
        if all(place is not None and place.next_offset >= place.end_offset for place in places):
            if any(place.is_cut for place in self._places.values()):
                return "time", f"everything was looked at up to the first records of a later time; {_GO_ON} behind them"
            return "done", "everything was looked at"
        return "bounds", _BOUNDS

    def _progress(self) -> dict[str, Any]:
        return {
            "topic_id": str(self._topic.topic_id),
            "looked_records": self._looked_records,
            "read_bytes": self._read_bytes,
            "matches": self._matches,
            "partitions": [
                {
                    "partition": partition,
                    "start_offset": place.start_offset,
                    "next_offset": place.next_offset,
                    "end_offset": place.end_offset,
                    "is_cut": place.is_cut,
                }
                for partition, place in sorted(self._places.items())
            ],
        }

    async def _send(self, data: bytes) -> None:
        """Raises TimeoutError when the client does not read."""
        async with self._patience():
            await self._response.write(data)

    def _patience(self) -> asyncio.Timeout:
        return asyncio.timeout(self._broker.settings.http.tiered_tail_stall_timeout_ms / 1000.0)

    def _event(self, name: str, data: Mapping[str, Any]) -> bytes:
        return b"event: %s\nid: %s\ndata: %s\n\n" % (name.encode(), self._id(), json.dumps(data).encode())

    def _id(self) -> bytes:
        return event_id_of(self._positions.items()).encode()


_GO_ON = "send the id of the last event as Last-Event-ID to go on"
_BOUNDS = (
    f"one search looks at about {MAX_RECORDS:,} records or {MAX_BYTES >> 20} MiB, for {MAX_MS / 1000:g} s at the most; "
    f"{_GO_ON}"
)


def _sought(request: web.Request) -> Sought:
    """What the query means. Raises InvalidRequest, InvalidRegularExpression."""
    from_ms, to_ms = _FROM_MS.find(request), _TO_MS.find(request)
    if from_ms is not None and to_ms is not None and from_ms > to_ms:
        raise InvalidRequest("from_ms is later than to_ms: no record is in between")
    field_bytes = FIELD_BYTES.of(request)
    return Sought(
        wanted=record_match.all_of(_conditions(request)),
        from_ms=from_ms,
        to_ms=to_ms,
        max_records=_LIMIT.of(request),
        committed_only=ISOLATION.of(request) == READ_COMMITTED,
        render=cache(lambda number: renderer(field_bytes, {"partition": number})),
    )


def _conditions(request: web.Request) -> list[Wanted]:
    json_path, json_value = _JSON_PATH.find(request), _JSON_VALUE.find(request)
    header, header_value = _HEADER.find(request), _HEADER_VALUE.find(request)
    if (json_path is None and json_value is not None) or (header is None and header_value is not None):
        raise InvalidRequest("json_value needs json_path, and header_value needs header: they say of what it is")
    text, regex = _TEXT.find(request), _REGEX.find(request)
    conditions = [
        wanted_keys(request),
        None if header is None else record_match.with_header(header, header_value),
        None if text is None else record_match.with_text(text),
        None if regex is None else record_match.with_match(regex),
        None if json_path is None else record_match.with_json_field(json_path, json_value),
    ]
    return [condition for condition in conditions if condition is not None]


ROUTES = tagged(
    "records",
    route(
        "GET",
        "/api/v1/topics/{topic}/search",
        search,
        {200: Answer(description="Events.", content_type=CONTENT_TYPE, schema=schema.text())},
        *(PARTITIONS, *FOR_LEADERS, LAST_ID),
        description=(
            "Events: match (a record), progress, trouble (offsets that could not be looked at), end. A record is given "
            "when it meets all that the query names. The id of each event is the next offset of every partition; send "
            "it as Last-Event-ID to go on."
        ),
        has_deadline=False,
    ),
)
