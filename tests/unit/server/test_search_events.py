"""The events of a search are made step by step."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tests.support.counted_turns import counted_turns
from tiered.broker.context import BrokerState
from tiered.broker.partitions.topics import Topic, Topics
from tiered.broker.people.record_search import Step
from tiered.broker.security.access import Access
from tiered.config import BrokerSettings, TopicConfig
from tiered.ids import TopicId
from tiered.server.http.api import search
from tiered.server.http.door.keys import BROKER

MATCHES = 100


async def test_the_ids_of_many_matches_in_many_partitions_are_made_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    topics, settings = Topics(), BrokerSettings()
    topic = Topic(
        name="t", topic_id=TopicId(uuid4()), partition_count=9, config=TopicConfig(), overrides={}, partitions=()
    )
    topics.put(topic)
    state = BrokerState(settings=settings, serving=True)
    broker: Any = SimpleNamespace(topics=topics, state=state, access=Access(state=state), settings=settings)
    app = web.Application()
    app[BROKER] = broker
    written: list[bytes] = []

    async def write(data: bytes) -> None:
        written.append(data)

    async def write_eof() -> None:
        written.append(b"")

    response: Any = SimpleNamespace(write=write, write_eof=write_eof)
    transport = asyncio.Transport({"peername": ("127.0.0.1", 9)})
    stream = search._Stream(
        make_mocked_request("GET", "/", app=app, transport=transport),
        response,
        topic,
        range(9),
        dict.fromkeys(range(9), 5),
    )
    steps: asyncio.Queue[Step | None] = asyncio.Queue()
    steps.put_nowait(Step(records=tuple((3, offset, b"{}") for offset in range(5, 5 + MATCHES)), places={}))
    steps.put_nowait(None)
    monkeypatch.setattr("tiered.runtime.TURN_MS", -1.0)
    turns, _ = await counted_turns(stream.run(steps, 2 * MATCHES))
    lines = b"".join(written).split(b"\n")
    assert lines.count(b"event: match") == MATCHES
    assert lines[1] == b"id: 0:5,1:5,2:5,3:6,4:5,5:5,6:5,7:5,8:5"
    assert turns >= MATCHES
