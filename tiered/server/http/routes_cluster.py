"""`/api/v1/cluster`: who serves, how it is, and what it holds in all.

Answers from memory, so it works while SQL and the object store are away.
"""

from typing import Any

from aiohttp import web

from tiered import __version__
from tiered.broker.broker import Broker
from tiered.server.http import schema
from tiered.server.http.keys import BROKER
from tiered.server.http.route import Route, answers_json

_BROKER = schema.record(
    {
        "broker_id": schema.integer(),
        "host": schema.text(),
        "port": schema.integer(),
        "http_host": schema.text(),
        "http_port": schema.integer(),
        "rack": schema.nullable(schema.text()),
        "is_controller": schema.boolean(),
        "serving": schema.boolean(),
    },
    is_open=True,
)
_TOTALS = schema.record(
    {
        "topics": schema.integer(),
        "partitions": schema.integer(),
        "groups": schema.nullable(schema.integer("As SQL knew a few seconds ago; null before that.")),
        "local_bytes": schema.integer(),
        "cold_bytes": schema.integer(),
        "produced_bytes": schema.integer("Since the broker started."),
        "fetched_bytes": schema.integer("Since the broker started."),
        "connections_open": schema.integer(),
        "uptime_ms": schema.integer(),
    },
    is_open=True,
)
_CLUSTER = schema.record(
    {
        "cluster_id": schema.text(),
        "version": schema.text(),
        "controller_id": schema.integer(),
        "brokers": schema.array(_BROKER),
        "health": schema.record({"serving": schema.boolean()}, is_open=True),
        "totals": _TOTALS,
    },
    is_open=True,
)


async def cluster(request: web.Request) -> web.Response:
    broker = request.app[BROKER]
    local_host, local_port = _reached_on(request)
    host, port = broker.address_for(local_host)
    return web.json_response(
        {
            "cluster_id": broker.cluster_id,
            "version": __version__,
            "controller_id": broker.broker_id,
            "brokers": [
                {
                    "broker_id": broker.broker_id,
                    "host": host,
                    "port": port,
                    "http_host": local_host,
                    "http_port": local_port,
                    "rack": broker.rack,
                    "is_controller": True,
                    "serving": broker.serving,
                }
            ],
            "health": broker.health(),
            "totals": _totals(broker),
        }
    )


def _totals(broker: Broker) -> dict[str, Any]:
    partitions = list(broker.topics.partitions())
    return {
        "topics": sum(1 for topic in broker.topics if not topic.is_internal),
        "partitions": len(partitions),
        "groups": broker.lag.group_count,
        "local_bytes": sum(partition.log.size_bytes for partition in partitions),
        "cold_bytes": sum(partition.cold_bytes for partition in partitions),
        "produced_bytes": broker.counters.produced_bytes,
        "fetched_bytes": broker.counters.fetched_bytes,
        "connections_open": broker.counters.connections_open,
        "uptime_ms": int(broker.clock.monotonic_ms() - broker.started_monotonic_ms),
    }


def _reached_on(request: web.Request) -> tuple[str, int]:
    """The address of ours that the client's connection came in at."""
    name = request.transport.get_extra_info("sockname") if request.transport is not None else None
    return (str(name[0]), int(name[1])) if name else ("", 0)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/cluster",
        handler=cluster,
        summary="Who serves, how it is, and what it holds in all.",
        tag="cluster",
        answers=answers_json(_CLUSTER),
    ),
)
