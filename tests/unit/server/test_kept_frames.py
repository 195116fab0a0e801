"""A delayed request reads its frame from the receive buffer, unchanged by later requests of the connection."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.server.echo import Client, Echo, framed, served
from tiered.server.kafka.transport.buffers import SMALLEST_BYTES, BufferPool
from tiered.server.kafka.transport.outbox import Parts

LARGE = 600 << 10


class Keeping(Echo):
    """As Echo; a 'hold…' request is answered with the kept frame's bytes at the time of its release."""

    kept: memoryview

    def handle(self, connection, buffer, position, end):  # type: ignore[no-untyped-def]
        frame = bytes(buffer[position:end])
        if not frame.startswith(b"hold"):
            return super().handle(connection, buffer, position, end)
        self.handled.append(frame)
        self.kept = connection.keep_frame(end)
        return self._later(position, end)

    async def _later(self, position: int, end: int) -> Parts:
        gate = self.gates[b"hold"] = asyncio.get_running_loop().create_future()
        await gate
        return framed(bytes(self.kept[position:end]))


@pytest.fixture
def pool() -> BufferPool:
    return BufferPool()


@pytest.fixture
async def client(pool: BufferPool) -> AsyncIterator[Client]:
    async with served(Keeping, pool) as client:
        yield client


def keeping(client: Client) -> Keeping:
    assert isinstance(client.echo, Keeping)
    return client.echo


@pytest.mark.parametrize("size_bytes", [1000, LARGE])
async def test_a_kept_frame_is_whole_when_its_request_goes_on(
    client: Client, pool: BufferPool, size_bytes: int
) -> None:
    frame = b"hold" + bytes(range(250)) * (size_bytes // 250)
    others = [bytes([number]) * LARGE for number in range(1, 4)]
    sending = asyncio.create_task(client.send(frame, *others))
    await client.handled(1)
    await asyncio.sleep(0.05)  # What fits behind it arrives meanwhile.
    assert client.connection.partial_bytes > 0
    keeping(client).gates[b"hold"].set_result(None)
    assert await client.answers(4) == [frame, *others]
    await sending
    assert pool.lent_bytes == 0


async def test_a_frame_that_is_kept_when_its_connection_ends_is_lent_to_nobody_else(
    client: Client, pool: BufferPool
) -> None:
    frame = b"hold" + b"x" * LARGE
    sending = asyncio.create_task(client.send(frame))
    await client.handled(1)
    await sending
    client.connection.close()
    assert pool.lent_bytes == 0
    pool.borrow(len(keeping(client).kept))[:] = b"y" * len(keeping(client).kept)
    assert bytes(keeping(client).kept[4 : 4 + len(frame)]) == frame


async def test_a_small_frame_holds_no_large_buffer(client: Client, pool: BufferPool) -> None:
    await client.send(b"hold this")
    await client.handled(1)
    assert len(keeping(client).kept) < SMALLEST_BYTES
    keeping(client).gates[b"hold"].set_result(None)
    assert await client.answers(1) == [b"hold this"]
