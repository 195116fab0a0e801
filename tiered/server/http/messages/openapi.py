"""`/openapi.json`: the routes as an OpenAPI 3.1 document.

Made once from the rows that are served, so that it names exactly those. Owns no route's description.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from tiered import __version__
from tiered.server.http.messages.failures import ERROR
from tiered.server.http.messages.route import JSON, Answer, Route, answers_json
from tiered.server.http.messages.schema import ANYTHING, mapping

DOCUMENT = web.AppKey("openapi", bytes)
_ERROR_ANSWER = {"$ref": "#/components/responses/Error"}
_SAFE = ("GET", "HEAD")


def document_of(routes: Sequence[Route]) -> Mapping[str, Any]:
    """The document for these routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(template_of(route.path), {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tiered",
            "version": __version__,
            "description": "A Kafka-compatible log with a hot and a cold tier. Errors are the same everywhere.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            "responses": {
                "Error": {
                    "description": "What is wrong, and what to do about it.",
                    "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
                }
            },
        },
    }


def template_of(path: str) -> str:
    """The path as OpenAPI writes it: without the patterns that the router wants."""
    return "/".join(
        piece.partition(":")[0] + "}" if piece.startswith("{") and ":" in piece else piece for piece in path.split("/")
    )


def _operation(route: Route) -> Mapping[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "tags": [route.tag],
        "operationId": _operation_id(route),
        "responses": {
            **{str(status): _answer(answer) for status, answer in route.answers.items()},
            "4XX": _ERROR_ANSWER,
            "5XX": _ERROR_ANSWER,
        },
        **route.extra,
    }
    if route.description:
        operation["description"] = route.description
    if route.parameters:
        operation["parameters"] = [
            {
                "name": each.name,
                "in": each.where,
                "required": each.is_required,
                "schema": each.schema,
                **({"description": each.description} if each.description else {}),
            }
            for each in route.parameters
        ]
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": route.body}}}
        if route.body_description:
            operation["requestBody"]["description"] = route.body_description
    return operation


def _operation_id(route: Route) -> str:
    words = [piece.strip("{}").partition(":")[0] for piece in template_of(route.path).split("/") if piece]
    return "_".join([route.method.lower(), *words]).replace("-", "_").replace(".", "_")


def _answer(answer: Answer) -> Mapping[str, Any]:
    if answer.schema is None:
        return {"description": answer.description}
    return {"description": answer.description, "content": {answer.content_type: {"schema": answer.schema}}}


async def _openapi(request: web.Request) -> web.Response:
    return web.Response(body=request.app[DOCUMENT], content_type=JSON)


ROUTES = (
    Route(
        method="GET",
        path="/openapi.json",
        handler=_openapi,
        tag="service",
        summary="This document.",
        answers=answers_json(mapping(ANYTHING)),
    ),
)
