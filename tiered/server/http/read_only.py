"""The HTTP door of a read replica: health, metrics, topics, segments and records. Other routes of a broker are refused.

Owns these routes, which answer in the broker's own forms where a broker has them. Must never hold state of its own: all
of it is read from the replica's view of the bucket.
"""

from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from aiohttp import web

from tiered.broker.host.process_facts import read_process_facts
from tiered.errors import StoreTrouble, TieredError
from tiered.metrics import DESCRIBED
from tiered.read_replica.bucket_topics import BucketTopic
from tiered.read_replica.replica import ReadReplica
from tiered.rules.segments.cold_partition import ColdPartition
from tiered.server.http.api import health as routes_health
from tiered.server.http.api import partitions as partition_routes
from tiered.server.http.api import records as routes_records
from tiered.server.http.api.partitions import MAX_SEGMENTS, SEGMENT, START_OFFSET
from tiered.server.http.api.records import PARTITION_ASKED, page_of, send_page
from tiered.server.http.api.topics import CONFIG
from tiered.server.http.app import HttpServer, guarded
from tiered.server.http.door import browser_guard as security
from tiered.server.http.door.keys import REPLICA
from tiered.server.http.door.limits import REQUESTS
from tiered.server.http.messages import openapi, schema
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.parameters import PARTITION, TOPIC
from tiered.server.http.messages.route import Answer, Route, answers_json, route, tagged
from tiered.server.http.metrics import broker as broker_metrics
from tiered.server.http.metrics.prometheus import CONTENT_TYPE, counter, exposition_of, families_of, gauge
from tiered.server.http.routes import ROUTES as OF_A_BROKER

__all__ = ["HttpServer", "application"]

_HEALTH = schema.record(
    {
        "serving": schema.boolean("False while it starts or stops."),
        "read_only": schema.boolean(),
        "broker": schema.integer("This broker's number."),
        "cluster_id": schema.text("Of the cluster that writes the bucket."),
        "view_age_ms": schema.integer("How long ago the last look at the whole bucket began."),
        "store_away": schema.boolean("True while the bucket does not answer."),
        "store_trouble": schema.nullable(
            schema.text("Why the newest read failed.", allowed=[each.value for each in StoreTrouble])
        ),
        "unreadable_partitions": schema.array(schema.text(), "Their checkpoints are damaged; the first 100."),
    },
    is_open=True,
)


def application(replica: ReadReplica) -> web.Application:
    """The routes of a read replica, with errors as JSON."""
    app = guarded(replica, ROUTES)
    app[REPLICA] = replica
    for row in OF_A_BROKER:
        if (row.method, row.path) not in _SERVED:
            app.router.add_route(row.method, row.path, _refused)
    return app


async def _refused(request: web.Request) -> web.StreamResponse:
    raise request.app[REPLICA].refusal()


async def _readyz(request: web.Request) -> web.Response:
    health = request.app[REPLICA].health()
    return web.json_response(health, status=200 if health["serving"] else 503)


# Topics


async def _topics(request: web.Request) -> web.StreamResponse:
    """Every topic of the bucket with its partitions and their offsets."""
    replica = request.app[REPLICA]
    return await json_with_list(request, {}, "topics", (_topic_fields(replica, topic) for topic in replica.topics))


async def _topic(request: web.Request) -> web.Response:
    """One topic with its partitions and its configs."""
    replica = request.app[REPLICA]
    topic = replica.topics.by_name(TOPIC.of(request))
    configs = [CONFIG.of(entry) for entry in replica.describe(topic)]
    return web.json_response({**_topic_fields(replica, topic), "configs": configs})


def _topic_fields(replica: ReadReplica, topic: BucketTopic) -> dict[str, Any]:
    partitions = [_partition_fields(replica, topic, number) for number in range(topic.partition_count)]
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "internal": False,
        "partition_count": topic.partition_count,
        "record_count": sum(each["high_watermark"] - each["log_start_offset"] for each in partitions),
        "cold_bytes": sum(each["cold_bytes"] for each in partitions),
        "partitions": partitions,
    }


def _partition_fields(replica: ReadReplica, topic: BucketTopic, number: int) -> dict[str, Any]:
    failed = None
    try:
        partition = replica.topics.partition(topic, number).cold
    except TieredError as error:
        partition = ColdPartition(topic=topic.name, topic_id=topic.topic_id, partition=number)
        failed = str(error)
    return {
        "partition": number,
        "leader": replica.broker_id,
        "log_start_offset": partition.log_start_offset,
        "cold_end_offset": partition.cold_end_offset,
        "high_watermark": partition.cold_end_offset,
        "last_stable_offset": partition.cold_end_offset,
        "cold_bytes": partition.cold_bytes,
        "failed": failed,
    }


