"""A connection that is muted begins nothing and reads nothing until its time is over, and then goes on where it was."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.server.echo import Client, Echo, served

LONG_MS = 600_000.0


class Muting(Echo):
    """As Echo; 'mute N' mutes its connection for N milliseconds and is answered all the same."""

    def handle(self, connection, buffer, position, end):  # type: ignore[no-untyped-def]
        frame = bytes(buffer[position:end])
        if frame.startswith(b"mute"):
            connection.mute(float(frame.split()[-1]))
        return super().handle(connection, buffer, position, end)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with served(Muting) as client:
        yield client


async def test_what_was_sent_ahead_waits_until_the_time_is_over(client: Client) -> None:
    await client.send(b"mute 50", b"ahead", b"too")
    assert await client.answers(1) == [b"mute 50"]
    assert client.echo.handled == [b"mute 50"]
    assert client.connection.is_muted
    assert await client.answers(2) == [b"ahead", b"too"]
    assert not client.connection.is_muted


async def test_what_comes_later_is_not_even_read(client: Client) -> None:
    await client.send(b"mute 600000")
    await client.answers(1)
    await client.send(b"x" * 5000)
    await asyncio.sleep(0.05)
    assert client.connection.partial_bytes == 0
    assert client.echo.handled == [b"mute 600000"]


async def test_half_a_request_is_kept_and_its_time_begins_anew(client: Client) -> None:
    frame = b"\x00\x00\x00\x08"
    await client.send(b"mute 100")
    assert await client.answers(1) == [b"mute 100"]
    await asyncio.get_running_loop().sock_sendall(client._socket, frame + b"half")
    await asyncio.sleep(0.15)
    await asyncio.get_running_loop().sock_sendall(client._socket, b"half")
    assert await client.answers(1) == [b"halfhalf"]


async def test_answers_of_requests_in_progress_go_out(client: Client) -> None:
    await client.send(b"wait", b"mute 600000", b"after")
    await client.handled(2)
    client.echo.gates[b"wait"].set_result(None)
    assert await client.answers(2) == [b"wait", b"mute 600000"]
    assert client.echo.handled == [b"wait", b"mute 600000"]


async def test_the_longest_time_counts(client: Client) -> None:
    connection = client.connection
    connection.mute(LONG_MS)
    connection.mute(1.0)
    await asyncio.sleep(0.02)
    assert connection.is_muted


async def test_a_muted_connection_can_be_closed(client: Client) -> None:
    connection = client.connection
    connection.mute(5.0)
    connection.close()
    connection.mute(5.0)
    await asyncio.sleep(0.02)
    assert client.echo.ended
