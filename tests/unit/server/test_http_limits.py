"""Limits on requests in progress: an answer that is not read in time is broken off, not followed by another one; and
streams give way to those who have none."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from aiohttp import ClientSession, ClientTimeout, web
from aiohttp.test_utils import TestServer

from tiered.account import Account, on_behalf_of
from tiered.server.http.app import _errors_as_json
from tiered.server.http.door.keys import SERVICE, Service
from tiered.server.http.door.limits import REQUESTS, RequestsState, limited
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.route import Handler, Route
from tiered.server.kafka.transport.turns import Stepped, let_others


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


@web.middleware
async def of_who_says_so(request: web.Request, handler: Handler) -> web.StreamResponse:
    step = partial(on_behalf_of, Account(request.headers["Owner"]))
    return await Stepped(cast(Any, handler(request)), step=step, pause=let_others)


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await asyncio.Event().wait()
    return response


Status = Callable[..., Coroutine[Any, Any, int]]


@asynccontextmanager
async def streams(most: int) -> AsyncIterator[tuple[RequestsState, Status]]:
    """What is open, and the status of a stream that an owner asks for: `GET` of a reader, `POST` of a producer."""
    app = web.Application(middlewares=[of_who_says_so])
    app[SERVICE] = cast(
        Service, SimpleNamespace(settings=SimpleNamespace(http=SimpleNamespace(tiered_http_max_streams=most)))
    )
    app[REQUESTS] = state = RequestsState()
    reads = Route(method="GET", path="/", handler=endless, summary="", answers={}, has_deadline=False)
    produces = Route(method="POST", path="/", handler=endless, summary="", answers={}, takes_stream=True)
    app.router.add_get("/", limited(reads))
    app.router.add_post("/", limited(produces))
    server = TestServer(app)
    await server.start_server()

    async def records() -> AsyncIterator[bytes]:
        yield b"{}"
        await asyncio.Event().wait()

    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.close)

        async def status(owner: str, method: str = "GET") -> int:
            session = await stack.enter_async_context(ClientSession(timeout=ClientTimeout(total=30)))
            data = records() if method == "POST" else None
            return (await session.request(method, server.make_url("/"), headers={"Owner": owner}, data=data)).status

        yield state, status


async def test_a_producers_stream_is_not_ended_for_whoever_has_none() -> None:
    """What it had sent and was not answered for would be lost."""
    async with streams(4) as (state, status):
        assert [await status(owner, "POST") for owner in ("a", "a")] == [200, 200]
        assert [await status(owner) for owner in ("b", "c")] == [200, 200]
        assert await status("d") == 429
        assert state.ending is None
        assert state.streams == 4


async def test_whoever_has_no_stream_gets_the_place_of_one_of_whoever_has_most() -> None:
    async with streams(8) as (state, status):
        assert [await status(owner) for owner in ("a", "a", "a", "a", "a")] == [200, 200, 200, 200, 429]
        assert [await status(owner) for owner in ("b", "b", "c", "d")] == [200] * 4
        assert state.streams == 8
        assert [await status(owner) for owner in ("d", "b", "e")] == [429] * 3
        async with asyncio.timeout(10):
            while state.streams == 8:
                await asyncio.sleep(0.01)
        assert {owner: len(streams) for owner, streams in state.streams_of.items()} == {"a": 3, "b": 2, "c": 1, "d": 1}
        assert [await status(owner) for owner in ("a", "e")] == [429, 200]
