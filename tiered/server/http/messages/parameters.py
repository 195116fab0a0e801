"""A request's path, query and body, checked against the parameters that its route declares.

Owns parsing and its errors, for every route: a parameter is read by the object that documents it. Must never
ask the broker anything.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from aiohttp import web

from tiered.errors import InvalidRequest
from tiered.rules.security.sasl.mechanism import MAX_USER_NAME
from tiered.server.http.messages.body import MAX_BODY_BYTES, body_of, check_permission
from tiered.server.http.messages.json_numbers import read_json
from tiered.server.http.messages.schema import INT_MAX, LONG_MAX, Schema, check, without_nulls

LARGE_BODY_BYTES = 16 << 10
LARGE_BODY_TURN: web.AppKey[asyncio.Semaphore] = web.AppKey("large_body_turn", asyncio.Semaphore)
MAX_JSON_DEPTH = 100
MAX_JSON_PIECES = 50_000
"""Strings, commas and beginnings of lists and objects: what a parser spends its time on, and it does so in one step."""
_PIECE = re.compile(rb'[\[{,]|"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_PIECE = bytes(set(range(256)) - set(b'[{,"'))
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,18})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter as the document shows it. `where` is path or query."""

    name: str
    where: str
    schema: Schema
    description: str = ""

    @property
    def is_required(self) -> bool:
        return self.where == "path"

    def text_in(self, request: web.Request) -> str | None:
        """As the client wrote it; None when it is absent. A query parameter that stands twice is refused."""
        if self.where == "path":
            return request.match_info[self.name]
        found = request.query.getall(self.name, [])
        if len(found) > 1:
            raise InvalidRequest(f"{self.name} stands {len(found)} times in the query: give it once")
        return found[0] if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Parameter):
    """A string."""

    def find(self, request: web.Request) -> str | None:
        """The value, or None when the query has none."""
        value = self.text_in(request)
        if value is not None:
            check(value, self.schema, self.name)
        return value

    def of(self, request: web.Request) -> str:
        """The value, or the default that the schema names."""
        value = self.find(request)
        return str(self.schema.get("default", "")) if value is None else value


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeNumber(Parameter):
    """A decimal integer."""

    def find(self, request: web.Request) -> int | None:
        """The value, or None when the query has none."""
        value = self.text_in(request)
        if value is None:
            return None
        if not _WHOLE_NUMBER.match(value):
            least, most = self.schema["minimum"], self.schema["maximum"]
            raise InvalidRequest(f"{self.name} is {value[:20]!r}: it must be a whole number from {least} to {most}")
        number = int(value)
        check(number, self.schema, self.name)
        return number

    def of(self, request: web.Request) -> int:
        """The value, or the default that the schema names."""
        value = self.find(request)
        return int(self.schema["default"]) if value is None else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag(Parameter):
    """`true` or `false`."""

    def of(self, request: web.Request) -> bool:
        value = self.text_in(request)
        if value is None:
            return bool(self.schema.get("default", False))
        if value not in ("true", "false"):
            raise InvalidRequest(f"{self.name} is {value[:20]!r}: it must be true or false")
        return value == "true"


def path_text(name: str, description: str = "", *, max_length: int = 1000) -> Text:
    """A piece of the path. The broker checks the rest."""
    return Text(name=name, where="path", description=description, schema={"type": "string", "maxLength": max_length})


def path_number(name: str, description: str = "", *, maximum: int = INT_MAX) -> WholeNumber:
    schema = {"type": "integer", "minimum": 0, "maximum": maximum}
    return WholeNumber(name=name, where="path", description=description, schema=schema)


def query_text(
    name: str, description: str = "", *, allowed: Sequence[str] = (), default: str | None = None, max_length: int = 1000
) -> Text:
    schema: dict[str, Any] = {"type": "string", "maxLength": max_length}
    if allowed:
        schema = {"type": "string", "enum": list(allowed)}
    if default is not None:
        schema["default"] = default
    return Text(name=name, where="query", description=description, schema=schema)


def query_number(
    name: str, description: str = "", *, minimum: int = 0, maximum: int = LONG_MAX, default: int | None = None
) -> WholeNumber:
    schema: dict[str, Any] = {"type": "integer", "minimum": minimum, "maximum": maximum}
    if default is not None:
        schema["default"] = default
    return WholeNumber(name=name, where="query", description=description, schema=schema)


