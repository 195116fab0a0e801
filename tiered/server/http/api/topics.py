"""`/api/v1/topics`: every topic with its partitions; one with its configs; create, configure, delete.

Reads the cluster's image and what the leaders know, so it answers while SQL is away; what changes something goes
through `admin`, as the same request of Kafka's protocol does.
"""

from collections.abc import Iterator
from typing import Any

from aiohttp import web

from tiered.broker.admin import DEFAULT, MAX_PARTITIONS_A_TOPIC, NewTopic
from tiered.broker.broker import Broker
from tiered.broker.partitions.topics import Topic
from tiered.config import ConfigChange, ConfigOperation
from tiered.errors import InvalidRequest
from tiered.rules.security.acl import Operation, ResourceType
from tiered.runtime import in_turns
from tiered.server.http.api.lookups import topic_of
from tiered.server.http.api.partition_facts import (
    PARTITION,
    TRAFFIC,
    Facts,
    facts_here,
    facts_of,
    is_known_here,
    merged,
)
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.quotas import take_mutations
from tiered.server.http.door.rights import may, may_see_topic, require_create
from tiered.server.http.messages import schema
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.origin import is_forwarded
from tiered.server.http.messages.parameters import json_of, query_flag
from tiered.server.http.messages.route import Answer, answers_json, no_content, route, tagged
from tiered.server.http.neighbours.answering_broker import other_brokers
from tiered.server.http.neighbours.forward import ask_all
from tiered.server.kafka.api.create_topics import check_partitions

TAG = "topics"
MAX_CONFIGS = 100
MAX_CONFIG_NAME_CHARS = 249
_CONFIG_VALUE = schema.one_of(schema.text(maxLength=10_000), schema.number(), schema.boolean())
_CONFIGS = schema.mapping(
    _CONFIG_VALUE,
    "Config names and values.",
    max_properties=MAX_CONFIGS,
    max_name_chars=MAX_CONFIG_NAME_CHARS,
)
_NEW_TOPIC = schema.input_record(
    {
        "name": schema.text("1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'.", minLength=1, maxLength=249),
        "partitions": schema.integer("The broker's default if absent.", minimum=1, maximum=MAX_PARTITIONS_A_TOPIC),
        "replication_factor": schema.integer(minimum=1, maximum=2**15 - 1),
        "configs": _CONFIGS,
        "validate_only": schema.boolean("Check, and create nothing."),
    },
    optional=("partitions", "replication_factor", "configs", "validate_only"),
)
_CONFIG_CHANGES = schema.input_record(
    {
        "set": _CONFIGS,
        "reset": schema.array(
            schema.text(maxLength=MAX_CONFIG_NAME_CHARS), "Configs that go back to default.", max_items=MAX_CONFIGS
        ),
        "validate_only": schema.boolean("Check, and change nothing."),
    },
    optional=("set", "reset", "validate_only"),
)
CONFIG = schema.Form(
    {
        "name": schema.text(),
        "value": schema.nullable(schema.text()),
        "source": (schema.text(), "source.name"),
        "is_default": schema.boolean(),
        "read_only": schema.boolean(),
        "is_sensitive": schema.boolean(),
        "documentation": schema.text(),
        "has_effect": schema.boolean(
            "False for what is accepted and kept because Kafka has it, and does nothing here."
        ),
        "allowed": schema.array(schema.text(), "The only legal words, if there are any."),
        "type": (schema.text(), "type.name"),
    },
)
_RETENTION = (
    (
        "retention_ms",
        "-1: no limit. All four are null without the right to describe the configs.",
        "config.retention_ms",
    ),
    ("retention_bytes", "Of each partition; -1: no limit.", "config.retention_bytes"),
    ("local_retention_ms", "On brokers' disks, as it counts: -2 is resolved.", "config.effective_local_retention_ms"),
    (
        "local_retention_bytes",
        "The same, of each partition; -1: no limit.",
        "config.effective_local_retention_bytes",
    ),
)
_UNTOLD_RETENTION: dict[str, None] = {name: None for name, _, _ in _RETENTION}
_TOPIC_FIELDS: dict[str, schema.Field] = {
    "topic": (schema.text(), "name"),
    "topic_id": (schema.text(), lambda topic: str(topic.topic_id)),
    "internal": (schema.boolean(), "is_internal"),
    "partition_count": schema.integer(),
    "replication_factor": schema.integer(),
    "under_replicated": schema.integer("Partitions with a replica that is not in sync."),
    "offline": schema.integer("Partitions without a leader."),
    "held_back_since_ms": schema.nullable(
        schema.integer("Since when an open transaction has kept readers of committed records waiting in a partition.")
    ),
    "record_count": schema.integer("How many offsets there are: at least as many as records."),
    "local_bytes": schema.integer("On the disk of one broker for each partition; replicas are not added up."),
    "cold_bytes": schema.integer("In the object store."),
    **TRAFFIC,
    "cleanup_policy": (schema.text("delete, compact, or both."), lambda topic: ",".join(topic.config.cleanup_policy)),
    **{name: (schema.nullable(schema.integer(text, minimum=-1)), read) for name, text, read in _RETENTION},
    "tier_records": schema.record(
        {
            "cold": schema.integer("Only in the object store."),
            "both": schema.integer(),
            "overdue": schema.integer("Only on disk, and late."),
            "hot": schema.integer("Only on disk."),
        },
        description="How many offsets are where.",
    ),
    "partitions": schema.array(PARTITION),
}
_TOPIC = schema.Form(_TOPIC_FIELDS, optional=("partitions",))
_WITH_PARTITIONS = query_flag("partitions", "Whether each topic comes with its partitions.", default=True)
_TOPIC_WITH_CONFIGS = schema.Form(_TOPIC_FIELDS, and_then={"configs": schema.array(CONFIG.schema)})


