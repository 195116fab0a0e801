"""One broker (`/api/v1/brokers/{broker_id}`): its registration, process, disk and traffic, and the partitions that it
has replicas of.

Any broker answers. The registration and the partitions come from the image; the process, its disk and its counters are
asked of the broker itself, and are null where it does not answer: then the age of its newest heartbeat says since when.
Counters are totals since the start, so that a reader can take rates from two answers and their `uptime_ms`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.broker.host.process_facts import ProcessFacts, read_process_facts
from tiered.broker.people.partition_totals import PartitionTotals
from tiered.broker.view.image import BrokerRow
from tiered.ids import TopicPartition
from tiered.runtime import in_turns
from tiered.server.http.api.cluster import BROKER_FIELDS, OF_ITSELF, broker_fields, own_answer
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages import schema
from tiered.server.http.messages.failures import NoSuchResource
from tiered.server.http.messages.origin import is_forwarded
from tiered.server.http.messages.parameters import BROKER_ID, query_number, query_text
from tiered.server.http.messages.route import answers_json, route, tagged
from tiered.server.http.metrics.cluster_view import VIEWS
from tiered.server.http.neighbours.answering_broker import neighbour
from tiered.server.http.neighbours.forward import Reply, ask_twice

MAX_PARTITIONS = 1_000
DEFAULT_PARTITIONS = 100
ROLES = ("leader", "follower")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """A broker, a reading of its process, and the sums over its partitions."""

    broker: Broker
    process: ProcessFacts
    totals: PartitionTotals

    @property
    def uptime_ms(self) -> int:
        return int(self.broker.clock.monotonic_ms() - self.broker.started_monotonic_ms)


_ACTIVITY = schema.Form(
    {
        "started_at_ms": (
            schema.integer("By its own clock."),
            lambda own: int(own.broker.clock.now_ms() - own.uptime_ms),
        ),
        "uptime_ms": schema.integer(),
        "cpu_s": (schema.number("CPU time of the process since its start, of all cores."), "process.cpu_s"),
        "resident_bytes": (schema.integer("Memory that the process holds; 0 where unknown."), "process.resident_bytes"),
        "disk_free_bytes": (schema.integer("Of the disk with the data folder."), "process.disk_free_bytes"),
        "disk_total_bytes": (schema.integer(), "process.disk_total_bytes"),
        "open_files": (schema.integer("Sockets included."), "process.open_fds"),
        "max_open_files": (schema.integer(), "process.max_fds"),
        "threads": (schema.integer(), "process.threads"),
        "produced_bytes": (schema.integer("From producers."), "broker.counters.produced_bytes"),
        "fetched_bytes": (schema.integer("To consumers."), "broker.counters.fetched_bytes"),
        "replicated_in_bytes": (
            schema.integer("From leaders, as their follower."),
            "broker.counters.replication_bytes_in",
        ),
        "replicated_out_bytes": (schema.integer("To followers."), "broker.counters.replication_bytes_out"),
        "requests": (
            schema.integer("Of Kafka's protocol, answered."),
            lambda own: sum(own.broker.counters.requests.values()),
        ),
        "http_requests": (
            schema.integer("Over HTTP, answered; those of other brokers are among them."),
            lambda own: sum(own.broker.counters.http_requests.values()),
        ),
        "upload_backlog_bytes": (
            schema.integer("Closed segments that wait for their upload."),
            "totals.upload_backlog_bytes",
        ),
        "upload_backlog_age_ms": (
            schema.integer("Age of the oldest of them."),
            "totals.upload_backlog_age_ms",
        ),
    }
)
_LISTENER = schema.Form(
    {
        "name": schema.text(),
        "protocol": schema.text(),
        "host": schema.text(),
        "port": schema.integer(),
    }
)
_BROKER = schema.record(
    {
        **BROKER_FIELDS,
        "answered_by": schema.integer("Whose image of the cluster this is."),
        "broker_epoch": schema.integer("Of its newest registration."),
        "listeners": schema.array(_LISTENER.schema, "For Kafka clients, as the broker has registered them."),
        "activity": schema.nullable(_ACTIVITY.schema),
    },
    is_open=True,
)
_OF_ITSELF = schema.record({**OF_ITSELF, "activity": schema.record({}, is_open=True)}, is_open=True)
_ROLE = query_text("role", "Only partitions that it leads, or that it follows.", allowed=ROLES)
_IN_SYNC = query_text("in_sync", "Only replicas that are in sync, or that are not.", allowed=("true", "false"))
_AFTER_TOPIC = query_text("after_topic", "Begins behind this topic's `after_partition`.", max_length=249)
_AFTER_PARTITION = query_number("after_partition", maximum=schema.INT_MAX, default=schema.INT_MAX)
_LIMIT = query_number("limit", minimum=1, maximum=MAX_PARTITIONS, default=DEFAULT_PARTITIONS)
_REPLICA = schema.record(
    {
        "topic": schema.text(),
        "partition": schema.integer(),
        "role": schema.text(allowed=ROLES),
        "in_sync": schema.boolean(),
        "leader": schema.integer("-1 while it has none.", minimum=-1),
        "replicas": schema.array(schema.integer()),
        "isr": schema.array(schema.integer()),
    },
    is_open=True,
)
_REPLICAS = schema.record(
    {
        "broker_id": schema.integer(),
        "partitions": schema.array(_REPLICA, "By topic and number.", max_items=MAX_PARTITIONS),
        "is_end": schema.boolean("False where more follow behind the last one."),
    },
    is_open=True,
)


async def one(request: web.Request) -> web.Response:
    """One broker: its registration, process, disk and traffic."""
    broker, row = _named_in_path(request)
    view = await request.app[VIEWS].of(broker)
    if row.broker_id == broker.broker_id:
        process, totals = await broker.disk.run(read_process_facts, broker.data.root), await broker.partition_totals()
        own = _Own(broker=broker, process=process, totals=totals)
        answer = {**own_answer(broker, view, totals), "activity": _ACTIVITY.of(own)}
        reply = Reply(content=answer, is_silent=False)
    elif row.fenced or is_forwarded(request):
        reply = Reply(content=None, is_silent=False)
    else:
        reply = await ask_twice(request, neighbour(row), f"/api/v1/brokers/{row.broker_id}", _OF_ITSELF)
    _, row = _named_in_path(request)  # It may have been unregistered meanwhile.
    return web.json_response(
        {
            **broker_fields(request, view, row.broker_id, reply.content, is_silent=reply.is_silent),
            "answered_by": broker.broker_id,
            "broker_epoch": row.broker_epoch,
            "listeners": [_LISTENER.of(listener) for listener in row.kafka_listeners],
            "activity": None if reply.content is None else reply.content["activity"],
        }
    )


async def partitions(request: web.Request) -> web.Response:
    """The partitions that a broker has replicas of, a page at a time."""
    broker, row = _named_in_path(request)
    limit, after_topic, after_partition = _LIMIT.of(request), _AFTER_TOPIC.find(request), _AFTER_PARTITION.of(request)
    role, in_sync = _ROLE.find(request), _IN_SYNC.find(request)
    page: list[Mapping[str, Any]] = []
    is_end = True
    async for replica in in_turns(_replicas(broker, row.broker_id, after_topic, after_partition)):
        if replica is None or (role not in (None, replica["role"])):
            continue
        if in_sync is not None and replica["in_sync"] != (in_sync == "true"):
            continue
        if len(page) == limit:
            is_end = False
            break
        page.append(replica)
    return web.json_response({"broker_id": row.broker_id, "partitions": page, "is_end": is_end})


def _named_in_path(request: web.Request) -> tuple[Broker, BrokerRow]:
    """This broker, and the row of the one that the path names. Raises NoSuchResource."""
    broker, number = request.app[BROKER], BROKER_ID.of(request)
    row = broker.image.brokers.get(number)
    if row is None:
        registered = ", ".join(map(str, sorted(broker.image.brokers)))
        raise NoSuchResource(f"broker {number} is not registered; those that are: {registered}")
    return broker, row


def _replicas(
    broker: Broker, broker_id: int, after_topic: str | None, after_partition: int
) -> Iterator[Mapping[str, Any] | None]:
    """The broker's replicas by topic and number; None for each partition without one, so that the walk can pause."""
    image = broker.image
    for topic in broker.topics.from_name(after_topic or ""):
        yield None
        for row in image.rows_of(topic.topic_id):
            is_behind = topic.name == after_topic and row.partition <= after_partition
            if is_behind or broker_id not in row.replicas:
                yield None
                continue
            leader = image.leader_of(TopicPartition(topic.topic_id, row.partition))
            isr = image.in_sync(row)
            yield {
                "topic": topic.name,
                "partition": row.partition,
                "role": "leader" if leader is not None and leader.broker_id == broker_id else "follower",
                "in_sync": broker_id in isr,
                "leader": -1 if leader is None else leader.broker_id,
                "replicas": list(row.replicas),
                "isr": list(isr),
            }


ROUTES = tagged(
    "cluster",
    route("GET", "/api/v1/brokers/{broker_id}", one, answers_json(_BROKER)),
    route(
        "GET",
        "/api/v1/brokers/{broker_id}/partitions",
        partitions,
        answers_json(_REPLICAS),
        *(_ROLE, _IN_SYNC, _AFTER_TOPIC, _AFTER_PARTITION, _LIMIT),
    ),
)
