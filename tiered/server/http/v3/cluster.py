"""`/v3/clusters` and their brokers, in Confluent's shapes.

Answers from memory. There is one cluster: this broker's. Its brokers are those in service.
"""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages.failures import NoSuchResource
from tiered.server.http.messages.origin import origin_of
from tiered.server.http.messages.parameters import BROKER_ID
from tiered.server.http.messages.route import answers_json, route, tagged
from tiered.server.http.messages.schema import integer, nullable, text
from tiered.server.http.v3.resources import CLUSTER_PATH, LINK, Below, Links, Resource, cluster_of

TAG = "v3 clusters"
_CLUSTER = Resource(
    "KafkaCluster",
    {
        "controller": LINK,
        "acls": Below(("acls",)),
        "brokers": Below(("brokers",)),
        "broker_configs": Below(("broker-configs",)),
        "consumer_groups": Below(("consumer-groups",)),
        "topics": Below(("topics",)),
        "partition_reassignments": Below(("topics", "-", "partitions", "-", "reassignment")),
    },
    optional=("controller",),
)
_BROKER = Resource(
    "KafkaBroker",
    {
        "broker_id": integer(),
        "host": nullable(text()),
        "port": nullable(integer()),
        "rack": nullable(text()),
        "configs": Below(("configs",)),
        "partition_replicas": Below(("partition-replicas",)),
    },
)


async def _clusters(request: web.Request) -> web.Response:
    """The cluster, in a list."""
    return web.json_response(
        {
            "kind": "KafkaClusterList",
            "metadata": {"self": f"{origin_of(request)}/v3/clusters", "next": None},
            "data": [_cluster_fields(request)],
        }
    )


async def _cluster(request: web.Request) -> web.Response:
    """The cluster."""
    cluster_of(request)
    return web.json_response(_cluster_fields(request))


async def _brokers(request: web.Request) -> web.StreamResponse:
    """The brokers."""
    broker, links = cluster_of(request), Links(request)
    items = [_broker_fields(request, links, row.broker_id) for row in broker.image.live()]
    return await links.listing(_BROKER, ("brokers",), items)


async def _broker(request: web.Request) -> web.Response:
    """One broker."""
    _, number = broker_of(request)
    return web.json_response(_broker_fields(request, Links(request), number))


def broker_of(request: web.Request) -> tuple[Broker, int]:
    """This broker, and the id of the one that the path names, which is in service."""
    broker = cluster_of(request)
    asked = BROKER_ID.of(request)
    live = [row.broker_id for row in broker.image.live()]
    if asked not in live:
        raise NoSuchResource(f"broker {asked} is not in service; those that are: {', '.join(map(str, live))}")
    return broker, asked


def _cluster_fields(request: web.Request) -> Mapping[str, Any]:
    links, controller_id = Links(request), request.app[BROKER].image.controller_id
    controller = links.link("brokers", controller_id) if controller_id >= 0 else None
    return links.resource(_CLUSTER, (), None, controller=controller)


def _broker_fields(request: web.Request, links: Links, number: int) -> Mapping[str, Any]:
    host, port, rack = address_of(request, number)
    return links.resource(_BROKER, ("brokers", number), None, broker_id=number, host=host, port=port, rack=rack)


def address_of(request: web.Request, number: int) -> tuple[str, int, str | None]:
    """(host, port, rack) where Kafka clients reach a registered broker: us on the address that this one came by."""
    broker = request.app[BROKER]
    if number == broker.broker_id:
        sockname = request.get_extra_info("sockname")
        return *broker.address_for(sockname[0] if sockname else ""), broker.rack
    row = broker.image.brokers[number]
    return row.host, row.port, row.rack


ROUTES = tagged(
    TAG,
    route("GET", "/v3/clusters", _clusters, answers_json(_CLUSTER.list_schema)),
    route("GET", CLUSTER_PATH, _cluster, answers_json(_CLUSTER.schema)),
    route("GET", CLUSTER_PATH + "/brokers", _brokers, answers_json(_BROKER.list_schema)),
    route("GET", CLUSTER_PATH + "/brokers/{broker_id}", _broker, answers_json(_BROKER.schema)),
)
