"""How much of what a client sends is looked at in one turn of the event loop, and which connections are served."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tiered.server.http.door.connection import Gate, HttpConnection
from tiered.server.http.door.open_connections import OpenConnections
from tiered.server.http.messages.body import pieces_of

CHUNKS = 90_000
MOST_BYTES = 16 << 10


async def test_little_of_a_body_is_looked_at_in_one_turn_however_much_is_there() -> None:
    """A quarter of a MiB of chunks of one byte was 50 to 100 ms, for whoever asks for anything."""
    sizes: list[int] = []
    read = 0

    class Watched(HttpConnection):
        def data_received(self, data: bytes) -> None:
            sizes.append(len(data))
            super().data_received(data)

    async def answer(request: web.BaseRequest) -> web.Response:
        nonlocal read
        async for piece in pieces_of(request):  # type: ignore[arg-type]
            read += len(piece)
        return web.Response(text="read")

    server = web.Server(answer)
    loop = asyncio.get_running_loop()
    open_ = OpenConnections(lambda: 1)
    listening = await loop.create_server(lambda: Watched(server, open_, "127.0.0.1", patience_s=30), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    writer.write(b"1\r\na\r\n" * CHUNKS + b"0\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    listening.close()
    await server.shutdown()
    assert read == CHUNKS
    assert max(sizes) == MOST_BYTES


class Door:
    """Of as many connections as `most`, each of whose requests is answered when `answered` is set."""

    def __init__(self, most: int) -> None:
        self.open = OpenConnections(lambda: most)
        self.answered = asyncio.Event()
        self.in_progress = 0
        self.server = web.Server(self._answer, handler_cancellation=True)

    async def _answer(self, _: web.BaseRequest) -> web.Response:
        self.in_progress += 1
        await self.answered.wait()
        self.in_progress -= 1
        return web.Response(text="served")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[str, int]]:
        def connection(address: str) -> HttpConnection:
            return HttpConnection(self.server, self.open, address, patience_s=30)

        loop = asyncio.get_running_loop()
        listening = await loop.create_server(lambda: Gate(self.open, connection), "127.0.0.1", 0)
        yield listening.sockets[0].getsockname()
        listening.close()
        await self.server.shutdown()


async def asked(address: tuple[str, int], source: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(*address, local_addr=(source, 0))
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n{")
    return reader, writer


async def test_requests_in_progress_keep_their_connections_and_one_more_is_refused_in_words() -> None:
    door = Door(4)
    async with door.opened() as address:
        served = [await asked(address, source) for source in ("127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.4")]
        while door.in_progress < 4:
            await asyncio.sleep(0)
        reader, writer = await asyncio.open_connection(*address, local_addr=("127.0.0.5", 0))
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"too many HTTP connections" in answer
        writer.close()
        door.answered.set()
        for reader, _ in served:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        assert b"served" in await served[0][0].readuntil(b"served")
        one_more, writer = await asked(address, "127.0.0.5")
        assert (await one_more.readline()).startswith(b"HTTP/1.1 200 "), "what was answered gives way"
        writer.close()
        for _, writer in served:
            writer.close()


async def test_a_body_that_stays_away_after_the_answer_keeps_no_place() -> None:
    """aiohttp waits two seconds for it: who sent nothing but heads could keep all places for as long as it liked."""
    door = Door(2)
    door.answered.set()
    async with door.opened() as address:
        readers = []
        for source in ("127.0.0.2", "127.0.0.3", "127.0.0.4"):
            reader, writer = await asyncio.open_connection(*address, local_addr=(source, 0))
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            readers.append((reader, writer))
        rest = await readers[0][0].read()
        assert rest.endswith(b"served")
        for _, writer in readers:
            writer.close()
