"""A listener that says bytes of a test's choice to whoever asks as a broker does."""

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

from tiered.wire import frames

Answer = Callable[[int, int, bytes], bytes | None]


@asynccontextmanager
async def serving(answer: Answer) -> Any:
    """`answer(key, version, body)` gives a body, or raw bytes to send with `Raw`; None closes the connection."""
    requests: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = await reader.readexactly(frames.read_frame_length(await reader.readexactly(4), 0))
                key, version, correlation_id, _, position = frames.read_request_header(frame, 0, len(frame))
                requests.append(key)
                body = answer(key, version, frame[position:])
                if body is None:
                    break
                if isinstance(body, Raw):
                    writer.write(body)
                    continue
                head = frames.response_header(correlation_id, key, version)
                writer.write(frames.frame_length(len(head) + len(body)) + head + body)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], requests
    finally:
        server.close()


class Raw(bytes):
    """Sent as it is, without length and header."""
