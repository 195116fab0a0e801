"""Links between the processes of a cluster, and what a fault does to the bytes that cross one.

Owns the values and the one connection that crosses a link. Bytes are held back, delayed, slowed, cut off or reset;
must never be changed, and never overtake each other. Times are the event loop's.
"""

import asyncio
import random
import socket
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

CHUNK_BYTES = 65_536
CLIENTS = "clients"
"""The source of every connection that is no broker's."""


class Link(NamedTuple):
    """Who connects, and to whom: `broker-2` to `broker-1`, `clients` to `broker-3`, `broker-1` to `sql`."""

    source: str
    destination: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFault:
    """What happens to a link's bytes. `LinkFault()` is a good link."""

    hold_requests: bool = False
    """Nothing goes from source to destination; new connections are not answered either."""
    hold_answers: bool = False
    """Nothing comes back."""
    deliver_late: bool = True
    """What was held arrives when the fault ends, as after a partition that TCP outlived. Else connections are reset."""
    delay_ms: float = 0.0
    """Each chunk waits so long, both ways."""
    bytes_per_second: int | None = None
    reset_probability: float = 0.0
    """For each chunk: the connection is reset instead of delivering it."""
    cut_probability: float = 0.0
    """For each chunk: half of it is delivered, then both ends see an end of stream."""

    @property
    def is_good(self) -> bool:
        return self == LinkFault(deliver_late=self.deliver_late)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class _Ended(Exception):
    """One end closed the connection, or a fault cut it off: the other end sees an end of stream."""


class LinkState:
    """One link: its present fault, the connections over it, and what was done to them."""

    def __init__(self, link: Link, chance: random.Random) -> None:
        self.link = link
        self.fault = LinkFault()
        self.carried_bytes = 0
        self.resets = 0
        self.cuts = 0
        self.connections: set[Connection] = set()
        self._chance = chance
        self._changed = asyncio.Event()

    def set_fault(self, fault: LinkFault) -> None:
        """From now on; waits under way see it. Held connections end where they must not be delivered late."""
        before, self.fault = self.fault, fault
        self._changed.set()
        self._changed = asyncio.Event()
        for connection in tuple(self.connections):
            released = (before.hold_requests and not fault.hold_requests) or (
                before.hold_answers and not fault.hold_answers
            )
            if released and not before.deliver_late and connection.holds_bytes:
                self.resets += 1
                connection.reset()

    async def wait_until_passable(self, *, to_destination: bool) -> None:
        """Returns when this direction is not held."""
        while self.fault.hold_requests if to_destination else self.fault.hold_answers:
            await self._changed.wait()

    async def admit(self, size_bytes: int, *, to_destination: bool) -> int:
        """How many of the bytes may pass, after the wait that this link imposes. Raises ConnectionResetError."""
        await self.wait_until_passable(to_destination=to_destination)
        fault = self.fault
        if fault.delay_ms:
            await asyncio.sleep(fault.delay_ms / 1000)
        if fault.bytes_per_second:
            await asyncio.sleep(size_bytes / fault.bytes_per_second)
        if fault.delay_ms or fault.bytes_per_second:
            await self.wait_until_passable(to_destination=to_destination)
        if fault.reset_probability and self._chance.random() < fault.reset_probability:
            self.resets += 1
            raise ConnectionResetError
        if fault.cut_probability and self._chance.random() < fault.cut_probability:
            self.cuts += 1
            return size_bytes // 2
        self.carried_bytes += size_bytes
        return size_bytes


class Connection:
    """One connection over one link: two streams joined by two pumps, which end together."""

    def __init__(
        self,
        state: LinkState,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        first: bytes,
    ) -> None:
        self._state = state
        self._reader = reader
        self._writer = writer
        self._first = first
        self._far_writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting = 0

    @property
    def holds_bytes(self) -> bool:
        """Whether bytes that one end sent have not been passed on."""
        return self._waiting > 0

    async def run(self, connect: Callable[[], Any]) -> None:
        """Carries bytes until either end, or a fault, ends the connection."""
        self._task = asyncio.current_task()
        self._state.connections.add(self)
        try:
            self._waiting += 1
            await self._state.wait_until_passable(to_destination=True)
            self._waiting -= 1
            far_reader, self._far_writer = await connect()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(self._reader, self._far_writer, to_destination=True, first=self._first))
                tasks.create_task(self._pump(far_reader, self._writer, to_destination=False, first=b""))
        except* _Ended:
            pass  # Both ends are closed below, once what was written is sent.
        except* OSError:
            self._abort()
        finally:
            self._state.connections.discard(self)
            for writer in (self._writer, self._far_writer):
                if writer is not None:
                    writer.close()

    def reset(self) -> None:
        """Both ends see a reset, now."""
        self._abort()
        if self._task is not None:
            self._task.cancel()

    def _abort(self) -> None:
        for writer in (self._writer, self._far_writer):
            if writer is None:
                continue
            connected = writer.get_extra_info("socket")
            if connected is not None and connected.family != socket.AF_UNIX:
                try:
                    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                except OSError:
                    pass  # Closed already.
            writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_destination: bool, first: bytes
    ) -> None:
        data = first
        while True:
            if data:
                self._waiting += 1
                admitted = await self._state.admit(len(data), to_destination=to_destination)
                self._waiting -= 1
                writer.write(data[:admitted])
                await writer.drain()
                if admitted < len(data):
                    raise _Ended
            data = await reader.read(CHUNK_BYTES)
            if not data:
                # Kafka, PostgreSQL and S3 never half-close: the end of one direction is the end of both.
                await self._state.wait_until_passable(to_destination=to_destination)
                raise _Ended
