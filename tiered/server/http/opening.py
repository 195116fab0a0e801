"""Opens the HTTP door without holding up the start: the address is bound at once, the server comes with its client.

aiohttp takes a quarter of a broker's start and a sixth of its idle memory, and no Kafka client needs it. Owns the
socket until the server has it; the first client waits in the socket's queue for a third of a second. Must stay free of
aiohttp itself.
"""

import asyncio
import importlib
import logging
import socket
from typing import TYPE_CHECKING

from tiered.config.tls import ListenerTls
from tiered.runtime import every
from tiered.server.addresses import address_of, bound_socket
from tiered.tls import Reloaded, server_context

if TYPE_CHECKING:
    from tiered.broker.broker import Broker
    from tiered.read_replica.replica import ReadReplica
    from tiered.server.http.app import HttpServer

log = logging.getLogger(__name__)

BACKLOG = 128
RETRY_S = 1.0
WATCH_INTERVAL_MS = 5_000
BROKER = "tiered.server.http.app"
READ_ONLY = "tiered.server.http.read_only"


class HttpDoor:
    """`bind`, then `open`; `stop` at any time after that. `module` has the application of `service`."""

    def __init__(
        self, service: "Broker | ReadReplica", module: str = BROKER, *, tls: ListenerTls | None = None
    ) -> None:
        """Raises InvalidConfig when the certificates of `tls` do not load."""
        self._service = service
        self._tls = None if tls is None else Reloaded(lambda: server_context(tls), tls.material, what="the HTTP door")
        self._handshake_s = None if tls is None else tls.handshake_timeout_ms / 1000.0
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
        """Tries again what fails: it must not end a broker that serves Kafka's clients.

        No file descriptors may be left, or the package is being upgraded under a broker that had not imported all of it
        yet.
        """
        assert self._socket is not None
        await _until_readable(self._socket)
        if self._tls is not None:
            # They were read when the broker started, which may be long ago.
            await asyncio.to_thread(self._tls.refresh)
        while True:
            try:
                module = await asyncio.to_thread(importlib.import_module, self._module)
                server = module.HttpServer(module.application(self._service))
                await server.start(self._socket, self._tls, self._handshake_s)
            except Exception as error:  # noqa: BLE001 - the door's boundary: code of another version may fail in any way
                why = str(error) or type(error).__name__
                log.error("the HTTP door could not be opened, it is tried again: %s", why)
                if not isinstance(error, OSError):
                    log.error("if Tiered was upgraded meanwhile, restart this broker")
                await asyncio.sleep(RETRY_S)
            else:
                self._server = server
                break
        if self._tls is not None:
            await every(WATCH_INTERVAL_MS, self._refresh, name="certificates of the HTTP door")

    async def _refresh(self) -> None:
        assert self._tls is not None
        await asyncio.to_thread(self._tls.refresh)

    async def stop(self) -> None:
        """Answers nothing more. An import in progress goes on in its thread; the stop does not wait for it."""
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
