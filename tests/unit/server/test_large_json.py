"""A large body of JSON is parsed and checked beside the event loop, one at a time."""

import asyncio
import json
import time

import pytest
from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from tiered.errors import InvalidRequest
from tiered.server.http.messages import schema
from tiered.server.http.messages.body import MAX_BODY_BYTES
from tiered.server.http.messages.parameters import LARGE_BODY_TURN, json_of

NAMES = schema.record({"names": schema.array(schema.text(), max_items=10_000)})
MOST_CPU_S = 0.015


def app() -> web.Application:
    made = web.Application()
    made[LARGE_BODY_TURN] = asyncio.Semaphore(1)
    return made


def request(made: web.Application, body: bytes) -> web.Request:
    payload = StreamReader(BaseProtocol(asyncio.get_running_loop()), 2 * len(body))
    payload.feed_data(body)
    payload.feed_eof()
    return make_mocked_request("POST", "/", app=made, payload=payload)


async def test_a_large_body_takes_little_of_the_event_loop() -> None:
    """3.5 MB were 60 ms of it in one step."""
    body = json.dumps({"names": [f"{number:0100}" for number in range(9_000)]}).encode()
    assert MAX_BODY_BYTES * 0.8 < len(body) < MAX_BODY_BYTES
    made, taken_s = app(), []
    for _ in range(3):
        started_s = time.thread_time()
        value = await json_of(request(made, body), NAMES)
        taken_s.append(time.thread_time() - started_s)
        assert len(value["names"]) == 9_000
    assert min(taken_s) < MOST_CPU_S


async def test_of_large_bodies_one_is_read_at_a_time_and_small_ones_go_ahead() -> None:
    made = app()
    large = json.dumps({"names": ["x" * 100] * 900}).encode()
    async with made[LARGE_BODY_TURN]:
        waits = asyncio.ensure_future(json_of(request(made, large), NAMES))
        assert await json_of(request(made, b'{"names": []}'), NAMES) == {"names": []}
        await asyncio.sleep(0.05)
        assert not waits.done()
    assert len((await waits)["names"]) == 900
    with pytest.raises(InvalidRequest):
        await json_of(request(made, large[:-1]), NAMES)
