"""`/api/v1/snapshots` and `/api/v1/pins`: ranges of offsets that retention must leave.

They are in SQL, so these answer 503 while it is away. Any broker takes them; how far partitions are committed, it asks
their leaders.
"""

from typing import Any
from uuid import UUID

from aiohttp import web

from tiered.broker.partitions.topics import Topic
from tiered.broker.tiering.pins import MAX_SNAPSHOT_TTL_MS, AskedRange, PinRow, no_pin, no_snapshot
from tiered.errors import InvalidRequest, PinNotFound, TopicNotAuthorized
from tiered.rules.security.acl import Operation, ResourceType
from tiered.server.http.api.partition_facts import facts_of
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.rights import may_see_topic, require, rights_of
from tiered.server.http.messages import schema
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.parameters import PIN, SNAPSHOT, json_of, query_text
from tiered.server.http.messages.route import Answer, answers_json, no_content, route, tagged
from tiered.server.http.neighbours.forward import Unreachable

TAG = "snapshots"
MAX_PARTITIONS = 10_000
_OF_TOPIC = query_text("topic", "Those of this topic alone.", max_length=249)
_ASKED = schema.array(
    schema.input_record(
        {
            "partition": schema.integer(maximum=schema.INT_MAX),
            "start_offset": schema.integer("Where its log starts, if absent."),
            "end_offset": schema.integer("The first offset that is not held; what is committed now, if absent."),
        },
        optional=("start_offset", "end_offset"),
    ),
    "All partitions with all they have, if absent.",
    max_items=MAX_PARTITIONS,
)
_OWNER = schema.text("Who it is for, in words for people.", maxLength=249)
_TOPIC_NAME = schema.text(minLength=1, maxLength=249)
_NEW_SNAPSHOT = schema.input_record(
    {
        "name": schema.text("1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'.", minLength=1, maxLength=249),
        "topic": _TOPIC_NAME,
        "owner": _OWNER,
        "ttl_ms": schema.integer("It is for good if absent.", minimum=1, maximum=MAX_SNAPSHOT_TTL_MS),
        "partitions": _ASKED,
    },
    optional=("owner", "ttl_ms", "partitions"),
)
_TTL = schema.integer("5 minutes if absent; tiered.pin.max.ttl.ms at the most.", minimum=1)
_NEW_PIN = schema.input_record(
    {"topic": _TOPIC_NAME, "owner": _OWNER, "ttl_ms": _TTL, "partitions": _ASKED},
    optional=("owner", "ttl_ms", "partitions"),
)
_RENEWAL = schema.input_record({"ttl_ms": _TTL}, optional=("ttl_ms",))
_RANGE = schema.Form(
    {
        "partition": schema.integer(),
        "start_offset": schema.integer(),
        "end_offset": schema.integer("The first offset that is not held."),
    },
)
_FIELDS: dict[str, schema.Field] = {
    "topic": schema.text(),
    "topic_id": (schema.text(), lambda row: str(row.topic_id)),
    "owner": schema.text(),
    "created_at_ms": schema.integer("By the database's clock."),
}
_RANGES = _RANGE.many("ranges")
_SNAPSHOT = schema.Form(
    {
        "name": schema.text(),
        **_FIELDS,
        "expires_at_ms": schema.nullable(schema.integer("By the database's clock; null: never.")),
        "partitions": _RANGES,
    }
)
_PIN = schema.Form(
    {
        "pin_id": (schema.text(), lambda row: str(row.pin_id)),
        **_FIELDS,
        "expires_at_ms": schema.integer("By the database's clock."),
        "partitions": _RANGES,
    }
)


async def snapshots(request: web.Request) -> web.StreamResponse:
    """Every snapshot with what it holds."""
    return await _list(request, "snapshots", named=True)


async def _list(request: web.Request, name: str, *, named: bool) -> web.StreamResponse:
    found = await request.app[BROKER].pins.list_live(named=named, topic=_asked_topic(request))
    return await json_with_list(
        request, {}, name, (_fields(each) for each in found if may_see_topic(request, each.topic))
    )


async def create_snapshot(request: web.Request) -> web.Response:
    """Hold what a topic has now, under a name, until the snapshot is deleted."""
    body = await json_of(request, _NEW_SNAPSHOT)
    broker = request.app[BROKER]
    # Records that a snapshot holds are neither deleted nor retained as the topic's configs say.
    require(request, Operation.ALTER, ResourceType.TOPIC, body["topic"])
    topic = broker.topics.by_name(body["topic"])
    made = await broker.pins.take(topic, name=body["name"], **await _what_to_hold(request, topic, body))
    return web.json_response(_fields(made), status=201)


async def snapshot(request: web.Request) -> web.Response:
    """One snapshot."""
    found = await request.app[BROKER].pins.load_snapshot(SNAPSHOT.of(request))
    _require_of(request, Operation.DESCRIBE, found, no_snapshot(SNAPSHOT.of(request)))
    return web.json_response(_fields(found))


async def delete_snapshot(request: web.Request) -> web.Response:
    """Delete a snapshot: retention may take what it held."""
    pins, name = request.app[BROKER].pins, SNAPSHOT.of(request)
    if rights_of(request) is not None:
        _require_of(request, Operation.ALTER, await pins.load_snapshot(name), no_snapshot(name))
    await pins.delete_snapshot(name)
    return web.Response(status=204)


async def pins(request: web.Request) -> web.StreamResponse:
    """Every pin with what it holds."""
    return await _list(request, "pins", named=False)


