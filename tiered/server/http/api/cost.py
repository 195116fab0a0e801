"""`/api/v1/cost`: what each topic takes and costs, by the prices among the broker's settings.

Asks SQL, so it answers 503 while that is away.
"""

from aiohttp import web

from tiered.broker.people.cost import cost
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages import schema
from tiered.server.http.messages.form import Form
from tiered.server.http.messages.route import answers_json, route, tagged

_TOPIC = Form(
    {
        "topic": (schema.text(), "held.topic"),
        "topic_id": (schema.text(), lambda each: str(each.held.topic_id)),
        "deleted": (schema.boolean("Deleted, with objects that are still in the store."), "held.deleted"),
        "cold_bytes": (schema.integer(), "held.cold_bytes"),
        "cold_objects": (schema.integer(), "held.cold_objects"),
        "cold_records": (schema.integer(), "held.cold_records"),
        "retired_bytes": (
            schema.integer("No longer in the log, and in the store until the purge grace is over."),
            "held.retired_bytes",
        ),
        "retired_objects": (schema.integer(), "held.retired_objects"),
        "local_bytes": (schema.integer(), "held.local_bytes"),
        "storage_usd_per_month": schema.number("Cold and retired objects."),
        "local_usd_per_month": schema.number(),
        "total_usd_per_month": schema.number(),
        "upload_usd": schema.number("Spent once, for the objects that are there now."),
    },
)
_COST = schema.record(
    {
        "currency": schema.text(allowed=("USD",)),
        "prices": schema.mapping(schema.number(), "The settings tiered.price.*."),
        "topics": schema.array(_TOPIC.schema),
        "total_usd_per_month": schema.number(),
    },
    is_open=True,
)


async def costs(request: web.Request) -> web.Response:
    """What each topic takes of both tiers, and what that costs."""
    broker = request.app[BROKER]
    found = await cost(broker.context, broker.state, broker.topics)
    return web.json_response(
        {
            "currency": "USD",
            "prices": dict(found.prices),
            "topics": [_TOPIC.of(each) for each in found.topics],
            "total_usd_per_month": sum(each.total_usd_per_month for each in found.topics),
        }
    )


ROUTES = tagged(
    "cluster",
    route("GET", "/api/v1/cost", costs, answers_json(_COST)),
)
