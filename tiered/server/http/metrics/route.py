"""`/metrics`: the broker's numbers in Prometheus' text format.

Owns the request alone: `broker` has the names. Answers while SQL and the object store are away.
"""

from itertools import chain

from aiohttp import web

from tiered.broker.host.process_facts import read_process_facts
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.limits import REQUESTS
from tiered.server.http.messages.route import Answer, route, tagged
from tiered.server.http.messages.schema import text
from tiered.server.http.metrics.broker import families
from tiered.server.http.metrics.clients import client_families
from tiered.server.http.metrics.cluster_view import VIEWS
from tiered.server.http.metrics.prometheus import CONTENT_TYPE, exposition_of


async def _metrics(request: web.Request) -> web.Response:
    """The broker's numbers in Prometheus' text format."""
    broker = request.app[BROKER]
    facts = await broker.disk.run(read_process_facts, broker.data.root)
    view = request.app[VIEWS].of(broker)
    body = await exposition_of(
        chain(
            families(broker, view, facts, request.app[REQUESTS]),
            client_families(broker),
        )
    )
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


ROUTES = tagged(
    "service",
    route(
        "GET",
        "/metrics",
        _metrics,
        {200: Answer(description="As docs/metrics.md lists them.", schema=text(), content_type="text/plain")},
    ),
)
