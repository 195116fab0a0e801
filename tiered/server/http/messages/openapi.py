"""`/openapi.json`: the routes as an OpenAPI 3.1 document.

Made once from the rows that are served, so that it names exactly those. Owns no route's description.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from tiered import __version__
from tiered.server.http.messages.failures import ERROR
from tiered.server.http.messages.route import JSON, Answer, Route, answers_json, route, tagged
from tiered.server.http.messages.schema import ANYTHING, mapping

DOCUMENT = web.AppKey("openapi", bytes)
_ERROR_ANSWER = {"$ref": "#/components/responses/Error"}


def document_of(routes: Sequence[Route]) -> Mapping[str, Any]:
    """The document for these routes."""
    paths: dict[str, dict[str, Any]] = {}
    for each in routes:
        paths.setdefault(template_of(each.path), {})[each.method.lower()] = _operation(each)
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


def _operation(row: Route) -> Mapping[str, Any]:
    operation: dict[str, Any] = {
        "summary": row.summary,
        "tags": [row.tag],
        "operationId": _operation_id(row),
        "responses": {
            **{str(status): _answer(answer) for status, answer in row.answers.items()},
            "4XX": _ERROR_ANSWER,
            "5XX": _ERROR_ANSWER,
        },
        **row.extra,
    }
    if row.description:
        operation["description"] = row.description
    if row.parameters:
        operation["parameters"] = [
            {
                "name": each.name,
                "in": each.where,
                "required": each.is_required,
                "schema": each.schema,
                **({"description": each.description} if each.description else {}),
            }
            for each in row.parameters
        ]
    if row.body is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": row.body}}}
        if row.body_description:
            operation["requestBody"]["description"] = row.body_description
    return operation


def _operation_id(row: Route) -> str:
    words = [piece.strip("{}").partition(":")[0] for piece in template_of(row.path).split("/") if piece]
    return "_".join([row.method.lower(), *words]).replace("-", "_").replace(".", "_")


def _answer(answer: Answer) -> Mapping[str, Any]:
    if answer.schema is None:
        return {"description": answer.description}
    return {"description": answer.description, "content": {answer.content_type: {"schema": answer.schema}}}


async def _openapi(request: web.Request) -> web.Response:
    """This document."""
    return web.Response(body=request.app[DOCUMENT], content_type=JSON)


ROUTES = tagged(
    "service",
    route("GET", "/openapi.json", _openapi, answers_json(mapping(ANYTHING))),
)
