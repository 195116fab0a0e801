"""Limits on requests in progress: an answer that is not read in time is broken off, not followed by another one."""

import asyncio
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

from aiohttp import web
from aiohttp.test_utils import TestServer

from tiered.server.http.app import _errors_as_json
from tiered.server.http.door.keys import SERVICE, Service
from tiered.server.http.door.limits import REQUESTS, RequestsState, limited
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.route import Route


async def test_an_answer_that_is_not_read_in_time_is_broken_off() -> None:
    def endless() -> Iterator[Mapping[str, Any]]:
        while True:
            yield {"text": "x" * 1000}

    async def listed(request: web.Request) -> web.StreamResponse:
        return await json_with_list(request, {}, "items", endless())

    http = SimpleNamespace(tiered_http_max_requests=10, tiered_http_request_timeout_ms=300)
    app = web.Application(middlewares=[_errors_as_json])
    app[SERVICE] = cast(Service, SimpleNamespace(settings=SimpleNamespace(http=http)))
    app[REQUESTS] = RequestsState()
    app.router.add_get("/", limited(Route(method="GET", path="/", handler=listed, summary="", answers={})))
    async with TestServer(app) as server:
        reader, writer = await asyncio.open_connection(server.host, server.port, limit=1 << 16)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readexactly(1000)
        while app[REQUESTS].bounded:
            await asyncio.sleep(0.01)
        read = bytearray()
        try:
            async with asyncio.timeout(10):
                while data := await reader.read(1 << 16):
                    read += data
        except ConnectionResetError:
            pass
        assert b"HTTP/1.1" not in read, "one answer in the middle of another one"
        writer.close()
