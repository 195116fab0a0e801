"""`/api/v1/topics/{topic}/records`: a page of one partition's records, from both tiers.

Owns what the query means. Asked of another broker, it is the leader's answer. Reading, decoding and rendering happen
in the broker's threads, within bounds.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web

from tiered.broker.partitions.readable import Readable
from tiered.broker.people.record_reader import Limits, RecordReader
from tiered.errors import InvalidRequest
from tiered.rules.security.quotas import QuotaKey
from tiered.server.http.api.lookups import topic_with_records
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.quotas import count, require_none_owed
from tiered.server.http.messages import schema
from tiered.server.http.messages.parameters import query_number, query_text
from tiered.server.http.messages.record_json import DEFAULT_FIELD_BYTES, MAX_FIELD_BYTES, renderer
from tiered.server.http.messages.route import answers_json, route, tagged
from tiered.server.http.neighbours.answering_broker import handled_by, leader_elsewhere

DEFAULT_RECORDS = 100
MAX_RECORDS = 1000
MAX_PAGE_BYTES = 4 << 20
MAX_READ_MS = 5_000.0
PIECE_BYTES = 64 << 10
CONTENT_TYPE = "application/json"
READ_COMMITTED = "read_committed"
_OFFSET_TEXT = re.compile(r"-?[0-9]{1,19}\Z", re.ASCII)

PARTITION_ASKED = query_number("partition", "The partition's number.", maximum=schema.INT_MAX, default=0)
_OFFSET = query_text(
    "offset",
    "Where to begin: an offset, earliest, latest, or -N for the last N offsets. The default is earliest.",
    max_length=20,
)
_TIMESTAMP = query_number("timestamp_ms", "Begin with the first record that is not older. Instead of offset.")
_LIMIT = query_number("limit", "Records at the most.", minimum=1, maximum=MAX_RECORDS, default=DEFAULT_RECORDS)
ISOLATION = query_text(
    "isolation",
    "read_uncommitted also shows records of transactions that are open, or were aborted.",
    allowed=("read_uncommitted", READ_COMMITTED),
    default=READ_COMMITTED,
)
_FIELD_BYTES = query_number(
    "field_bytes",
    "How much of each key and value is shown, in bytes, and of all headers together.",
    maximum=MAX_FIELD_BYTES,
    default=DEFAULT_FIELD_BYTES,
)
_BYTES = schema.nullable(
    schema.record(
        {
            "text": schema.nullable(schema.text("Null unless the bytes are UTF-8.")),
            "base64": schema.text(),
            "size_bytes": schema.integer("Of the whole."),
            "truncated": schema.boolean("Not all of it is shown."),
        },
        is_open=True,
    )
)
RECORD_FIELDS: dict[str, schema.Schema] = {
    "offset": schema.integer(),
    "timestamp_ms": schema.integer(minimum=-schema.LONG_MAX - 1),
    "timestamp_type": schema.text(allowed=("CreateTime", "LogAppendTime")),
    "key": _BYTES,
    "value": _BYTES,
    "headers": schema.array(schema.record({"key": schema.text(), "value": _BYTES}, is_open=True)),
    "header_count": schema.integer("All of them; at most 100 are shown."),
}
_RECORD = schema.record(RECORD_FIELDS, is_open=True)
_PAGE = schema.record(
    {
        "topic": schema.text(),
        "partition": schema.integer(),
        "records": schema.array(_RECORD, max_items=MAX_RECORDS),
        "next_offset": schema.integer("Where the next page begins."),
        "is_end": schema.boolean("Nothing follows now. Otherwise a limit ended the page."),
        "high_watermark": schema.integer(),
        "log_start_offset": schema.integer(),
    },
    is_open=True,
)


@handled_by(lambda request: leader_elsewhere(request, topic_with_records(request), PARTITION_ASKED.of(request)))
async def records(request: web.Request) -> web.StreamResponse:
    """A page of one partition's records, from both tiers."""
    broker = request.app[BROKER]
    require_none_owed(request, QuotaKey.CONSUMER_BYTE_RATE)
    topic, number = topic_with_records(request), PARTITION_ASKED.of(request)
    partition = topic.partition(number)
    at_time = partial(broker.reader.offset_for_timestamp, partition)
    body = await page_of(request, partition, broker.records, at_time, topic=topic.name, number=number)
    count(request, QuotaKey.CONSUMER_BYTE_RATE, len(body))
    return await send_page(request, body)


