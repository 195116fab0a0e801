"""When another broker counts as silent: only after two questions without an answer."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tiered.config import BrokerSettings
from tiered.metrics import CountersState
from tiered.server.http.door.keys import BROKER
from tiered.server.http.neighbours import forward
from tiered.server.http.neighbours.forward import CONNECTIONS, Connections, Neighbour, Reply, ask_twice

PATH = "/api/v1/cluster"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "TWO_QUESTIONS_S", 1.0)
    monkeypatch.setattr(forward, "SECOND_QUESTION_AFTER_S", 0.1)
    monkeypatch.setattr(forward, "PAUSE_AFTER_FAILURE_S", 0.0)


async def at_once(_: web.Request) -> web.Response:
    return web.json_response({"version": "1"})


async def late(_: web.Request) -> web.Response:
    await asyncio.sleep(0.3)
    return web.json_response({"version": "1"})


async def never(_: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def lost(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def refused(_: web.Request) -> web.Response:
    return web.json_response({"message": "too many requests"}, status=429)


async def reply_of(first: Handler, second: Handler) -> Reply:
    """The reply of a broker that answers the two questions like this."""
    app = web.Application()
    app.router.add_get(PATH, first)
    app.router.add_get("/healthz", second)
    server = TestServer(app, host="127.0.0.1")
    connections = Connections()
    try:
        await server.start_server()
        return await ask_twice(request(connections), neighbour(server), PATH)
    finally:
        await connections.close()
        await server.close()


class _Request(dict[Any, Any]):
    """A client's request as far as a question between brokers looks at it."""

    app: dict[Any, Any]
    headers: dict[str, str]
    scheme = "http"

    def get_extra_info(self, _: str) -> None:
        return None


def request(connections: Connections) -> Any:
    broker = SimpleNamespace(
        broker_id=1,
        counters=CountersState(),
        settings=BrokerSettings(),
        access=SimpleNamespace(rights=lambda *_: None),
        authentication=SimpleNamespace(own_http_login=dict),
    )
    made = _Request()
    made.app, made.headers = {BROKER: broker, CONNECTIONS: connections}, {"Host": "127.0.0.1"}
    return made


def neighbour(server: TestServer) -> Neighbour:
    return Neighbour(broker_id=2, http_host=server.host, http_port=server.port)


async def test_an_answer_that_takes_longer_than_the_first_wait_counts() -> None:
    assert await reply_of(late, never) == Reply(content={"version": "1"}, is_silent=False)


@pytest.mark.parametrize("first", [never, lost, refused], ids=["late", "lost", "refused"])
async def test_one_missed_answer_makes_no_broker_silent(first: Handler) -> None:
    assert await reply_of(first, at_once) == Reply(content=None, is_silent=False)


@pytest.mark.parametrize("both", [never, lost], ids=["hangs", "breaks off"])
async def test_a_broker_that_answers_neither_question_is_silent(both: Handler) -> None:
    assert await reply_of(both, both) == Reply(content=None, is_silent=True)