async def _segments(request: web.Request) -> web.StreamResponse:
    replica = request.app[REPLICA]
    partition = replica.topics.partition(replica.topics.by_name(TOPIC.of(request)), PARTITION.of(request)).cold
    start_offset = START_OFFSET.of(request)
    found = [each for each in partition.segments if each.end_offset > start_offset][:MAX_SEGMENTS]
    end = partition.cold_end_offset
    fields = {
        "topic": partition.topic,
        "partition": partition.partition,
        "log_start_offset": partition.log_start_offset,
        "local_log_start_offset": end,
        **dict.fromkeys(("cold_end_offset", "overdue_end_offset", "high_watermark", "log_end_offset"), end),
    }
    return await json_with_list(
        request, fields, "segments", (SEGMENT.of(each, tier="cold", state="committed") for each in found)
    )


async def _records(request: web.Request) -> web.StreamResponse:
    replica = request.app[REPLICA]
    partition = replica.topics.partition(replica.topics.by_name(TOPIC.of(request)), PARTITION_ASKED.of(request))
    at_time = partial(replica.reader.offset_for_timestamp, partition)
    topic, number = partition.cold.topic, partition.cold.partition
    body = await page_of(request, partition, replica.records, at_time, topic=topic, number=number)
    return await send_page(request, body)


# Metrics

_COUNTED = [
    DESCRIBED[each]
    for each in ("produce_errors", "fetched_bytes", "fetched_cold_bytes", "cold_corruptions", "cold_read_errors")
]
_OF_TOPICS = (
    gauge(
        "tiered_read_replica_view_age_seconds",
        "How long ago the last look at the whole bucket began.",
        lambda topics: topics.age_ms / 1000,
    ),
    counter("tiered_read_replica_refreshes_total", "Looks at the whole bucket that succeeded.", "state.refreshes"),
    counter(
        "tiered_read_replica_refresh_failures_total",
        "Looks at the bucket for which the store did not answer everything.",
        "state.failures",
    ),
    gauge(
        "tiered_read_replica_unreadable_partitions",
        "Partitions whose checkpoints are damaged.",
        lambda topics: len(topics.unreadable),
    ),
    gauge("tiered_topics", "Topics.", len),
    gauge(
        "tiered_partitions",
        "Partitions that have been seen.",
        lambda topics: sum(1 for _ in topics.partitions()),
    ),
    gauge(
        "tiered_cold_bytes",
        "Bytes in the object store that can be read here.",
        lambda topics: sum(each.cold_bytes for each in topics.partitions()),
    ),
)
METRICS = (*_COUNTED, *_OF_TOPICS)
"""What a read replica tells besides what it has in common with every broker."""


async def _metrics(request: web.Request) -> web.Response:
    replica = request.app[REPLICA]
    facts = await replica.disk.run(read_process_facts, replica.data.root)
    families = chain(
        families_of(_OF_TOPICS, replica.topics),
        families_of(_COUNTED, replica.counters),
        broker_metrics.families_of_any(replica, facts),
        broker_metrics.families_at_doors(replica.counters, request.app[REQUESTS]),
    )
    return web.Response(body=await exposition_of(families), headers={"Content-Type": CONTENT_TYPE})


def _as(routes: tuple[Route, ...], path: str, **changes: Any) -> Route:
    """The broker's own row for `GET path`, with another handler."""
    return replace(next(each for each in routes if (each.method, each.path) == ("GET", path)), **changes)


_LIST_OF_TOPICS = schema.record({"topics": schema.array(schema.mapping(schema.ANYTHING))}, is_open=True)

ROUTES = (
    _as(routes_health.ROUTES, "/healthz"),
    _as(
        routes_health.ROUTES,
        "/readyz",
        handler=_readyz,
        answers={
            200: Answer(description="It serves.", schema=_HEALTH),
            503: Answer(description="It starts or stops.", schema=_HEALTH),
        },
    ),
    _as(broker_metrics.ROUTES, "/metrics", handler=_metrics),
    *openapi.ROUTES,
    *security.ROUTES,
    *tagged(
        "topics",
        route("GET", "/api/v1/topics", _topics, answers_json(_LIST_OF_TOPICS)),
        route("GET", "/api/v1/topics/{topic}", _topic, answers_json(schema.mapping(schema.ANYTHING))),
    ),
    _as(partition_routes.ROUTES, "/api/v1/topics/{topic}/partitions/{partition}/segments", handler=_segments),
    _as(routes_records.ROUTES, "/api/v1/topics/{topic}/records", handler=_records),
)
_SERVED = frozenset((row.method, row.path) for row in ROUTES)