async def topics(request: web.Request) -> web.StreamResponse:
    """Every topic with its partitions and their offsets."""
    broker = request.app[BROKER]
    left_out = () if _WITH_PARTITIONS.of(request) else ("partitions",)
    told = await _told_elsewhere(request)

    def item(topic: Topic) -> dict[str, Any] | None:
        if not may_see_topic(request, topic.name):
            return None
        fields = topic_fields(request, topic, merged(facts_here(broker, topic), told.get(topic.name, {})))
        return {name: fields[name] for name in fields if name not in left_out}

    return await json_with_list(request, {}, "topics", map(item, broker.topics))


async def _told_elsewhere(request: web.Request) -> dict[str, dict[int, list[Facts]]]:
    """The facts that other brokers give of their partitions, by topic and broker. Asks only if there is no replica
    here."""
    broker = request.app[BROKER]
    wanted = set()
    if not is_forwarded(request):
        async for topic in in_turns(broker.topics):
            for row in broker.image.rows_of(topic.topic_id):
                if not is_known_here(broker, topic, row.partition):
                    wanted.add(row.leader)
    asked = [each for each in other_brokers(broker) if each.broker_id in wanted]
    told: dict[str, dict[int, list[Facts]]] = {}
    for broker_id, answer in (await ask_all(request, asked, "/api/v1/topics")).items():
        for each in answer["topics"]:
            told.setdefault(each["topic"], {})[broker_id] = each["partitions"]
    return told


async def topic(request: web.Request) -> web.Response:
    """One topic with its partitions and its configs."""
    return web.json_response(await _with_configs(request, topic_of(request)))


async def create(request: web.Request) -> web.Response:
    """Create a topic."""
    body = await json_of(request, _NEW_TOPIC)
    broker = request.app[BROKER]
    require_create(request, body["name"])
    validate_only = body.get("validate_only", False)
    new = NewTopic(
        name=body["name"],
        partition_count=body.get("partitions", DEFAULT),
        replication_factor=body.get("replication_factor", DEFAULT),
        configs=_config_texts(body.get("configs", {})),
    )
    check_partitions(broker, max(1, new.partition_count))
    if not validate_only:
        take_mutations(request, max(1, new.partition_count))
    made = await broker.admin.create_topic(new, validate_only=validate_only)
    return web.json_response(await _with_configs(request, made), status=200 if validate_only else 201)


async def alter_configs(request: web.Request) -> web.Response:
    """Set or reset configs of a topic, all or nothing.

    All or nothing; answers with the topic's configs afterwards.
    """
    body = await json_of(request, _CONFIG_CHANGES)
    broker = request.app[BROKER]
    altered = topic_of(request)
    wanted = _config_texts(body.get("set", {}))
    reset = body.get("reset", [])
    if len(set(reset)) != len(reset) or not wanted.keys().isdisjoint(reset):
        raise InvalidRequest("a config stands twice; either set it or reset it, once")
    if not wanted and not reset:
        raise InvalidRequest('nothing to change: give {"set": {name: value}} or {"reset": [name]}')
    steps = [ConfigChange(name=name, operation=ConfigOperation.SET, value=value) for name, value in wanted.items()]
    steps += [ConfigChange(name=name, operation=ConfigOperation.DELETE) for name in reset]
    await broker.admin.alter_topic(altered, steps, keep_others=True, validate_only=body.get("validate_only", False))
    return web.json_response(
        {"topic": altered.name, "configs": _configs(broker, broker.topics.by_id(altered.topic_id))}
    )


async def delete(request: web.Request) -> web.Response:
    """Delete a topic; its objects follow after the purge grace."""
    deleted = topic_of(request)
    take_mutations(request, deleted.partition_count)
    await request.app[BROKER].admin.delete_topic(deleted)
    return web.Response(status=204)


