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
from tiered.server.http.messages.route import Route, answers_json
from tiered.server.http.messages.schema import integer, nullable, text
from tiered.server.http.v3.resources import (
    BROKER_ID,
    CLUSTER_ID,
    CLUSTER_PATH,
    LINK,
    Links,
    cluster_of,
    list_schema,
    resource_schema,
)

TAG = "v3 clusters"
_CLUSTER = resource_schema(
    "KafkaCluster",
    dict.fromkeys(
        ("controller", "acls", "brokers", "broker_configs", "consumer_groups", "topics", "partition_reassignments"),
        LINK,
    ),
    optional=("controller",),
)
_BROKER = resource_schema(
    "KafkaBroker",
    {
        "broker_id": integer(),
        "host": nullable(text()),
        "port": nullable(integer()),
        "rack": nullable(text()),
        "configs": LINK,
        "partition_replicas": LINK,
    },
)


async def _clusters(request: web.Request) -> web.Response:
    return web.json_response(
        {
            "kind": "KafkaClusterList",
            "metadata": {"self": f"{origin_of(request)}/v3/clusters", "next": None},
            "data": [_cluster_fields(request)],
        }
    )


async def _cluster(request: web.Request) -> web.Response:
    cluster_of(request)
    return web.json_response(_cluster_fields(request))


async def _brokers(request: web.Request) -> web.Response:
    broker, links = cluster_of(request), Links(request)
    items = [_broker_fields(request, links, row.broker_id) for row in broker.image.live()]
    return await links.listing("KafkaBroker", ("brokers",), items)


async def _broker(request: web.Request) -> web.Response:
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
    return links.resource(
        "KafkaCluster",
        (),
        "",
        {
            **({"controller": links.link("brokers", controller_id)} if controller_id >= 0 else {}),
            "acls": links.link("acls"),
            "brokers": links.link("brokers"),
            "broker_configs": links.link("broker-configs"),
            "consumer_groups": links.link("consumer-groups"),
            "topics": links.link("topics"),
            "partition_reassignments": links.link("topics", "-", "partitions", "-", "reassignment"),
        },
    )


def _broker_fields(request: web.Request, links: Links, number: int) -> Mapping[str, Any]:
    host, port, rack = address_of(request, number)
    return links.resource(
        "KafkaBroker",
        ("brokers", number),
        f"broker={number}",
        {
            "broker_id": number,
            "host": host,
            "port": port,
            "rack": rack,
            "configs": links.link("brokers", number, "configs"),
            "partition_replicas": links.link("brokers", number, "partition-replicas"),
        },
    )


def address_of(request: web.Request, number: int) -> tuple[str, int, str | None]:
    """(host, port, rack) where Kafka clients reach a registered broker: us on the address that this one came by."""
    broker = request.app[BROKER]
    if number == broker.broker_id:
        sockname = request.get_extra_info("sockname")
        return *broker.address_for(sockname[0] if sockname else ""), broker.rack
    row = broker.image.brokers[number]
    return row.host, row.port, row.rack


ROUTES = (
    Route(
        method="GET",
        path="/v3/clusters",
        handler=_clusters,
        tag=TAG,
        summary="The cluster, in a list.",
        answers=answers_json(list_schema(_CLUSTER)),
    ),
    Route(
        method="GET",
        path=CLUSTER_PATH,
        handler=_cluster,
        tag=TAG,
        summary="The cluster.",
        parameters=(CLUSTER_ID,),
        answers=answers_json(_CLUSTER),
    ),
    Route(
        method="GET",
        path=CLUSTER_PATH + "/brokers",
        handler=_brokers,
        tag=TAG,
        summary="The brokers.",
        parameters=(CLUSTER_ID,),
        answers=answers_json(list_schema(_BROKER)),
    ),
    Route(
        method="GET",
        path=CLUSTER_PATH + "/brokers/{broker_id}",
        handler=_broker,
        tag=TAG,
        summary="One broker.",
        parameters=(CLUSTER_ID, BROKER_ID),
        answers=answers_json(_BROKER),
    ),
)
