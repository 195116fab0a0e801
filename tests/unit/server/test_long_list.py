"""A long list over HTTP goes out in parts, as it is made, and a short one in one piece with its length."""

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import ClientPayloadError, ClientSession, web
from aiohttp.test_utils import TestServer, make_mocked_request

from tests.support.counted_turns import counted_turns
from tiered.server.http.door.keys import SERVICE, Service
from tiered.server.http.door.limits import REQUESTS, RequestsState, limited
from tiered.server.http.messages.long_list import PART_CHARS, json_with_list
from tiered.server.http.messages.route import route

Items = Callable[[], Iterator[Mapping[str, Any]]]


@asynccontextmanager
async def served(
    items: Items, fields: Mapping[str, Any], *, timeout_ms: int = 30_000
) -> AsyncIterator[tuple[ClientSession, str]]:
    async def listed(request: web.Request) -> web.StreamResponse:
        return await json_with_list(request, fields, "items", items())

    settings = SimpleNamespace(tiered_http_request_timeout_ms=timeout_ms, tiered_http_max_requests=10)
    app = web.Application()
    app[SERVICE] = cast("Service", SimpleNamespace(settings=SimpleNamespace(http=settings)))
    app[REQUESTS] = RequestsState()
    app.router.add_get("/", limited(route("GET", "/", listed, {})))
    async with TestServer(app) as server, ClientSession() as client:
        yield client, str(server.make_url("/"))


@pytest.mark.parametrize("count", [0, 1, 2, 10_000])
@pytest.mark.parametrize("fields", [{}, {"kind": "List", "next": None}])
async def test_it_is_the_json_of_the_whole(count: int, fields: Mapping[str, Any]) -> None:
    items = [{"number": number, "text": "é" * 20} for number in range(count)]
    async with served(lambda: iter(items), fields) as (client, url), client.get(url) as answer:
        assert await answer.json() == {**fields, "items": items}
        assert answer.content_type == "application/json"
        assert ("Content-Length" in answer.headers) == (count < 10_000)


async def test_head_has_no_body_and_the_connection_goes_on() -> None:
    async with served(lambda: ({"number": number} for number in range(10_000)), {}) as (client, url):
        for _ in range(2):
            async with client.head(url) as answer:
                assert (answer.status, await answer.read()) == (200, b"")
        async with client.get(url) as answer:
            assert len((await answer.json())["items"]) == 10_000


async def test_no_more_is_made_than_the_client_reads() -> None:
    made = 0

    def endless() -> Iterator[Mapping[str, Any]]:
        nonlocal made
        while True:
            made += 1
            yield {"text": "x" * 1000}

    async with served(endless, {}) as (client, url), client.get(url) as answer:
        read = 0
        while read < 4 * PART_CHARS:
            read += len(await answer.content.readany())
        assert made < 50_000, "what lies in the buffers of both sides"


async def test_one_that_fails_in_the_middle_is_broken_off() -> None:
    def failing() -> Iterator[Mapping[str, Any]]:
        for _ in range(1000):
            yield {"text": "x" * 1000}
        raise OSError("the disk")

    async with served(failing, {}) as (client, url), client.get(url) as answer:
        with pytest.raises(ClientPayloadError):
            await answer.read()


async def test_who_reads_gets_all_of_it_however_long_it_takes() -> None:
    def slow() -> Iterator[Mapping[str, Any]]:
        for _ in range(120):
            time.sleep(0.005)
            yield {"text": "x" * PART_CHARS}

    async with served(slow, {}, timeout_ms=500) as (client, url), client.get(url) as answer:
        assert len((await answer.json())["items"]) == 120


async def test_what_is_left_out_of_a_list_is_walked_over_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client may see none of 100,000 topics."""
    monkeypatch.setattr("tiered.runtime.TURN_MS", -1.0)
    request = make_mocked_request("GET", "/")
    turns, answer = await counted_turns(json_with_list(request, {}, "items", iter([None] * 100)))
    assert isinstance(answer, web.Response)
    assert (answer.text, turns >= 100) == ('{"items": []}', True)