def topic_fields(request: web.Request, topic: Topic, partitions: list[Facts]) -> dict[str, Any]:
    """A topic in JSON. `record_count` is what its offsets allow: an upper bound."""
    broker = request.app[BROKER]
    may_see_retention = may(request, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name)
    added_up = {
        name: sum(each[name] for each in partitions) for name in ("under_replicated", "local_bytes", "cold_bytes")
    }
    return _TOPIC.of(
        topic,
        replication_factor=broker.image.replication_factor(topic.topic_id) or topic.replication_factor,
        offline=sum(each["leader"] < 0 for each in partitions),
        held_back_since_ms=min(_held_back_since_ms(partitions), default=None),
        record_count=sum(each["high_watermark"] - each["log_start_offset"] for each in partitions),
        tier_records=_tier_records(partitions),
        partitions=partitions,
        **added_up,
        **_traffic_of(partitions),
        **({} if may_see_retention else _UNTOLD_RETENTION),
    )


def _held_back_since_ms(partitions: list[Facts]) -> Iterator[int]:
    holders = (facts["held_back_by"] for facts in partitions if facts["held_back_by"] is not None)
    return (holder["since_ms"] for holder in holders if holder["since_ms"] is not None)


def _traffic_of(partitions: list[Facts]) -> Facts:
    """The traffic of all these partitions. What one of them does not know is unknown of the whole."""
    if len(partitions) == 1:
        return {name: partitions[0].get(name) for name in TRAFFIC}
    # A leader of an older version does not tell them.
    if not partitions or any(facts.get("records_in_per_s") is None for facts in partitions):
        return dict.fromkeys(TRAFFIC)
    writes_ms = [facts["last_write_ms"] for facts in partitions if facts["last_write_ms"] is not None]
    rates: Facts = {
        name: round(sum(facts[name] for facts in partitions), 3) for name in ("records_in_per_s", "bytes_in_per_s")
    }
    out = [facts["bytes_out_per_s"] for facts in partitions]
    return {
        **rates,
        "bytes_out_per_s": None if None in out else round(sum(out), 3),
        "last_write_ms": max(writes_ms, default=None),
    }


def _tier_records(partitions: list[dict[str, Any]]) -> dict[str, int]:
    """How many offsets of these partitions are only cold, in both tiers, overdue, and only hot."""
    found = {"cold": 0, "both": 0, "overdue": 0, "hot": 0}
    for each in partitions:
        start, end = each["log_start_offset"], each["log_end_offset"]
        cold_end = min(max(each["cold_end_offset"], start), end)
        local_start = min(max(each["local_log_start_offset"], start), cold_end)
        overdue_end = min(max(each["overdue_end_offset"], cold_end), end)
        found["cold"] += local_start - start
        found["both"] += cold_end - local_start
        found["overdue"] += overdue_end - cold_end
        found["hot"] += end - overdue_end
    return found


async def _with_configs(request: web.Request, topic: Topic) -> dict[str, Any]:
    partitions = await facts_of(request, topic)
    broker = request.app[BROKER]
    may_see = may(request, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name)
    configs = _configs(broker, topic) if may_see else []
    return {**topic_fields(request, topic, partitions), "configs": configs}


def _configs(broker: Broker, topic: Topic) -> list[dict[str, Any]]:
    return [CONFIG.of(entry) for entry in broker.admin.describe_topic(topic)]


def _config_texts(given: dict[str, Any]) -> dict[str, str]:
    """Config values may be texts, numbers or true and false, as people write them in JSON."""
    texts = {}
    for name, value in given.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if not text.isprintable():
            raise InvalidRequest(f"{name[:80]!r} has a value with characters that cannot be printed")
        texts[name] = text
    return texts


ROUTES = tagged(
    TAG,
    route(
        "GET",
        "/api/v1/topics",
        topics,
        answers_json(schema.record({"topics": schema.array(_TOPIC.schema)}, is_open=True)),
        _WITH_PARTITIONS,
    ),
    route(
        "POST",
        "/api/v1/topics",
        create,
        {
            201: Answer(description="Created.", schema=_TOPIC_WITH_CONFIGS.schema),
            200: Answer(description="It could be created (validate_only).", schema=_TOPIC_WITH_CONFIGS.schema),
        },
        body=_NEW_TOPIC,
    ),
    route("GET", "/api/v1/topics/{topic}", topic, answers_json(_TOPIC_WITH_CONFIGS.schema)),
    route("DELETE", "/api/v1/topics/{topic}", delete, no_content("Gone for clients.")),
    route(
        "PATCH",
        "/api/v1/topics/{topic}/configs",
        alter_configs,
        answers_json(schema.record({"topic": schema.text(), "configs": schema.array(CONFIG.schema)}, is_open=True)),
        body=_CONFIG_CHANGES,
    ),
)
