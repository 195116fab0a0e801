"""Long lists in answers: made in turns with everybody else, and sent as they are made.

Must never make a list of thousands at once: that would hold up the event loop, and every producer with it. Nor keep all
of a long one in memory: how much of it a client reads is the client's choice.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from tiered.runtime import in_turns
from tiered.server.http.messages.route import JSON

PART_CHARS = 64 << 10
"""An answer that is longer has no length in its headers: it is sent in parts of about so much."""


async def json_with_list(
    request: web.Request, fields: Mapping[str, Any], name: str, items: Iterable[Mapping[str, Any]]
) -> web.StreamResponse:
    """An object of `fields`, and behind them the list `name`, whose items are made one by one."""
    comma = ", " if fields else ""
    text = f"{json.dumps(fields)[:-1]}{comma}{json.dumps(name)}: ["
    answer: web.StreamResponse | None = None
    separator, made, chars = "", [text], 0
    async for item in in_turns(items):
        made.append(separator + json.dumps(item))
        separator, chars = ", ", chars + len(made[-1])
        if chars > PART_CHARS:
            answer = answer or await _begun(request)
            await _send(request, answer, made)
            made, chars = [], 0
    made.append("]}")
    if answer is None:
        return web.Response(text="".join(made), content_type=JSON)
    await _send(request, answer, made)
    await answer.write_eof()
    return answer


async def _begun(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    answer.content_type, answer.charset = JSON, "utf-8"
    await answer.prepare(request)
    return answer


async def _send(request: web.Request, answer: web.StreamResponse, made: Iterable[str]) -> None:
    if request.method != "HEAD":
        await answer.write("".join(made).encode())
