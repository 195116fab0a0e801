"""`/api/v1/cluster`: who serves, how everybody is, and what they hold in all.

Answers from memory, so it works while SQL and the object store are away. What each broker alone knows (its health,
its disk, its traffic) it is asked for; one that does not answer in time is shown as the image knows it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from tiered import __version__
from tiered.broker.broker import Broker
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages import schema
from tiered.server.http.messages.form import Form
from tiered.server.http.messages.origin import is_forwarded
from tiered.server.http.messages.route import answers_json, route, tagged
from tiered.server.http.metrics.cluster_view import VIEWS, ClusterView, health_of
from tiered.server.http.neighbours.elsewhere import told_by_others

ADDED_UP = ("local_bytes", "cold_bytes", "produced_bytes", "fetched_bytes", "connections_open")
_OWN_TOTALS = Form(
    {
        "local_bytes": (
            schema.integer("On the brokers' disks, replicas included."),
            lambda broker: sum(each.log.size_bytes for each in broker.topics.partitions()),
        ),
        # Counted by the leaders, so that nothing is counted twice.
        "cold_bytes": (
            schema.integer(),
            lambda broker: sum(each.cold_bytes for each in broker.topics.partitions() if each.leadership is not None),
        ),
        "produced_bytes": (schema.integer("Since the brokers started."), "counters.produced_bytes"),
        "fetched_bytes": (
            schema.integer("Since the brokers started; what followers fetch is not in it."),
            "counters.fetched_bytes",
        ),
        "connections_open": (schema.integer(), "counters.connections_open"),
        "uptime_ms": (
            schema.integer("Of the broker that answers."),
            lambda broker: int(broker.clock.monotonic_ms() - broker.started_monotonic_ms),
        ),
    }
)
_BROKER = schema.record(
    {
        "broker_id": schema.integer(),
        "host": schema.text(),
        "port": schema.integer(),
        "http_host": schema.nullable(schema.text()),
        "http_port": schema.nullable(schema.integer()),
        "rack": schema.nullable(schema.text()),
        "is_controller": schema.boolean(),
        "state": schema.text(
            "fenced: out of service, it missed its heartbeats or was shut down. silent: in service, and does not "
            "answer over HTTP.",
            allowed=("live", "fenced", "silent"),
        ),
        "serving": schema.boolean(),
        "leader_count": schema.integer("Partitions that it leads."),
        "replica_count": schema.integer(),
        "not_in_sync": schema.integer("Of its replicas."),
        "version": schema.nullable(schema.text("Null where it did not answer.")),
        "health": schema.nullable(schema.record({"serving": schema.boolean()}, is_open=True)),
        "totals": schema.nullable(_OWN_TOTALS.schema),
    },
    is_open=True,
)
_TOTALS = schema.record(
    {
        "topics": schema.integer(),
        "partitions": schema.integer(),
        "groups": schema.nullable(schema.integer("As SQL knew a few seconds ago; null before that.")),
        **_OWN_TOTALS.schema["properties"],
    },
    is_open=True,
)
_CLUSTER = schema.record(
    {
        "cluster_id": schema.text(),
        "version": schema.text(),
        "controller_id": schema.integer("-1 while there is none.", minimum=-1),
        "answered_by": schema.integer("Whose image of the cluster this is."),
        "brokers": schema.array(_BROKER),
        "health": schema.record({"serving": schema.boolean()}, is_open=True),
        "totals": _TOTALS,
    },
    is_open=True,
)


async def cluster(request: web.Request) -> web.Response:
    """Who serves, how everybody is, and what they hold in all."""
    broker = request.app[BROKER]
    view = request.app[VIEWS].of(broker)
    health = health_of(broker, view)
    own_totals = _OWN_TOTALS.of(broker)
    own = {"version": __version__, "health": health, "totals": own_totals}
    told: dict[int, Mapping[str, Any]] = {broker.broker_id: own}
    answers, _ = await told_by_others(request, "/api/v1/cluster")
    for broker_id, answer in answers.items():
        told[broker_id] = {name: answer[name] for name in own}
    return web.json_response(
        {
            "cluster_id": broker.cluster_id,
            "version": __version__,
            "controller_id": broker.image.controller_id,
            "answered_by": broker.broker_id,
            "brokers": _brokers(request, view, told),
            "health": health,
            "totals": {
                **_known_to_all(broker, view),
                **_added_up(each["totals"] for each in told.values()),
                "uptime_ms": own_totals["uptime_ms"],
            },
        }
    )


def _brokers(request: web.Request, view: ClusterView, told: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    broker = request.app[BROKER]
    image = broker.image
    local_host, local_port = _reached_on(request)
    found = []
    for number, row in sorted(image.brokers.items()):
        is_here = number == broker.broker_id
        host, port = broker.address_for(local_host) if is_here else (row.host, row.port)
        answer = told.get(number, {"version": None, "health": None, "totals": None})
        is_known = number in told or is_forwarded(request)
        found.append(
            {
                "broker_id": number,
                "host": host,
                "port": port,
                "http_host": local_host if is_here else row.http_host,
                "http_port": local_port if is_here else row.http_port,
                "rack": row.rack,
                "is_controller": number == image.controller_id,
                "state": "fenced" if row.fenced else "live" if is_known else "silent",
                "serving": answer["health"]["serving"] if answer["health"] is not None else not row.fenced,
                "leader_count": view.leaders.get(number, 0),
                "replica_count": view.replicas.get(number, 0),
                "not_in_sync": view.not_in_sync.get(number, 0),
                **answer,
            }
        )
    return found


def _known_to_all(broker: Broker, view: ClusterView) -> dict[str, Any]:
    return {
        "topics": sum(1 for topic in broker.topics if not topic.is_internal),
        "partitions": view.partitions,
        "groups": broker.lag.group_count,
    }


def _added_up(totals: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found = list(totals)
    return {name: sum(each[name] for each in found) for name in ADDED_UP}


def _reached_on(request: web.Request) -> tuple[str, int]:
    """The address of ours that the client's connection came in at."""
    name = request.transport.get_extra_info("sockname") if request.transport is not None else None
    return (str(name[0]), int(name[1])) if name else ("", 0)


ROUTES = tagged(
    "cluster",
    route("GET", "/api/v1/cluster", cluster, answers_json(_CLUSTER)),
)
