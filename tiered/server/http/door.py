"""Opens the HTTP door without holding up the start: the address is bound at once, the server comes with its client.

aiohttp takes a quarter of a broker's start and a sixth of its idle memory, and no Kafka client needs it. Owns the
socket until the server has it; who connects first waits in the socket's queue for a third of a second. Must stay
free of aiohttp itself.
"""

import asyncio
import importlib
import logging
import socket
from typing import TYPE_CHECKING

from tiered.server.addresses import address_of, bound_socket

if TYPE_CHECKING:
    from tiered.broker.broker import Broker
    from tiered.broker.read_only.replica import ReadReplica
    from tiered.server.http.app import HttpServer

log = logging.getLogger(__name__)

BACKLOG = 128
RETRY_S = 1.0
BROKER = "tiered.server.http.app"
READ_ONLY = "tiered.server.http.read_only"


class HttpDoor:
    """`bind`, then `open`; `stop` at any time after that. `module` has the application of `service`."""

    def __init__(self, service: "Broker | ReadReplica", module: str = BROKER) -> None:
        self._service = service
        self._module = module
        self._socket: socket.socket | None = None
        self._server: HttpServer | None = None
        self._opening: asyncio.Task[None] | None = None

    def bind(self, host: str, port: int) -> tuple[str, int]:
        """The address bound; raises OSError when it is taken or not ours."""
        sock = bound_socket(host, port)
        sock.listen(BACKLOG)
        self._socket = sock
        return address_of(sock)

    def open(self, tasks: asyncio.TaskGroup) -> None:
        """Returns at once; the server is imported when its first client connects."""
        self._opening = tasks.create_task(self._open())

    async def _open(self) -> None:
        """Tries again when the process has no file descriptors left: that must not end a broker that serves."""
        assert self._socket is not None
        await _until_readable(self._socket)
        while True:
            try:
                module = await asyncio.to_thread(importlib.import_module, self._module)
                server = module.HttpServer(module.application(self._service))
                await server.start(self._socket)
            except OSError as error:
                log.error("the HTTP door could not be opened, it is tried again: %s", error)
                await asyncio.sleep(RETRY_S)
            else:
                self._server = server
                return

    async def stop(self) -> None:
        """Answers nothing more. An import in progress goes on in its thread; nobody waits for it."""
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._server is not None:
            await self._server.stop()
        elif self._socket is not None:
            self._socket.close()


async def _until_readable(sock: socket.socket) -> None:
    """Returns when a client waits in the socket's queue."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(sock.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(sock.fileno())
