"""How much of what a client sends is looked at in one turn of the event loop."""

import asyncio

from aiohttp import web

from tiered.server.http.door.connection import HttpConnection, OpenConnections
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
    listening = await loop.create_server(lambda: Watched(server, OpenConnections(), patience_s=30), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    writer.write(b"1\r\na\r\n" * CHUNKS + b"0\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    listening.close()
    await server.shutdown()
    assert read == CHUNKS
    assert max(sizes) == MOST_BYTES