AtTime = Callable[[int], Awaitable[tuple[int, int] | None]]
"""Finds the first record that is not older than a time."""


async def page_of(
    request: web.Request,
    partition: Readable,
    reader: RecordReader,
    at_time: AtTime,
    *,
    topic: str,
    number: int,
) -> bytes:
    """The records that the query asks for, as JSON. They were made JSON where they were decoded; this frames them."""
    committed_only = ISOLATION.of(request) == READ_COMMITTED

    def end_offset() -> int:
        return partition.last_stable_offset if committed_only else partition.high_watermark

    page = await reader.read(
        partition,
        await _start_of(request, partition.log_start_offset, end_offset(), at_time),
        limits=Limits(max_records=_LIMIT.of(request), max_bytes=MAX_PAGE_BYTES, max_ms=MAX_READ_MS),
        committed_only=committed_only,
        render=renderer(_FIELD_BYTES.of(request)),
    )
    fields = {
        "topic": topic,
        "partition": number,
        "next_offset": page.next_offset,
        "is_end": page.is_end or page.next_offset >= end_offset(),
        "high_watermark": partition.high_watermark,
        "log_start_offset": partition.log_start_offset,
    }
    frame = json.dumps(fields).encode()
    return frame[:-1] + b', "records": [' + b", ".join(rendered for _, rendered in page.records) + b"]}"


async def send_page(request: web.Request, body: bytes) -> web.StreamResponse:
    """Sends it piece by piece as the client reads, while the request still counts and has its deadline: pages that
    nobody fetches would gather in memory otherwise."""
    if request.method == "HEAD":
        return web.Response(body=body, content_type=CONTENT_TYPE, charset="utf-8")
    response = web.StreamResponse(headers={"Content-Type": f"{CONTENT_TYPE}; charset=utf-8"})
    response.content_length = len(body)
    await response.prepare(request)
    try:
        for start in range(0, len(body), PIECE_BYTES):
            await response.write(body[start : start + PIECE_BYTES])
        await response.write_eof()
    except ConnectionResetError:
        pass  # The client has gone.
    except asyncio.CancelledError:
        # Too late for another answer: half of this one has been sent.
        if request.transport is not None:
            request.transport.abort()
        raise
    return response


async def _start_of(request: web.Request, log_start_offset: int, end_offset: int, at_time: AtTime) -> int:
    """The offset that the query means. The reader checks that it is in the log."""
    timestamp_ms, text = _TIMESTAMP.find(request), _OFFSET.find(request)
    if timestamp_ms is not None:
        if text is not None:
            raise InvalidRequest("offset and timestamp_ms are two ways to say where to begin: give one of them")
        found = await at_time(timestamp_ms)
        return end_offset if found is None else min(found[0], end_offset)
    if text is None or text == "earliest":
        return log_start_offset
    if text == "latest":
        return end_offset
    if not _OFFSET_TEXT.match(text) or abs(int(text)) > schema.LONG_MAX:
        raise InvalidRequest(f"offset is {text!r}: it must be earliest, latest, a whole number, or -N for the last N")
    if text.startswith("-"):
        return max(log_start_offset, end_offset + int(text))
    return int(text)


ROUTES = tagged(
    "records",
    route(
        "GET",
        "/api/v1/topics/{topic}/records",
        records,
        answers_json(_PAGE),
        *(PARTITION_ASKED, _OFFSET, _TIMESTAMP, _LIMIT, ISOLATION, _FIELD_BYTES),
    ),
)
