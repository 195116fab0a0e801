"""Long lists in answers: made in turns with everybody else, and sent as they are made.

Must never make a list of thousands at once: that would hold up the event loop, and every producer with it. Nor keep all
of a long one in memory: how much of it a client reads is the client's choice.
"""

import asyncio
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Self

from aiohttp import web

from tiered.runtime import in_turns
from tiered.server.http.messages.route import JSON

PART_CHARS = 64 << 10
"""An answer that is longer has no length in its headers: it is sent in parts of about so much."""
LEAST_BYTES_PER_S = 16 << 10
"""Who reads a long answer faster gets all of it, however long it is."""
DEADLINE: web.RequestKey[asyncio.Timeout] = web.RequestKey("deadline", asyncio.Timeout)
"""Of the request, where it has one."""


async def json_with_list(
    request: web.Request, fields: Mapping[str, Any], name: str, items: Iterable[Mapping[str, Any] | None]
) -> web.StreamResponse:
    """An object of `fields`, and behind them the list `name`, whose items are made one by one. None stands for what is
    left out: between thousands of those there are pauses, too."""
    comma = ", " if fields else ""
    text = f"{json.dumps(fields)[:-1]}{comma}{json.dumps(name)}: ["
    answer: _LongAnswer | None = None
    separator, made, chars = "", [text], 0
    async for item in in_turns(items):
        if item is None:
            continue
        made.append(separator + json.dumps(item))
        separator, chars = ", ", chars + len(made[-1])
        if chars > PART_CHARS:
            answer = answer or await _LongAnswer.begun(request)
            await answer.send(made)
            made, chars = [], 0
    made.append("]}")
    return web.Response(text="".join(made), content_type=JSON) if answer is None else await answer.ended(made)


class _LongAnswer:
    """One that goes out in parts. The request's deadline moves with them: a client may stop reading for as long as any
    request may take, and must read so many bytes a second in all."""

    def __init__(self, request: web.Request) -> None:
        self._response = web.StreamResponse()
        self._response.content_type, self._response.charset = JSON, "utf-8"
        self._is_read = request.method != "HEAD"
        self._deadline = request.get(DEADLINE)
        self._now = asyncio.get_running_loop().time
        end_s = None if self._deadline is None else self._deadline.when()
        self._end_s = math.inf if end_s is None else end_s
        self._patience_s = self._end_s - self._now()

    @classmethod
    async def begun(cls, request: web.Request) -> Self:
        answer = cls(request)
        await answer._response.prepare(request)
        return answer

    async def send(self, made: Iterable[str]) -> None:
        """Returns when the client has taken most of what was sent."""
        if self._is_read:
            data = "".join(made).encode()
            await self._response.write(data)
            self._end_s += len(data) / LEAST_BYTES_PER_S
            if self._deadline is not None:
                self._deadline.reschedule(min(self._end_s, self._now() + self._patience_s))

    async def ended(self, made: Iterable[str]) -> web.StreamResponse:
        await self.send(made)
        await self._response.write_eof()
        return self._response
