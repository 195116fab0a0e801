"""Opens the HTTP door without holding up the start: the address is bound at once, the server follows.

Importing aiohttp takes a quarter of a broker's start, and no Kafka client waits for it. Owns the socket until
the server has it; who connects before that waits in the socket's queue. Must stay free of aiohttp itself.
"""

import asyncio
import importlib
import socket
from typing import TYPE_CHECKING

from tiered.broker.broker import Broker

if TYPE_CHECKING:
    from tiered.server.http.app import HttpServer

BACKLOG = 128


class HttpDoor:
    """`bind`, then `open`; `stop` at any time after that."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._socket: socket.socket | None = None
        self._server: HttpServer | None = None
        self._opening: asyncio.Task[None] | None = None

    def bind(self, host: str, port: int) -> tuple[str, int]:
        """The address bound; raises OSError when it is taken or not ours."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind((host, port))
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
        self._socket = sock
        bound: tuple[str, int] = sock.getsockname()[:2]
        return bound

    def open(self, tasks: asyncio.TaskGroup) -> None:
        """Returns at once; requests are answered as soon as the server is imported."""
        self._opening = tasks.create_task(self._open())

    async def _open(self) -> None:
        assert self._socket is not None
        app = await asyncio.to_thread(importlib.import_module, "tiered.server.http.app")
        self._server = app.HttpServer(self._broker)
        await self._server.start(self._socket)

    async def stop(self) -> None:
        """Answers nothing more. An opening in progress is waited for: an import cannot be broken off."""
        if self._opening is not None:
            await self._opening
        if self._server is not None:
            await self._server.stop()
        elif self._socket is not None:
            self._socket.close()
