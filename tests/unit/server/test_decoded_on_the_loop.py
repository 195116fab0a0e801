"""What of a request is decoded on the event loop is too little for anybody to wait for it."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

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
