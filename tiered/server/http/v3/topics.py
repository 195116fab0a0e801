"""`/v3/clusters/{cluster_id}/topics`: topics, their partitions and replicas, in Confluent's shapes.

Reads the cluster's image, so every broker answers alike; what changes something goes through `admin`, with the
checks of the wire.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tiered.broker.admin import DEFAULT, MAX_PARTITIONS_A_TOPIC, NewTopic
from tiered.broker.broker import Broker
from tiered.broker.partitions.topics import Topic
from tiered.errors import InvalidRequest, UnknownTopicOrPartition
from tiered.ids import TopicPartition
from tiered.server.http.door.quotas import take_mutations
from tiered.server.http.door.rights import may_see_topic, require_create
from tiered.server.http.messages.failures import NoSuchResource
from tiered.server.http.messages.parameters import BROKER_ID, PARTITION_ID, TOPIC_NAME, json_of
from tiered.server.http.messages.route import Answer, answers_json, no_content, route, tagged
from tiered.server.http.messages.schema import INT_MAX, array, boolean, input_record, integer, record, text
from tiered.server.http.v3.cluster import broker_of
from tiered.server.http.v3.resources import CLUSTER_PATH, LINK, Below, Links, Resource, cluster_of
from tiered.server.kafka.api.create_topics import check_partitions

TAG = "v3 topics"
TOPICS_PATH = CLUSTER_PATH + "/topics"
TOPIC_PATH = TOPICS_PATH + "/{topic_name}"
MAX_CONFIGS = 200

_NEW_TOPIC = input_record(
    {
        "topic_name": text(maxLength=1000),
        "partitions_count": integer(minimum=-1, maximum=INT_MAX),
        "replication_factor": integer(minimum=-1, maximum=(1 << 15) - 1),
        "replicas_assignments": array(
            record(
                {"partition_id": integer(maximum=INT_MAX), "broker_ids": array(integer(maximum=INT_MAX), max_items=100)}
            ),
            max_items=MAX_PARTITIONS_A_TOPIC,
        ),
        "configs": array(input_record({"name": text(), "value": text()}, optional=("value",)), max_items=MAX_CONFIGS),
        "validate_only": boolean("Check, and create nothing."),
    },
    optional=("partitions_count", "replication_factor", "replicas_assignments", "configs", "validate_only"),
)
_PARTITIONS_COUNT = record({"partitions_count": integer("More than now.", minimum=1, maximum=INT_MAX)})
_TOPIC = Resource(
    "KafkaTopic",
    {
        "topic_name": (text(), "name"),
        "is_internal": boolean(),
        "replication_factor": integer(),
        "partitions_count": (integer(), "partition_count"),
        "partitions": Below(("partitions",)),
        "configs": Below(("configs",)),
        "partition_reassignments": Below(("partitions", "-", "reassignment")),
        "authorized_operations": (array(text()), lambda _: []),
    },
)
_PARTITION = Resource(
    "KafkaPartition",
    {
        "topic_name": (text(), "topic"),
        "partition_id": (integer(), "number"),
        "leader": LINK,
        "replicas": Below(("replicas",)),
        "reassignment": Below(("reassignment",)),
    },
    optional=("leader",),
)
_REPLICA = Resource(
    "KafkaReplica",
    {
        "topic_name": (text(), "topic"),
        "partition_id": (integer(), "number"),
        "broker_id": integer(),
        "is_leader": boolean(),
        "is_in_sync": boolean(),
        "broker": LINK,
    },
)


def topic_of(request: web.Request) -> tuple[Broker, Topic]:
    """The broker and the topic that the path names."""
    broker = cluster_of(request)
    return broker, broker.topics.by_name(TOPIC_NAME.of(request))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partition:
    """A partition as the image has it. `leader` is None while nobody leads it."""

    topic: str
    number: int
    leader: int | None
    in_sync: tuple[int, ...]
    replicas: tuple[int, ...]

    @property
    def pieces(self) -> tuple[object, ...]:
        return ("topics", self.topic, "partitions", self.number)


def _partitions_of(broker: Broker, topic: Topic) -> Iterator[_Partition]:
    for row in broker.image.rows_of(topic.topic_id):
        leader = broker.image.leader_of(TopicPartition(topic.topic_id, row.partition))
        yield _Partition(
            topic=topic.name,
            number=row.partition,
            leader=None if leader is None else leader.broker_id,
            in_sync=broker.image.in_sync(row),
            replicas=row.replicas,
        )


def _partition_of(request: web.Request) -> _Partition:
    """The partition that the path names."""
    broker, topic = topic_of(request)
    asked = PARTITION_ID.of(request)
    for each in _partitions_of(broker, topic):
        if each.number == asked:
            return each
    raise UnknownTopicOrPartition(f"{topic.name} has no partition {asked}")


async def _list(request: web.Request) -> web.StreamResponse:
    """Every topic."""
    broker, links = cluster_of(request), Links(request)
    return await links.listing(
        _TOPIC,
        ("topics",),
        (
            _topic_fields(broker, links, topic) if may_see_topic(request, topic.name) else None
            for topic in broker.topics
        ),
    )


async def _get(request: web.Request) -> web.Response:
    """One topic."""
    broker, topic = topic_of(request)
    return web.json_response(_topic_fields(broker, Links(request), topic))


async def _create(request: web.Request) -> web.Response:
    """Create a topic."""
    broker = cluster_of(request)
    body = await json_of(request, _NEW_TOPIC)
    require_create(request, body["topic_name"])
    assignments = {each["partition_id"]: each["broker_ids"] for each in body.get("replicas_assignments", ())}
    configs = {each["name"]: each.get("value") for each in body.get("configs", ())}
    if len(assignments) != len(body.get("replicas_assignments", ())) or len(configs) != len(body.get("configs", ())):
        raise InvalidRequest("a partition or a config stands twice in the request: give each once")
    new = NewTopic(
        name=body["topic_name"],
        partition_count=body.get("partitions_count", DEFAULT),
        replication_factor=body.get("replication_factor", DEFAULT),
        assignments=assignments,
        configs=configs,
    )
    check_partitions(broker, len(assignments) or max(1, new.partition_count))
    validate_only = body.get("validate_only", False)
    if not validate_only:
        take_mutations(request, len(assignments) or max(1, new.partition_count))
    made = await broker.admin.create_topic(new, validate_only=validate_only)
    links = Links(request)
    return web.json_response(
        _topic_fields(broker, links, made),
        status=200 if validate_only else 201,
        headers={} if validate_only else {"Location": links.url("topics", made.name)},
    )


async def _delete(request: web.Request) -> web.Response:
    """Delete a topic."""
    broker, topic = topic_of(request)
    take_mutations(request, topic.partition_count)
    await broker.admin.delete_topic(topic)
    return web.Response(status=204)


async def _grow(request: web.Request) -> web.Response:
    """Give a topic more partitions."""
    broker, topic = topic_of(request)
    count = (await json_of(request, _PARTITIONS_COUNT))["partitions_count"]
    check_partitions(broker, count - topic.partition_count)
    take_mutations(request, max(0, count - topic.partition_count))
    await broker.admin.create_partitions(topic, count, None, validate_only=False)
    return web.json_response(_topic_fields(broker, Links(request), broker.topics.by_id(topic.topic_id)))


async def _partitions(request: web.Request) -> web.StreamResponse:
    """The partitions of a topic."""
    broker, topic = topic_of(request)
    links = Links(request)
    fields = (_partition_fields(links, each) for each in _partitions_of(broker, topic))
    return await links.listing(_PARTITION, ("topics", topic.name, "partitions"), fields)


async def _partition(request: web.Request) -> web.Response:
    """One partition."""
    return web.json_response(_partition_fields(Links(request), _partition_of(request)))


async def _replicas(request: web.Request) -> web.StreamResponse:
    """The replicas of a partition."""
    partition, links = _partition_of(request), Links(request)
    fields = (_replica_fields(links, partition, broker_id) for broker_id in partition.replicas)
    return await links.listing(_REPLICA, (*partition.pieces, "replicas"), fields)


async def _replica(request: web.Request) -> web.Response:
    """One replica."""
    partition = _partition_of(request)
    asked = BROKER_ID.of(request)
    if asked not in partition.replicas:
        have = ", ".join(map(str, partition.replicas))
        raise NoSuchResource(
            f"{partition.topic}-{partition.number} has no replica on broker {asked}: it is on broker {have}"
        )
    return web.json_response(_replica_fields(Links(request), partition, asked))


async def _replicas_of_broker(request: web.Request) -> web.StreamResponse:
    """The replicas that a broker holds."""
    broker, number = broker_of(request)
    links = Links(request)
    fields = (
        _replica_fields(links, partition, number) if number in partition.replicas else None
        for topic in broker.topics
        for partition in _partitions_of(broker, topic)
    )
    return await links.listing(_REPLICA, ("brokers", number, "partition-replicas"), fields)


def _topic_fields(broker: Broker, links: Links, topic: Topic) -> Mapping[str, Any]:
    replicas = broker.image.replication_factor(topic.topic_id) or topic.replication_factor
    return links.resource(_TOPIC, ("topics", topic.name), topic, replication_factor=replicas)


def _partition_fields(links: Links, partition: _Partition) -> Mapping[str, Any]:
    pieces = partition.pieces
    leader = None if partition.leader is None else links.link(*pieces, "replicas", partition.leader)
    return links.resource(_PARTITION, pieces, partition, leader=leader)


def _replica_fields(links: Links, partition: _Partition, broker_id: int) -> Mapping[str, Any]:
    return links.resource(
        _REPLICA,
        (*partition.pieces, "replicas", broker_id),
        partition,
        broker_id=broker_id,
        is_leader=broker_id == partition.leader,
        is_in_sync=broker_id in partition.in_sync,
        broker=links.link("brokers", broker_id),
    )


_PARTITION_PATH = TOPIC_PATH + "/partitions/{partition_id}"
_OF_BROKER_PATH = CLUSTER_PATH + "/brokers/{broker_id}/partition-replicas"

ROUTES = tagged(
    TAG,
    route("GET", TOPICS_PATH, _list, answers_json(_TOPIC.list_schema)),
    route(
        "POST",
        TOPICS_PATH,
        _create,
        {
            201: Answer(description="Created.", schema=_TOPIC.schema),
            200: Answer(description="It could be created (validate_only).", schema=_TOPIC.schema),
        },
        body=_NEW_TOPIC,
    ),
    route("GET", TOPIC_PATH, _get, answers_json(_TOPIC.schema)),
    route("DELETE", TOPIC_PATH, _delete, no_content("Gone for clients.")),
    route("PATCH", TOPIC_PATH, _grow, answers_json(_TOPIC.schema), body=_PARTITIONS_COUNT),
    route("GET", TOPIC_PATH + "/partitions", _partitions, answers_json(_PARTITION.list_schema)),
    route("GET", _PARTITION_PATH, _partition, answers_json(_PARTITION.schema)),
    route("GET", _PARTITION_PATH + "/replicas", _replicas, answers_json(_REPLICA.list_schema)),
    route("GET", _PARTITION_PATH + "/replicas/{broker_id}", _replica, answers_json(_REPLICA.schema)),
    route("GET", _OF_BROKER_PATH, _replicas_of_broker, answers_json(_REPLICA.list_schema)),
)
