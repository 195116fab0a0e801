"""`/api/v1/topics/{topic}/partitions/{partition}/segments`: where the data is.

Answers from the leader's memory, so it works while SQL is away; "hot" is what the leader has on its disk. While nobody
leads, a replica here tells of its own.
"""

from aiohttp import web

from tiered.broker.people.segment_listing import segments_of
from tiered.server.http.api.lookups import topic_of
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages import schema
from tiered.server.http.messages.form import Form
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.parameters import PARTITION, TOPIC, query_number
from tiered.server.http.messages.route import answers_json, route, tagged
from tiered.server.http.neighbours.elsewhere import leader_elsewhere
from tiered.server.http.neighbours.forward import forward

MAX_SEGMENTS = 10_000
START_OFFSET = query_number("start_offset", "Segments that end after this offset.", default=0)
SEGMENT = Form(
    {
        "base_offset": schema.integer(),
        "end_offset": schema.integer(),
        "tier": schema.text(allowed=("hot", "cold", "both")),
        "state": schema.text(allowed=("active", "closed", "committed")),
        "size_bytes": schema.integer(),
        "min_timestamp_ms": schema.integer("-1 where unknown.", minimum=-schema.LONG_MAX),
        "max_timestamp_ms": schema.integer("-1 where unknown.", minimum=-schema.LONG_MAX),
        "object_key": schema.nullable(schema.text()),
    },
)
_SEGMENTS = schema.record(
    {
        "topic": schema.text(),
        "partition": schema.integer(),
        "log_start_offset": schema.integer(),
        "local_log_start_offset": schema.integer(),
        "cold_end_offset": schema.integer(),
        "overdue_end_offset": schema.integer("From cold_end_offset up to here uploads are late; equal if none is."),
        "high_watermark": schema.integer(),
        "log_end_offset": schema.integer(),
        "segments": schema.array(SEGMENT.schema, max_items=MAX_SEGMENTS),
    },
    is_open=True,
)


async def segments(request: web.Request) -> web.StreamResponse:
    """The catalogue of one partition: which offsets are hot, cold or both.

    At most 10,000 segments an answer; `?start_offset=` pages on from the last `end_offset`.
    """
    topic, number = topic_of(request), PARTITION.of(request)
    to = leader_elsewhere(request, topic, number)
    if to is not None:
        return await forward(request, to)
    partition = topic.partition(number)
    start_offset = START_OFFSET.of(request)
    found = segments_of(partition, start_offset=start_offset, limit=MAX_SEGMENTS)
    fields = {
        "topic": partition.topic,
        "partition": partition.topic_partition.partition,
        "log_start_offset": partition.log_start_offset,
        "local_log_start_offset": partition.log.local_log_start_offset,
        "cold_end_offset": partition.cold_end_offset,
        "overdue_end_offset": request.app[BROKER].overdue_end_offset(partition),
        "high_watermark": partition.high_watermark,
        "log_end_offset": partition.log.log_end_offset,
    }
    return await json_with_list(fields, "segments", map(SEGMENT.of, found))


ROUTES = tagged(
    "topics",
    route(
        "GET",
        "/api/v1/topics/{topic}/partitions/{partition}/segments",
        segments,
        answers_json(_SEGMENTS),
        TOPIC,
        PARTITION,
        START_OFFSET,
    ),
)
