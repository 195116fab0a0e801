"""Configs of topics, of a broker and of all brokers, in Confluent's shapes.

The same four requests for each of the three: list, one, set (PUT) and back to default (DELETE), and several at
once (`:alter`), all or nothing. Owns no setting: `config` does.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.config import ConfigChange, ConfigEntry, ConfigOperation
from tiered.errors import InvalidRequest
from tiered.server.http.messages.failures import NoSuchResource
from tiered.server.http.messages.parameters import CONFIG_NAME, json_of
from tiered.server.http.messages.route import Route, answers_json, no_content, route, tagged
from tiered.server.http.messages.schema import (
    Field,
    Form,
    Schema,
    array,
    boolean,
    input_record,
    integer,
    nullable,
    record,
    text,
)
from tiered.server.http.neighbours.answering_broker import broker_elsewhere, handled_by
from tiered.server.http.v3.cluster import broker_of
from tiered.server.http.v3.resources import CLUSTER_PATH, Links, Resource, cluster_of
from tiered.server.http.v3.topics import TOPIC_PATH, topic_of

TAG = "v3 configs"
MAX_STEPS = 200
_VALUE = record({"value": nullable(text("Null goes back to the default.", maxLength=10_000))})
_ALTERATION = input_record(
    {
        "data": array(
            input_record(
                {
                    "name": text(maxLength=249),
                    "value": text(maxLength=10_000),
                    "operation": text("SET if absent.", allowed=("SET", "DELETE")),
                },
                optional=("value", "operation"),
            ),
            max_items=MAX_STEPS,
        ),
        "validate_only": boolean("Check, and change nothing."),
    },
    optional=("validate_only",),
)
_SYNONYM = Form(
    {"name": text(), "value": nullable(text()), "source": (text(), lambda each: f"{each.source.name}_CONFIG")},
    is_open=False,
)
_ENTRY: Mapping[str, Field] = {
    "name": text(),
    "value": nullable(text()),
    "is_default": boolean(),
    "is_read_only": (boolean(), "read_only"),
    "is_sensitive": boolean(),
    "source": (text(), lambda entry: f"{entry.source.name}_CONFIG"),
    "has_effect": boolean("False for what is accepted and kept because Kafka has it, and does nothing here."),
    "synonyms": _SYNONYM.many("synonyms"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Configured:
    """The resource that a path names: its entries, how they are altered, and where it is."""

    pieces: tuple[object, ...]
    owner: Mapping[str, Any]
    entries: Callable[[], Sequence[ConfigEntry]]
    alter: Callable[..., Awaitable[None]]
    """All of the steps, or none; with `validate_only` they are checked alone."""


def _topic(request: web.Request) -> _Configured:
    broker, topic = topic_of(request)
    return _Configured(
        pieces=("topics", topic.name, "configs"),
        owner={"topic_name": topic.name},
        entries=partial(broker.admin.describe_topic, topic),
        alter=partial(broker.admin.alter_topic, topic, keep_others=True),
    )


def _broker(request: web.Request) -> _Configured:
    broker, asked = broker_of(request)
    return _of_brokers(broker, str(asked), ("brokers", asked, "configs"), {"broker_id": asked})


def _all_brokers(request: web.Request) -> _Configured:
    return _of_brokers(cluster_of(request), "", ("broker-configs",), {"config_type": "BROKER"})


def _of_brokers(broker: Broker, name: str, pieces: tuple[object, ...], owner: Mapping[str, Any]) -> _Configured:
    """Of the broker with this number; of all of them without one."""
    return _Configured(
        pieces=pieces,
        owner=owner,
        entries=partial(broker.admin.describe_broker, name),
        alter=partial(broker.admin.alter_broker, name, keep_others=True),
    )


def _fields(links: Links, resource: Resource, configured: _Configured, entry: ConfigEntry) -> dict[str, Any]:
    return links.resource(resource, (*configured.pieces, entry.name), entry, **configured.owner)


def _routes(
    path: str,
    find: Callable[[web.Request], _Configured],
    *,
    what: str,
    kind: str,
    owner: Mapping[str, Schema],
) -> tuple[Route, ...]:
    """The routes of one kind of configs."""
    resource = Resource(kind, {**owner, **_ENTRY})

    async def listed(request: web.Request) -> web.StreamResponse:
        configured, links = find(request), Links(request)
        items = (_fields(links, resource, configured, entry) for entry in configured.entries())
        return await links.listing(resource, configured.pieces, items)

    async def one(request: web.Request) -> web.Response:
        configured, name = find(request), CONFIG_NAME.of(request)
        for entry in configured.entries():
            if entry.name == name:
                return web.json_response(_fields(Links(request), resource, configured, entry))
        raise NoSuchResource(f"config {name!r} cannot be found; the list has the names")

    async def put(request: web.Request) -> web.Response:
        configured, name = find(request), CONFIG_NAME.of(request)
        value = (await json_of(request, _VALUE)).get("value")
        await configured.alter([_step(name, value, None)], validate_only=False)
        return web.Response(status=204)

    async def delete(request: web.Request) -> web.Response:
        configured, name = find(request), CONFIG_NAME.of(request)
        await configured.alter([_step(name, None, "DELETE")], validate_only=False)
        return web.Response(status=204)

    async def alter(request: web.Request) -> web.Response:
        configured = find(request)
        body = await json_of(request, _ALTERATION)
        steps = [_step(each["name"], each.get("value"), each.get("operation")) for each in body["data"]]
        if len({step.name for step in steps}) != len(steps):
            raise InvalidRequest("a config stands twice in the request: give each once")
        await configured.alter(steps, validate_only=body.get("validate_only", False))
        return web.Response(status=204)

    done = no_content("Done.")
    one_path, alter_path = path + "/{name}", path + ":alter"
    all_or_nothing = f"Set or reset several configs of {what}, all or nothing."
    return (
        route("GET", path, listed, answers_json(resource.list_schema), summary=f"Every config of {what}."),
        route("POST", alter_path, alter, done, summary=all_or_nothing, body=_ALTERATION),
        route("GET", one_path, one, answers_json(resource.schema), summary=f"One config of {what}."),
        route("PUT", one_path, put, done, summary=f"Set a config of {what}.", body=_VALUE),
        route("DELETE", one_path, delete, done, summary=f"Reset a config of {what} to its default."),
    )


def _step(name: str, value: str | None, operation: str | None) -> ConfigChange:
    if operation == "DELETE" or (operation is None and value is None):
        return ConfigChange(name=name, operation=ConfigOperation.DELETE)
    if value is None:
        raise InvalidRequest(f"{name[:80]!r} is to be set and has no value")
    if not value.isprintable():
        raise InvalidRequest(f"{name[:80]!r} has a value with characters that cannot be printed")
    return ConfigChange(name=name, operation=ConfigOperation.SET, value=value)


_OF_A_BROKER = _routes(
    CLUSTER_PATH + "/brokers/{broker_id}/configs",
    _broker,
    what="a broker",
    kind="KafkaBrokerConfig",
    owner={"broker_id": integer()},
)
ROUTES = tagged(
    TAG,
    *_routes(TOPIC_PATH + "/configs", _topic, what="a topic", kind="KafkaTopicConfig", owner={"topic_name": text()}),
    # By that broker: its options and static settings are its own.
    *(replace(each, handler=handled_by(broker_elsewhere)(each.handler)) for each in _OF_A_BROKER),
    *_routes(
        CLUSTER_PATH + "/broker-configs",
        _all_brokers,
        what="all brokers",
        kind="KafkaClusterConfig",
        owner={"config_type": text(allowed=("BROKER",))},
    ),
)
