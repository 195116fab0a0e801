"""Answers to requests that came together go out together, and wait for nothing that is not here."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from tests.unit.server.echo import Client, Echo
from tiered.config.listeners import ListenerOptions
from tiered.server.kafka.transport.buffers import BufferPool
from tiered.server.kafka.transport.connection import GATHERED_ANSWERS, GATHERED_BYTES, Connection
from tiered.server.kafka.transport.requests import Answer


class Counting(socket.socket):
    """A socket that knows how often it was given something to send, and takes nothing when it is full."""

    sends = 0
    is_full = False

    def send(self, *arguments):  # type: ignore[no-untyped-def]
        self._count()
        return super().send(*arguments)

    def sendmsg(self, *arguments):  # type: ignore[no-untyped-def]
        self._count()
        return super().sendmsg(*arguments)

    def _count(self) -> None:
        self.sends += 1
        if self.is_full:
            raise BlockingIOError


class Ending(Echo):
    """Ends the connection when it is asked to, and knows how often it was to make room for others."""

    rooms_made = 0
    connection: Connection | None = None

    def handle(self, connection: Connection, buffer: memoryview, position: int, end: int) -> Answer:
        self.connection = connection
        if bytes(buffer[position:end]) == b"close":
            connection.close()
            return None
        return super().handle(connection, buffer, position, end)

    def make_room(self) -> None:
        self.rooms_made += 1


@pytest.fixture
async def made() -> AsyncIterator[tuple[Client, Counting]]:
    listening = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listening.getsockname())
    far = Counting(fileno=listening.accept()[0].detach())
    near.setblocking(False)
    async with asyncio.TaskGroup() as group:
        echo = Ending(group)
        connection = Connection(far, echo, BufferPool(), "test", 0.0, ListenerOptions())
        yield Client(near, echo, connection), far
        connection.close()
    near.close()
    listening.close()


async def test_answers_to_requests_that_came_together_are_sent_together(made: tuple[Client, Counting]) -> None:
    client, far = made
    frames = [b"%d" % number for number in range(10)]
    await client.send(*frames)
    assert await client.answers(10) == frames
    assert far.sends == 1
    await client.send(b"alone")
    assert await client.answers(1) == [b"alone"]
    assert far.sends == 2


async def test_an_answer_waits_for_no_request_that_takes_longer(made: tuple[Client, Counting]) -> None:
    client, _ = made
    await client.send(b"first", b"second", b"hold", b"after")
    assert await client.answers(2) == [b"first", b"second"]
    client.echo.gates[b"hold"].set_result(None)
    assert await client.answers(2) == [b"hold", b"after"]


async def test_an_answer_waits_for_no_request_that_is_not_whole(made: tuple[Client, Counting]) -> None:
    client, _ = made
    whole = struct.pack(">i", 5) + b"whole"
    await asyncio.get_running_loop().sock_sendall(client._socket, whole + struct.pack(">i", 100) + b"half")
    assert await client.answers(1) == [b"whole"]


async def test_only_so_much_waits_for_the_rest(made: tuple[Client, Counting]) -> None:
    client, far = made
    frames = [b"%05d" % number * 2000 for number in range(20)]
    await client.send(*frames)
    assert await client.answers(20) == frames
    assert far.sends >= 20 * len(frames[0]) // GATHERED_BYTES


async def test_only_so_many_wait_for_the_rest(made: tuple[Client, Counting]) -> None:
    client, far = made
    frames = [b"%d" % number for number in range(2 * GATHERED_ANSWERS)]
    await client.send(*frames)
    assert await client.answers(len(frames)) == frames
    assert far.sends == 2


async def test_what_was_answered_goes_out_before_a_connection_ends(made: tuple[Client, Counting]) -> None:
    client, _ = made
    frames = struct.pack(">i", 5) + b"first" + struct.pack(">i", 6) + b"second" + struct.pack(">i", -1)
    await asyncio.get_running_loop().sock_sendall(client._socket, frames)
    assert await client.answers(2) == [b"first", b"second"]
    with pytest.raises(AssertionError, match="the connection ended"):
        await client.answers(1)


async def test_what_was_answered_goes_out_where_a_later_request_ends_the_connection(
    made: tuple[Client, Counting],
) -> None:
    """What it says was done: a producer that does not hear of it would write it again."""
    client, _ = made
    await client.send(b"first", b"close")
    assert await client.answers(1) == [b"first"]


async def test_what_a_full_socket_does_not_take_counts_and_has_its_time_from_then_on(
    made: tuple[Client, Counting],
) -> None:
    client, far = made
    far.is_full = True
    before_ms = asyncio.get_running_loop().time() * 1000.0
    whole = struct.pack(">i", 5) + b"whole"
    await asyncio.get_running_loop().sock_sendall(client._socket, whole + struct.pack(">i", 100) + b"half")
    await client.handled(1)
    assert isinstance(client.echo, Ending)
    assert client.echo.connection is not None
    assert client.echo.connection.unsent_bytes == len(whole)
    assert client.echo.connection.progress_ms >= before_ms
    assert client.echo.rooms_made == 1
