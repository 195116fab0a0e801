"""What of a request is decoded on the event loop is too little for anybody to wait for it."""

import asyncio
import time
from collections.abc import Coroutine, Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tiered.errors import Throttled
from tiered.server.kafka import dispatch as dispatch_module
from tiered.server.kafka.dispatch import LARGE_BODY_BYTES, Api, Dispatch
from tiered.server.kafka.transport.requests import DelayedAnswer
from tiered.server.kafka.transport.turns import STEP_MS
from tiered.wire import frames, messages
from tiered.wire.primitives import varint

MOST_CPU_S = 0.02
LIST_GROUPS, JOIN_GROUP = 16, 11


@pytest.mark.parametrize(
    ("api_key", "version", "before", "item", "after"),
    [
        (LIST_GROUPS, 5, b"", b"\x01", b"\x01\x00"),
        (JOIN_GROUP, 9, b"\x01" + bytes(8) + b"\x01\x00\x01", b"\x01\x01\x00", b"\x00\x00"),
    ],
    ids=["strings", "structures"],
)
def test_the_smallest_items_take_little_time(
    api_key: int, version: int, before: bytes, item: bytes, after: bytes
) -> None:
    """128 KiB of them were 40 to 85 ms in one step."""
    count = (LARGE_BODY_BYTES - 30) // len(item)
    body = before + varint(count + 1) + item * count + after
    decode = messages.request_decoder(api_key, version)
    taken_s = []
    for _ in range(5):
        started_s = time.thread_time()
        decode(body, 0)
        taken_s.append(time.thread_time() - started_s)
    assert min(taken_s) < MOST_CPU_S


async def test_who_sends_requests_ahead_has_no_more_of_them_decoded_in_a_turn_than_others_can_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ms = [0.0]

    def decoder(_key: int, _version: int) -> Any:
        def decode(_body: bytes, _position: int) -> None:
            now_ms[0] += STEP_MS

        return decode

    async def refuses(_context: Any, _request: Any, _reply: Any) -> Any:
        raise AssertionError("not in this turn")

    monkeypatch.setattr(messages, "request_decoder", decoder)
    served = SimpleNamespace(
        clock=SimpleNamespace(monotonic_ms=lambda: now_ms[0]), client_quotas=SimpleNamespace(limits_requests=False)
    )
    dispatch = Dispatch(cast(Any, served), [Api(LIST_GROUPS, "ListGroups", (0, 5), rights="none", handle=refuses)])
    connection = cast(Any, SimpleNamespace(owner="here", principal=None, host="here", client_id=None))
    frame = memoryview(frames.request_header(LIST_GROUPS, 5, 1, None))
    answers: list[Any] = []
    asyncio.get_running_loop().call_soon(
        lambda: answers.append(dispatch.handle(connection, frame, 0, len(frame)))  # Not in a task, as a connection.
    )
    async with asyncio.timeout(5):
        while not answers:
            await asyncio.sleep(0)
    (answer,) = answers
    assert isinstance(answer, DelayedAnswer), "it holds up those behind it"
    answer.cancel()


@pytest.mark.parametrize("huge_bytes", [100, 10])
async def test_one_large_request_of_an_owner_is_decoded_at_a_time_and_none_fills_the_room_of_others(
    monkeypatch: pytest.MonkeyPatch, huge_bytes: int
) -> None:
    """Twenty connections of one user with 8 MB each had everybody else's wait for the four that are decoded at once."""
    may_end, decoded = False, list[bytes]()

    def decode(body: bytes, _position: int) -> Generator[None, None, Any]:
        decoded.append(body[:1])
        while not may_end:
            time.sleep(0.0005)
            yield
        return messages.request(LIST_GROUPS, 5).ListGroupsRequest()

    async def answered(*_: Any, **__: Any) -> list[bytes]:
        return []

    monkeypatch.setattr(messages, "request_decoder_in_pieces", lambda _key, _version: decode)
    monkeypatch.setattr(dispatch_module, "MAX_WAITING_BYTES", 100)
    monkeypatch.setattr(dispatch_module, "HUGE_BODY_BYTES", huge_bytes)
    monkeypatch.setattr(dispatch_module, "HUGE_TURN_S", 0.05)  # The first one never ends: the next one begins then.
    monkeypatch.setattr(Dispatch, "_answer", answered)
    api = Api(LIST_GROUPS, "ListGroups", (0, 5), rights="none", handle=cast(Any, answered))
    dispatch = Dispatch(cast(Any, SimpleNamespace(clock=SimpleNamespace(monotonic_ms=lambda: 0.0))), [api])

    def large(owner: str, size: int) -> Coroutine[Any, Any, Any]:
        context = SimpleNamespace(connection=SimpleNamespace(owner=owner, closed=False), api_version=0)
        return dispatch._answer_large(api, cast(Any, context), 1, owner.encode() * size)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(large("a", 15))
        await asyncio.sleep(0)
        with pytest.raises(Throttled):
            await large("a", 25)
        group.create_task(large("b", 25))
        while len(decoded) < 2:
            await asyncio.sleep(0.001)
        assert decoded == [b"a", b"b"]
        may_end = True
    assert sorted(decoded) == [b"a", b"a", b"a", b"b"]
