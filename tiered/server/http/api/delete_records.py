"""POST `/api/v1/topics/{topic}/partitions/{partition}/delete-records`: Kafka's DeleteRecords, for one partition.

Asked of another broker, it is the leader's answer. What would go is for the caller to look at before: the offsets of
each partition are at `/api/v1/topics/{topic}`, the one of a time at its records.
"""

from aiohttp import web

from tiered.server.http.api.lookups import topic_with_records
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages import schema
from tiered.server.http.messages.parameters import PARTITION, TOPIC, json_of
from tiered.server.http.messages.route import answers_json, route, tagged
from tiered.server.http.neighbours.elsewhere import leader_elsewhere
from tiered.server.http.neighbours.forward import forward

_BEFORE = schema.record(
    {"before_offset": schema.integer("The first offset that stays; -1 is the high watermark.", minimum=-1)}
)
_DELETED = schema.record(
    {
        "topic": schema.text(),
        "partition": schema.integer(),
        "log_start_offset": schema.integer("Where the log begins now."),
    },
    is_open=True,
)


async def delete_records(request: web.Request) -> web.StreamResponse:
    """Delete a partition's records before an offset, in both tiers.

    416 above the high watermark, 409 where a snapshot or a pin holds what would go.
    """
    topic, number = topic_with_records(request), PARTITION.of(request)
    to = leader_elsewhere(request, topic, number)
    if to is not None:
        return await forward(request, to)
    body = await json_of(request, _BEFORE)
    start = await request.app[BROKER].admin.delete_records(topic.partition(number), body["before_offset"])
    return web.json_response({"topic": topic.name, "partition": number, "log_start_offset": start})


ROUTES = tagged(
    "records",
    route(
        "POST",
        "/api/v1/topics/{topic}/partitions/{partition}/delete-records",
        delete_records,
        answers_json(_DELETED),
        TOPIC,
        PARTITION,
        body=_BEFORE,
    ),
)
