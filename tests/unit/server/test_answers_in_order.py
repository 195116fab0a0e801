"""A connection handles requests while earlier answers wait for others, and answers in the order of the requests."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from tiered.errors import RequestTimedOut
from tiered.server.kafka.buffers import BufferPool
from tiered.server.kafka.connection import Connection
from tiered.server.kafka.frame_handler import Answer, Overlapping
from tiered.server.kafka.outbox import Parts
from tiered.server.kafka.requests import MAX_OVERLAPPING, MAX_WAITING_BYTES


class Echo:
    """Answers a frame with itself: at once, or for 'wait…' when it is let go, or 'hold…' with nothing beside it.

    'both…' is let go twice: it holds up the next requests until the first time, and only waits until the second.
    """

    max_frame_bytes = max_other_frame_bytes = 1 << 20
    unsent_bytes = 0

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self.handled: list[bytes] = []
        self.gates: dict[bytes, asyncio.Future[None]] = {}
        self.ended = False

    def handle(self, connection: Connection, buffer: memoryview, position: int, end: int) -> Answer:
        frame = bytes(buffer[position:end])
        self.handled.append(frame)
        if frame.startswith(b"wait"):
            return Overlapping(self._later(frame))
        if frame.startswith(b"hold"):
            return self._later(frame)
        if frame.startswith(b"both"):
            return self._twice(frame)
        return None if frame.startswith(b"none") else [struct.pack(">i", len(frame)) + frame]

    async def _later(self, frame: bytes) -> Parts | None:
        gate = self.gates[frame] = asyncio.get_running_loop().create_future()
        await gate
        return [struct.pack(">i", len(frame)) + frame]

    async def _twice(self, frame: bytes) -> Overlapping:
        gate = self.gates[frame] = asyncio.get_running_loop().create_future()
        await gate
        return Overlapping(self._later(frame))

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._group.create_task(work)

    def closed(self, connection: Connection) -> None:
        self.ended = True

    def may_grow(self, size_bytes: int) -> bool:
        return True

    def make_room(self) -> None: ...

    def complain(self, text: str, *arguments: object) -> None: ...


class Client:
    def __init__(self, sock: socket.socket, echo: Echo) -> None:
        self._socket = sock
        self.echo = echo

    async def send(self, *frames: bytes) -> None:
        data = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def answers(self, count: int) -> list[bytes]:
        return [await self._answer() for _ in range(count)]

    async def _answer(self) -> bytes:
        (length,) = struct.unpack(">i", await self._exactly(4))
        return await self._exactly(length)

    async def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = await asyncio.get_running_loop().sock_recv(self._socket, length - len(data))
            assert piece, "the connection ended"
            data += piece
        return data

    async def handled(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.echo.handled) < count:
                await asyncio.sleep(0.001)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    listening = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listening.getsockname())
    far, _ = listening.accept()
    near.setblocking(False)
    async with asyncio.TaskGroup() as group:
        echo = Echo(group)
        connection = Connection(far, echo, BufferPool(), "test", 0.0)
        yield Client(near, echo)
        connection.close()
    near.close()
    listening.close()


async def test_later_requests_are_handled_and_answered_after_those_that_wait(client: Client) -> None:
    await client.send(b"wait 1", b"wait 2", b"now", b"none", b"last")
    await client.handled(5)
    client.echo.gates[b"wait 2"].set_result(None)
    await asyncio.sleep(0.01)
    client.echo.gates[b"wait 1"].set_result(None)
    assert await client.answers(4) == [b"wait 1", b"wait 2", b"now", b"last"]


async def test_a_request_that_may_not_be_overtaken_holds_up_the_next_one(client: Client) -> None:
    await client.send(b"wait", b"hold", b"after")
    await client.handled(2)
    await asyncio.sleep(0.01)
    assert client.echo.handled == [b"wait", b"hold"]
    client.echo.gates[b"hold"].set_result(None)
    await client.handled(3)
    client.echo.gates[b"wait"].set_result(None)
    assert await client.answers(3) == [b"wait", b"hold", b"after"]


async def test_a_request_may_hold_up_the_next_one_for_its_first_part_alone(client: Client) -> None:
    await client.send(b"both 1", b"both 2", b"now")
    await client.handled(1)
    await asyncio.sleep(0.01)
    for number in (1, 2):
        assert client.echo.handled == [b"both 1", b"both 2"][:number]
        client.echo.gates.pop(b"both %d" % number).set_result(None)
        await client.handled(number + 1)
        await asyncio.sleep(0.01)
    client.echo.gates[b"both 2"].set_result(None)
    await asyncio.sleep(0.01)
    client.echo.gates[b"both 1"].set_result(None)
    assert await client.answers(3) == [b"both 1", b"both 2", b"now"]


async def test_no_more_than_so_many_answers_wait(client: Client) -> None:
    frames = [b"wait %d" % number for number in range(MAX_OVERLAPPING + 10)]
    await client.send(*frames)
    await client.handled(MAX_OVERLAPPING)
    await asyncio.sleep(0.01)
    assert len(client.echo.handled) == MAX_OVERLAPPING
    for number, frame in enumerate(frames):
        await client.handled(min(MAX_OVERLAPPING + number, len(frames)))
        while frame not in client.echo.gates:
            await asyncio.sleep(0)
        client.echo.gates[frame].set_result(None)
        assert await client.answers(1) == [frame]


async def test_answers_that_are_known_count_among_those_that_wait(client: Client) -> None:
    frames = [b"now %d" % number for number in range(MAX_OVERLAPPING + 10)]
    await client.send(b"wait", *frames)
    await client.handled(MAX_OVERLAPPING)
    await asyncio.sleep(0.01)
    assert len(client.echo.handled) == MAX_OVERLAPPING
    client.echo.gates[b"wait"].set_result(None)
    assert await client.answers(1 + len(frames)) == [b"wait", *frames]


async def test_no_more_than_so_many_bytes_of_answers_wait(client: Client) -> None:
    frames = [b"now %d" % number + bytes(MAX_WAITING_BYTES // 2) for number in range(6)]
    sending = asyncio.create_task(client.send(b"wait", *frames))
    await client.handled(3)
    await asyncio.sleep(0.01)
    assert len(client.echo.handled) == 3
    client.echo.gates[b"wait"].set_result(None)
    assert await client.answers(1 + len(frames)) == [b"wait", *frames]
    await sending


async def test_an_answer_that_fails_ends_the_connection_and_all_that_wait(client: Client) -> None:
    await client.send(b"wait 1", b"wait 2")
    await client.handled(2)
    client.echo.gates[b"wait 2"].set_exception(RequestTimedOut("no"))
    with pytest.raises((AssertionError, ConnectionError)):
        await client.answers(1)
    assert client.echo.ended
    assert client.echo.gates[b"wait 1"].cancelled()