async def take_pin(request: web.Request) -> web.Response:
    """Hold offsets of a topic while something reads them."""
    body = await json_of(request, _NEW_PIN)
    broker = request.app[BROKER]
    require(request, Operation.READ, ResourceType.TOPIC, body["topic"])
    topic = broker.topics.by_name(body["topic"])
    taken = await broker.pins.take(topic, **await _what_to_hold(request, topic, body))
    return web.json_response(_fields(taken), status=201)


async def pin(request: web.Request) -> web.Response:
    """One pin."""
    found = await request.app[BROKER].pins.load(_pin_id(request))
    _require_of(request, Operation.READ, found, no_pin(_pin_id(request)))
    if found.name is not None:
        raise PinNotFound(f"{found.pin_id} is snapshot {found.name}, and no pin")
    return web.json_response(_fields(found))


async def renew_pin(request: web.Request) -> web.Response:
    """Renew a pin: it holds for ttl_ms from now. A renewal never shortens."""
    body = await json_of(request, _RENEWAL)
    await _require_pin(request)
    renewed = await request.app[BROKER].pins.renew(_pin_id(request), ttl_ms=body.get("ttl_ms"))
    return web.json_response(_fields(renewed))


async def release_pin(request: web.Request) -> web.Response:
    """Give a pin up."""
    await _require_pin(request)
    await request.app[BROKER].pins.release(_pin_id(request))
    return web.Response(status=204)


async def _require_pin(request: web.Request) -> None:
    """A principal that may read the topic may also hold, extend and end its pins. Raises NotAuthorized, PinNotFound."""
    if rights_of(request) is not None:
        found = await request.app[BROKER].pins.load(_pin_id(request))
        _require_of(request, Operation.READ, found, no_pin(_pin_id(request)))


def _require_of(request: web.Request, operation: Operation, row: PinRow, missing: PinNotFound) -> None:
    """Raises TopicNotAuthorized, which does not tell the topic's name; and `missing` to who may not know that there is
    the topic, as if there were nothing."""
    try:
        require(request, operation, ResourceType.TOPIC, row.topic)
    except TopicNotAuthorized:
        if not may_see_topic(request, row.topic):
            raise missing from None
        raise TopicNotAuthorized(f"not allowed: the right {operation.name} on its topic is missing") from None


def _pin_id(request: web.Request) -> UUID:
    text = PIN.of(request)
    try:
        return UUID(text)
    except ValueError:
        raise PinNotFound(f"{text!r} is no pin's id: it is a UUID, as the answer to taking one has it") from None


def _asked_topic(request: web.Request) -> Topic | None:
    name = _OF_TOPIC.find(request)
    if name is None:
        return None
    require(request, Operation.DESCRIBE, ResourceType.TOPIC, name)
    return request.app[BROKER].topics.by_name(name)


def _asked_ranges(body: dict[str, Any]) -> tuple[AskedRange, ...] | None:
    asked = body.get("partitions")
    if asked is None:
        return None
    if not asked:
        raise InvalidRequest("partitions is empty: name some, or leave it away for all")
    if len({each["partition"] for each in asked}) != len(asked):
        raise InvalidRequest("a partition stands twice in partitions: name it once")
    return tuple(AskedRange(**each) for each in asked)


async def _what_to_hold(request: web.Request, topic: Topic, body: dict[str, Any]) -> dict[str, Any]:
    """The fields that snapshots and pins share."""
    return {
        "owner": body.get("owner", ""),
        "ttl_ms": body.get("ttl_ms"),
        "asked": _asked_ranges(body),
        "high_watermarks": await _high_watermarks(request, topic),
    }


async def _high_watermarks(request: web.Request, topic: Topic) -> dict[int, int]:
    """How far every partition is committed, told by its leader. Raises Unreachable where that does not answer."""
    found = {}
    for each in await facts_of(request, topic):
        if each["told_by"] is None or each["told_by"] != each["leader"]:
            raise Unreachable(
                f"the leader of {topic.name}-{each['partition']} does not answer, so nobody knows how far it is "
                "committed; try again in a moment"
            )
        found[each["partition"]] = each["high_watermark"]
    return found


def _fields(row: PinRow) -> dict[str, Any]:
    return (_PIN if row.name is None else _SNAPSHOT).of(row)


ROUTES = tagged(
    TAG,
    route(
        "GET",
        "/api/v1/snapshots",
        snapshots,
        answers_json(schema.record({"snapshots": schema.array(_SNAPSHOT.schema)}, is_open=True)),
        _OF_TOPIC,
    ),
    route(
        "POST",
        "/api/v1/snapshots",
        create_snapshot,
        {201: Answer(description="It holds from now on.", schema=_SNAPSHOT.schema)},
        body=_NEW_SNAPSHOT,
    ),
    route("GET", "/api/v1/snapshots/{snapshot}", snapshot, answers_json(_SNAPSHOT.schema)),
    route("DELETE", "/api/v1/snapshots/{snapshot}", delete_snapshot, no_content("It holds nothing any more.")),
    route(
        "GET",
        "/api/v1/pins",
        pins,
        answers_json(schema.record({"pins": schema.array(_PIN.schema)}, is_open=True)),
        _OF_TOPIC,
    ),
    route(
        "POST",
        "/api/v1/pins",
        take_pin,
        {201: Answer(description="It holds from now on.", schema=_PIN.schema)},
        body=_NEW_PIN,
    ),
    route("GET", "/api/v1/pins/{pin}", pin, answers_json(_PIN.schema)),
    route("PATCH", "/api/v1/pins/{pin}", renew_pin, answers_json(_PIN.schema), body=_RENEWAL),
    route("DELETE", "/api/v1/pins/{pin}", release_pin, no_content("It holds nothing any more.")),
)
