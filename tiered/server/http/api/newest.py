"""`/api/v1/topics/{topic}/newest`: the newest records of all partitions in order of time, and where a tail goes on.

Owns the choice among the partitions' records. Leaders elsewhere are asked for their partitions at the same time.
Must never give an id with which a tail would leave out a record that is newer than those shown.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web

from tiered import account
from tiered.broker.partitions.topics import Topic
from tiered.broker.people.newest_records import newest_records
from tiered.broker.people.tail import check_count
from tiered.errors import NotLeader
from tiered.rules.security.quotas import QuotaKey
from tiered.server.http.api.lookups import topic_with_records
from tiered.server.http.api.record_choice import (
    KEY,
    KEY_PREFIX,
    PARTITIONS,
    chosen_partitions,
    event_id_of,
    wanted_keys,
)
from tiered.server.http.api.records import ISOLATION, READ_COMMITTED, RECORD_FIELDS, send_page
from tiered.server.http.api.tail import FIELD_BYTES
from tiered.server.http.api.topic_tail import positions_in
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.quotas import count, require_none_owed
from tiered.server.http.messages import schema
from tiered.server.http.messages.parameters import query_number
from tiered.server.http.messages.record_json import renderer
from tiered.server.http.messages.route import answers_json, route, tagged
from tiered.server.http.neighbours.answering_broker import leader_elsewhere
from tiered.server.http.neighbours.forward import Neighbour, ask

MAX_RECORDS = 100
MAX_BYTES = 1 << 20
"""The bound of an answer. Another broker parses it in one step of its event loop."""

_LIMIT = query_number("limit", "Records at the most.", minimum=1, maximum=MAX_RECORDS, default=MAX_RECORDS)
_PARAMETERS = (_LIMIT, KEY, KEY_PREFIX, ISOLATION, FIELD_BYTES)
_PROBLEM = schema.record({"partition": schema.integer(), "message": schema.text()}, is_open=True)
_NEWEST = schema.record(
    {
        "topic": schema.text(),
        "topic_id": schema.text(),
        "last_event_id": schema.text("Give it to a tail, which begins with what came since."),
        "records": schema.array(
            schema.record({"partition": schema.integer(), **RECORD_FIELDS}, is_open=True),
            "The oldest of them first.",
            max_items=MAX_RECORDS,
        ),
        "problems": schema.array(_PROBLEM, "Why records of a partition are missing."),
    },
    is_open=True,
)

_Entry = tuple[int, int, int, bytes]
"""A record's time, partition and offset, and the record as JSON."""


async def newest(request: web.Request) -> web.StreamResponse:
    """The newest records of all partitions in order of time, and where a tail goes on."""
    require_none_owed(request, QuotaKey.CONSUMER_BYTE_RATE)
    topic = topic_with_records(request)
    chosen = chosen_partitions(request, topic)
    numbers = range(topic.partition_count) if chosen is None else chosen
    check_count(topic, len(numbers))
    gathered = _Gathered(_LIMIT.of(request))
    elsewhere: dict[Neighbour, list[int]] = {}
    here: list[int] = []
    for number in numbers:
        leader = leader_elsewhere(request, topic, number)
        (here if leader is None else elsewhere.setdefault(leader, [])).append(number)
    try:
        async with asyncio.TaskGroup() as tasks:
            answers = [tasks.create_task(ask(request, to, _path(request, topic, its))) for to, its in elsewhere.items()]
            await _read_here(request, topic, here, gathered)
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    for answer in answers:
        gathered.add_answer(answer.result())
    body = gathered.body(topic)
    count(request, QuotaKey.CONSUMER_BYTE_RATE, len(body))
    return await send_page(request, body)


class _Gathered:
    """What the partitions have given so far; of their records the newest that an answer has room for."""

    def __init__(self, max_records: int) -> None:
        self._max_records = max_records
        self._entries: list[_Entry] = []
        self._positions: dict[int, int] = {}
        self._problems: list[Mapping[str, Any]] = []

    def add(
        self, entries: Iterable[_Entry], positions: Mapping[int, int], problems: Iterable[Mapping[str, Any]]
    ) -> None:
        self._entries = sorted([*self._entries, *entries])[-self._max_records :]
        self._positions.update(positions)
        self._problems += problems

    def add_answer(self, answer: Mapping[str, Any]) -> None:
        """What another broker has gathered of its partitions."""
        entries = (
            (record["timestamp_ms"], record["partition"], record["offset"], json.dumps(record).encode())
            for record in answer["records"]
        )
        self.add(entries, positions_in(answer["last_event_id"]), answer["problems"])

    def body(self, topic: Topic) -> bytes:
        chosen: list[bytes] = []
        left_bytes = MAX_BYTES
        for *_, rendered in reversed(self._entries):
            left_bytes -= len(rendered)
            if left_bytes < 0 and chosen:
                break
            chosen.append(rendered)
        fields = {
            "topic": topic.name,
            "topic_id": str(topic.topic_id),
            "last_event_id": event_id_of(self._positions.items()),
            "problems": self._problems,
        }
        return json.dumps(fields).encode()[:-1] + b', "records": [' + b", ".join(reversed(chosen)) + b"]}"


async def _read_here(request: web.Request, topic: Topic, numbers: Iterable[int], gathered: _Gathered) -> None:
    """Reads the partitions one after the other: a person waits, and producers must not."""
    broker, payer = request.app[BROKER], account.current()
    field_bytes, wanted = FIELD_BYTES.of(request), wanted_keys(request)
    render = cache(lambda number: renderer(field_bytes, {"partition": number}))
    for number in numbers:
        partition = topic.hosted(number)
        if partition is None:
            raise NotLeader(f"{topic.name}-{number} is not open at its leader yet; try again in a moment")
        part = await newest_records(
            partition,
            broker.records,
            count=_LIMIT.of(request),
            committed_only=ISOLATION.of(request) == READ_COMMITTED,
            render=render(number),
            wanted=wanted,
        )
        if payer is not None and payer.charge is not None:
            payer.charge(part.worked_ms)
        problems = [] if part.problem is None else [{"partition": number, "message": part.problem}]
        entries = ((timestamp_ms, number, offset, rendered) for timestamp_ms, offset, rendered in part.records)
        gathered.add(entries, {number: part.next_offset}, problems)


def _path(request: web.Request, topic: Topic, numbers: Iterable[int]) -> str:
    texts = ((parameter.name, parameter.text_in(request)) for parameter in _PARAMETERS)
    query = {name: text for name, text in texts if text is not None}
    query["partition"] = ",".join(map(str, numbers))
    return f"/api/v1/topics/{quote(topic.name, safe='')}/newest?{urlencode(query, quote_via=quote)}"


ROUTES = tagged(
    "records",
    route("GET", "/api/v1/topics/{topic}/newest", newest, answers_json(_NEWEST), PARTITIONS, *_PARAMETERS),
)