def query_flag(name: str, description: str = "", *, default: bool = False) -> Flag:
    return Flag(name=name, where="query", description=description, schema={"type": "boolean", "default": default})


TOPIC = path_text("topic", "The topic's name.", max_length=249)
PARTITION = path_number("partition", "The partition's number.")
GROUP = path_text("group", "The group's id.", max_length=32_767)
TRANSACTIONAL_ID = path_text("transactional_id", "The transactional id.", max_length=32_767)
SNAPSHOT = path_text("snapshot", "The snapshot's name.", max_length=249)
PIN = path_text("pin", "The pin's id.", max_length=36)
USER = path_text("user", "The user's name.", max_length=MAX_USER_NAME)
CONSOLE_FOLDER = path_text("folder", "css, img, js or views.", max_length=20)
CONSOLE_FILE = path_text("file", "The file's name.", max_length=100)
# As Confluent names them, under /v3.
CLUSTER_ID = path_text("cluster_id", "The cluster's id, from /v3/clusters.", max_length=80)
TOPIC_NAME = path_text("topic_name", "The topic's name.", max_length=249)
PARTITION_ID = path_number("partition_id", "The partition's number.")
BROKER_ID = path_number("broker_id", "The broker's number.")
GROUP_ID = path_text("consumer_group_id", "The group's id.", max_length=2000)
CONSUMER_ID = path_text("consumer_id", "The member's id.", max_length=2000)
CONFIG_NAME = path_text("name", "The config's name.", max_length=249)
IN_PATHS: Mapping[str, Parameter] = {
    each.name: each
    for each in (
        *(TOPIC, PARTITION, GROUP, TRANSACTIONAL_ID, SNAPSHOT, PIN, USER, CONSOLE_FOLDER, CONSOLE_FILE),
        *(CLUSTER_ID, TOPIC_NAME, PARTITION_ID, BROKER_ID, GROUP_ID, CONSUMER_ID, CONFIG_NAME),
    )
}
"""What stands in braces in the paths of routes."""


async def json_of(
    request: web.Request, schema: Schema, *, max_bytes: int = MAX_BODY_BYTES, keep_nulls: bool = False
) -> Any:
    """The body, parsed and as `schema` has it, without members that are null unless they are kept; InvalidRequest says
    what is wrong."""
    body = await body_of(request, max_bytes)
    if len(body) <= LARGE_BODY_BYTES:
        return _read(body, schema, keep_nulls)
    # In a thread, as large bodies of Kafka's protocol: 3.5 MB in one step of the event loop are 60 ms for everybody.
    async with request.app[LARGE_BODY_TURN]:
        value = await asyncio.to_thread(_read, body, schema, keep_nulls)
    check_permission(request)  # Others' bodies may have taken their turn for a while.
    return value


def _read(body: bytes, schema: Schema, keep_nulls: bool) -> Any:
    value = parsed(body)
    check(value, schema)
    return value if keep_nulls else without_nulls(value)


def parsed(body: bytes) -> Any:
    """The JSON value, its numbers with their text; InvalidRequest where it is none, or holds what JSON cannot: NaN,
    names that stand twice."""
    if not body.strip():
        raise InvalidRequest("the request has no body: send a JSON value")
    _check_pieces(body)
    try:
        value = read_json(body, pairs_hook=_without_doubles)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidRequest(f"the body is no JSON in UTF-8: {error}") from None
    except (RecursionError, ValueError) as error:
        raise InvalidRequest(f"the body is JSON that is not read here: {error}") from None
    _check_depth(value)
    return value


def _check_pieces(body: bytes) -> None:
    if len(body) <= MAX_JSON_PIECES or len(body.translate(None, _NO_PIECE)) <= MAX_JSON_PIECES:
        return
    if any(True for _ in islice(_PIECE.finditer(body), MAX_JSON_PIECES, None)):
        raise InvalidRequest(f"the JSON has more than {MAX_JSON_PIECES} pieces: send fewer, or all of it as one string")


def _check_depth(value: object) -> None:
    """Whatever looks at the value afterwards may call itself for each level."""
    level = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise InvalidRequest(f"the body is nested deeper than {MAX_JSON_DEPTH} levels: send something flatter")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidRequest("a name stands twice in one JSON object")
    return found
