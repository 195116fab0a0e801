"""One row of the HTTP door: what is served where, and how the OpenAPI document describes it.

Owns the form of a row. A route that is not described cannot be served, so the document cannot lie. Must never
serve anything itself: `app` does.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web

from tiered.server.http.messages.parameters import IN_PATHS, Parameter
from tiered.server.http.messages.schema import Schema

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

JSON = "application/json"
_IN_BRACES = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One possible answer of a route, besides errors, which are the same everywhere. No schema: no body."""

    description: str
    schema: Schema | None = None
    content_type: str = JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method and a path with their handler. Without `has_deadline` an answer may take as long as its client listens,
    for streams alone; one that `takes_stream` has none while the body goes on without an announced end."""

    method: str
    path: str
    handler: Handler
    summary: str
    answers: Mapping[int, Answer]
    tag: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: Schema | None = None
    body_description: str = ""
    has_deadline: bool = True
    takes_stream: bool = False
    description: str = ""
    extra: Mapping[str, object] = field(default_factory=dict)


def answers_json(schema: Schema, description: str = "As asked.") -> Mapping[int, Answer]:
    """The usual: 200 with a JSON body."""
    return {200: Answer(description=description, schema=schema)}


def route(
    method: str, path: str, handler: Handler, answers: Mapping[int, Answer], *query: Parameter, **more: Any
) -> Route:
    """A row of `Route`. Its summary is the first line of what its handler says of itself; its parameters are those
    that stand in the path, and those of the query."""
    more.setdefault("summary", (handler.__doc__ or "").partition("\n")[0])
    parameters = (*(IN_PATHS[each] for each in _IN_BRACES.findall(path)), *query)
    return Route(method=method, path=path, handler=handler, answers=answers, parameters=parameters, **more)


def tagged(tag: str, *routes: Route) -> tuple[Route, ...]:
    """These rows under this heading of the document."""
    return tuple(replace(each, tag=tag) for each in routes)


def no_content(description: str) -> Mapping[int, Answer]:
    """204, without a body."""
    return {204: Answer(description=description)}
