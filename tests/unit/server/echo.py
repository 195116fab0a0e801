"""A connection whose requests are answered when a test says so."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from tiered.config.listeners import ListenerOptions
from tiered.runtime import SystemClock
from tiered.server.kafka.transport.buffers import BufferPool, LargeReads
from tiered.server.kafka.transport.connection import Connection
from tiered.server.kafka.transport.outbox import Parts
from tiered.server.kafka.transport.requests import Answer, DelayedAnswer, Overlapping
from tiered.server.kafka.transport.turns import Turns


def framed(frame: bytes) -> Parts:
    return [struct.pack(">i", len(frame)) + frame]


class Parked(DelayedAnswer):
    """Waits without a task: until it is let go and called, or its patience is over."""

    def __init__(self, frame: bytes, patience_ms: float) -> None:
        self._frame = frame
        self._patience_ms = patience_ms
        self.looks: list[bool] = []
        """Of each look, whether it was the last."""
        self.is_let_go = self.is_cancelled = False
        self.error: Exception | None = None
        self.finishing: Coroutine[Any, Any, Parts] | None = None

    @property
    def patience_ms(self) -> float:
        return self._patience_ms

    def begin(self, wake: Callable[[], None]) -> None:
        self.call = wake

    def answer(self, *, is_last: bool) -> Parts | Coroutine[Any, Any, Parts] | None:
        self.looks.append(is_last)
        if self.error is not None:
            raise self.error
        if self.finishing is not None:
            return self.finishing
        return framed(self._frame) if self.is_let_go or is_last else None

    def cancel(self) -> None:
        self.is_cancelled = True


class Echo:
    """Answers a frame with itself: at once, or for 'wait…' when it is let go, or 'hold…' with nothing beside it.

    'both…' is let go twice: it holds up the next requests until the first time, and only waits until the second.
    'park…' and 'pause…' are 'wait…' and 'hold…' without a task; a number in them is their patience.
    """

    max_frame_bytes = max_other_frame_bytes = 1 << 20
    unsent_bytes = 0
    unfinished_bytes = 0

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self.large_reads = LargeReads()
        self.turns = Turns(SystemClock().monotonic_ms)
        self.handled: list[bytes] = []
        self.gates: dict[bytes, asyncio.Future[None]] = {}
        self.parked: dict[bytes, Parked] = {}
        self.ended = False

    def handle(self, connection: Connection, buffer: memoryview, position: int, end: int) -> Answer:
        frame = bytes(buffer[position:end])
        self.handled.append(frame)
        if frame.startswith(b"wait"):
            return Overlapping(self.later(frame))
        if frame.startswith(b"hold"):
            return self.later(frame)
        if frame.startswith(b"both"):
            return self._twice(frame)
        if frame.startswith((b"park", b"pause")):
            parked = self.parked[frame] = Parked(frame, float(frame.split()[-1]))
            return Overlapping(parked) if frame.startswith(b"park") else parked
        return None if frame.startswith(b"none") else framed(frame)

    async def later(self, frame: bytes) -> Parts:
        gate = self.gates[frame] = asyncio.get_running_loop().create_future()
        await gate
        return framed(frame)

    async def _twice(self, frame: bytes) -> Overlapping:
        gate = self.gates[frame] = asyncio.get_running_loop().create_future()
        await gate
        return Overlapping(self.later(frame))

    def run(self, work: Coroutine[Any, Any, None], *, outlives_client: bool = False) -> asyncio.Task[None]:
        return self._group.create_task(work)

    def closed(self, connection: Connection) -> None:
        self.ended = True

    def identified(self, connection: Connection, before: object) -> None: ...

    def may_grow(self, size_bytes: int) -> bool:
        return True

    def make_room(self) -> None: ...

    def complain(self, text: str, *arguments: object) -> None: ...

    def complain_once(self, subject: tuple[object, ...], text: str, *arguments: object) -> None: ...


class Client:
    def __init__(self, sock: socket.socket, echo: Echo, connection: Connection) -> None:
        self._socket = sock
        self.echo = echo
        self.connection = connection

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


@asynccontextmanager
async def served(
    make_echo: Callable[[asyncio.TaskGroup], Echo], pool: BufferPool | None = None, host: str = "test"
) -> AsyncIterator[Client]:
    """A client of a connection in this process, which is closed at the end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
    near.setblocking(False)
    with near:
        async with asyncio.TaskGroup() as group:
            echo = make_echo(group)
            connection = Connection(far, echo, pool or BufferPool(), host, 0.0, ListenerOptions())
            yield Client(near, echo, connection)
            connection.close()
