"""`/v3/clusters` and their brokers, in Confluent's shapes.

Answers from memory. There is one cluster: this broker's.
"""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.server.http.failures import NoSuchResource
from tiered.server.http.keys import BROKER
from tiered.server.http.route import Route, answers_json
from tiered.server.http.schema import integer, nullable, text
from tiered.server.http.v3 import (
    BROKER_ID,
    CLUSTER_ID,
    CLUSTER_PATH,
    LINK,
    Links,
    cluster_of,
    list_schema,
    origin_of,
    resource_schema,
)

TAG = "v3 clusters"
_CLUSTER = resource_schema(
    "KafkaCluster",
    dict.fromkeys(
        ("controller", "acls", "brokers", "broker_configs", "consumer_groups", "topics", "partition_reassignments"),
        LINK,
    ),
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
    return await links.listing("KafkaBroker", ("brokers",), [_broker_fields(request, broker, links)])


async def _broker(request: web.Request) -> web.Response:
    broker = broker_of(request)
    return web.json_response(_broker_fields(request, broker, Links(request)))


def broker_of(request: web.Request) -> Broker:
    """The broker, when the path names it and its cluster."""
    broker = cluster_of(request)
    asked = BROKER_ID.of(request)
    if asked != broker.broker_id:
        raise NoSuchResource(f"broker {asked} cannot be found: broker {broker.broker_id} is the only one")
    return broker


def _cluster_fields(request: web.Request) -> Mapping[str, Any]:
    links = Links(request)
    return links.resource(
        "KafkaCluster",
        (),
        "",
        {
            "controller": links.link("brokers", request.app[BROKER].broker_id),
            "acls": links.link("acls"),
            "brokers": links.link("brokers"),
            "broker_configs": links.link("broker-configs"),
            "consumer_groups": links.link("consumer-groups"),
            "topics": links.link("topics"),
            "partition_reassignments": links.link("topics", "-", "partitions", "-", "reassignment"),
        },
    )


def _broker_fields(request: web.Request, broker: Broker, links: Links) -> Mapping[str, Any]:
    sockname = request.get_extra_info("sockname")
    host, port = broker.address_for(sockname[0] if sockname else "")
    number = broker.broker_id
    return links.resource(
        "KafkaBroker",
        ("brokers", number),
        f"broker={number}",
        {
            "broker_id": number,
            "host": host,
            "port": port,
            "rack": broker.rack,
            "configs": links.link("brokers", number, "configs"),
            "partition_replicas": links.link("brokers", number, "partition-replicas"),
        },
    )


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
