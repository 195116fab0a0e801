"""The cluster as a whole: its brokers and what they hold (`/api/v1/cluster`), where disk, metadata store and bucket
disagree (`/api/v1/reconcile`), and what each topic costs by the prices among the broker's settings (`/api/v1/cost`).

Answers from memory, so it works while SQL and the object store are away; costs alone are asked of SQL, and answered 503
while that is away. What each broker alone knows it is asked for; one that does not answer in time, asked twice, is
shown as the image knows it, or named. `broker_fields` is one broker's part of the answer, for `brokers` too.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from tiered import __version__
from tiered.broker.broker import Broker
from tiered.broker.partitions.topics import OFFSETS_TOPIC
from tiered.broker.people.cost import cost
from tiered.broker.people.partition_totals import PartitionTotals
from tiered.broker.reconcile.findings import MAX_FINDINGS, FindingKind
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages import schema
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.route import answers_json, route, tagged
from tiered.server.http.metrics.cluster_view import VIEWS, ClusterView, health_of
from tiered.server.http.neighbours.answering_broker import answers_of_others, replies_of_others

ADDED_UP = ("local_bytes", "cold_bytes", "produced_bytes", "fetched_bytes", "connections_open")
_OWN_TOTALS = schema.Form(
    {
        "local_bytes": schema.integer("On the brokers' disks, replicas included."),
        # Counted by the leaders, so that nothing is counted twice.
        "cold_bytes": schema.integer(),
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
_FINDING = schema.Form(
    {
        "broker_id": schema.integer("Who found it."),
        "kind": (
            schema.text("docs/reconcile.md explains them.", allowed=tuple(kind.value for kind in FindingKind)),
            "kind.value",
        ),
        "topic": schema.text("Its id where nobody knows the topic."),
        "topic_id": (schema.text(), lambda finding: str(finding.topic_id)),
        "partition": schema.integer("-1 where none is concerned.", minimum=-1),
        "first_offset": schema.integer("-1 where none are concerned.", minimum=-1),
        "last_offset": schema.integer("Inclusive.", minimum=-1),
        "chunk": schema.integer("Counted from 0 in the object; -1 where it is all of it.", minimum=-1),
        "name": schema.text("An object's key, or a path on the broker's disk."),
        "message": schema.text(),
        "advice": schema.text("What to do."),
        "found_at_ms": schema.integer(),
        "seen_at_ms": schema.integer("When it was looked at last, and still was so."),
    },
)
_PROGRESS = schema.Form(
    {
        "broker_id": schema.integer(),
        "enabled": (schema.boolean("False where tiered.reconcile.interval.ms is -1."), "reconciler.is_enabled"),
        "turns": (
            schema.integer("Times that all objects were looked for since the broker started."),
            "reconciler.bucket.turns",
        ),
        "objects": (schema.integer("Objects that were looked for."), "counters.reconcile_objects"),
        "requests": (schema.integer("Requests that this took."), "counters.reconcile_requests"),
        "scrubbed_bytes": (schema.integer(), "counters.scrubbed_bytes"),
        "scrubbed_chunks": (schema.integer(), "counters.scrubbed_chunks"),
        "scrub_turn_ended_at_ms": (
            schema.integer("When all chunks had been read last; 0 before that."),
            "reconciler.scrub.turn_ended_at_ms",
        ),
        "omitted": (
            schema.integer(f"Times that a finding had no room among {MAX_FINDINGS}."),
            "reconciler.findings.omitted",
        ),
    },
)
_RECONCILE = schema.record(
    {
        "brokers": schema.array(_PROGRESS.schema, "Those that answered."),
        "silent": schema.array(schema.integer(), "Brokers in service that did not: their findings are missing."),
        "findings": schema.array(_FINDING.schema, "By topic, partition and offset."),
    },
    is_open=True,
)
_TOPIC = schema.Form(
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
        "local_bytes": (schema.integer("On the brokers' disks, replicas included."), "held.local_bytes"),
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
BROKER_FIELDS: Mapping[str, schema.Schema] = {
    "broker_id": schema.integer(),
    "host": schema.text(),
    "port": schema.integer(),
    "http_host": schema.nullable(schema.text()),
    "http_port": schema.nullable(schema.integer()),
    "rack": schema.nullable(schema.text()),
    "is_controller": schema.boolean(),
    "state": schema.text(
        "fenced: out of service, it missed its heartbeats or was shut down. silent: in service, and does not answer "
        "over HTTP, asked twice.",
        allowed=("live", "fenced", "silent"),
    ),
    "heartbeat_age_ms": schema.nullable(
        schema.integer("Age of its newest heartbeat in SQL. Null while SQL is away, and of the broker that answers.")
    ),
    "heartbeat_is_late": schema.boolean("In service, and its heartbeat has stood still for half a session."),
    "serving": schema.boolean(),
    "leader_count": schema.integer("Partitions that it leads."),
    "replica_count": schema.integer(),
    "not_in_sync": schema.integer("Of its replicas."),
    "version": schema.nullable(schema.text("Null where it did not answer.")),
    "health": schema.nullable(schema.record({"serving": schema.boolean()}, is_open=True)),
    "totals": schema.nullable(_OWN_TOTALS.schema),
}
_BROKER = schema.record(BROKER_FIELDS, is_open=True)
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


OF_ITSELF: Mapping[str, schema.Schema] = {
    "version": schema.text(),
    "health": schema.record({"serving": schema.boolean()}, is_open=True),
    "totals": schema.record(dict.fromkeys(ADDED_UP, schema.integer()), is_open=True),
}
"""What is read of the answer of another broker. Another process may have taken its address."""
_OF_ITSELF = schema.record(OF_ITSELF, is_open=True)


async def cluster(request: web.Request) -> web.Response:
    """The brokers in service, the health of all of them, and how much they hold."""
    broker = request.app[BROKER]
    view = await request.app[VIEWS].of(broker)
    own = own_answer(broker, view, await broker.partition_totals())
    replies = await replies_of_others(request, "/api/v1/cluster", _OF_ITSELF)
    answers = {broker_id: reply.content for broker_id, reply in replies.items() if reply.content is not None}
    answers[broker.broker_id] = own
    silent = {broker_id for broker_id, reply in replies.items() if reply.is_silent}
    return web.json_response(
        {
            "cluster_id": broker.cluster_id,
            "version": __version__,
            "controller_id": broker.image.controller_id,
            "answered_by": broker.broker_id,
            "brokers": [
                broker_fields(request, view, number, answers.get(number), is_silent=number in silent)
                for number in sorted(broker.image.brokers)
            ],
            "health": own["health"],
            "totals": {
                **_known_to_all(broker, view),
                **_added_up(answer["totals"] for answer in answers.values()),
                "uptime_ms": own["totals"]["uptime_ms"],
            },
        }
    )


def own_answer(broker: Broker, view: ClusterView, totals: PartitionTotals) -> dict[str, Any]:
    """The facts that this broker alone knows of itself."""
    return {
        "version": __version__,
        "health": health_of(broker, view, totals),
        "totals": _OWN_TOTALS.of(broker, local_bytes=totals.local_bytes, cold_bytes=totals.led_cold_bytes),
    }


def broker_fields(
    request: web.Request, view: ClusterView, number: int, answer: Mapping[str, Any] | None, *, is_silent: bool
) -> dict[str, Any]:
    """One registered broker, from the image and from `answer`: what it has said of itself, or None."""
    broker = request.app[BROKER]
    row = broker.image.brokers[number]
    is_here = number == broker.broker_id
    local_host, local_port = _reached_on(request)
    host, port = broker.address_for(local_host) if is_here else (row.host, row.port)
    health = None if answer is None else answer["health"]
    return {
        "broker_id": number,
        "host": host,
        "port": port,
        "http_host": local_host if is_here else row.http_host,
        "http_port": local_port if is_here else row.http_port,
        "rack": row.rack,
        "is_controller": number == broker.image.controller_id,
        "state": "fenced" if row.fenced else "silent" if is_silent else "live",
        "heartbeat_age_ms": broker.heartbeats.ages_ms.get(number),
        "heartbeat_is_late": number in broker.heartbeats.late(),
        "serving": not row.fenced if health is None else health["serving"],
        "leader_count": view.leaders.get(number, 0),
        "replica_count": view.replicas.get(number, 0),
        "not_in_sync": view.not_in_sync.get(number, 0),
        "version": None if answer is None else answer["version"],
        "health": health,
        "totals": None if answer is None else answer["totals"],
    }


def _known_to_all(broker: Broker, view: ClusterView) -> dict[str, Any]:
    return {
        "topics": len(broker.topics) - (broker.topics.find(OFFSETS_TOPIC) is not None),
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


async def reconcile(request: web.Request) -> web.StreamResponse:
    """Differences between disk, metadata store and bucket, on every broker."""
    broker = request.app[BROKER]
    progress = [_PROGRESS.of(broker)]
    findings = [_FINDING.of(each, broker_id=broker.broker_id) for each in broker.reconciler.findings.all()]
    answers, silent = await answers_of_others(request, "/api/v1/reconcile")
    for answer in answers.values():
        progress += answer["brokers"]
        findings += answer["findings"]
    fields = {"brokers": sorted(progress, key=lambda each: each["broker_id"]), "silent": silent}
    return await json_with_list(request, fields, "findings", _in_order(findings))


def _in_order(findings: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(findings, key=lambda each: (each["topic"], each["partition"], each["first_offset"], each["name"]))


async def costs(request: web.Request) -> web.Response:
    """What each topic takes in both tiers, and what that costs."""
    broker = request.app[BROKER]
    found = await cost(broker.context, broker.topics)
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
    route("GET", "/api/v1/cluster", cluster, answers_json(_CLUSTER)),
    route("GET", "/api/v1/cost", costs, answers_json(_COST)),
    route("GET", "/api/v1/reconcile", reconcile, answers_json(_RECONCILE)),
)
