"""What an HTTPS connection meets from its acceptance to the end of its handshake.

Owns those that shake hands, so that they count and can be ended. asyncio's own way, a server with a context, tells
nobody of a handshake that fails, and leaves each of them, a third of a MiB, in a cycle of its exception and its frames:
the collector comes too rarely for who opens connections and says nothing. Must never let more of them begin than
there may be connections.
"""

import asyncio
import ssl
from collections.abc import Callable

from tiered.server.http.door.connection import OpenConnections


class TlsGate(asyncio.Protocol):
    """One connection. `admitted` makes what it speaks to afterwards."""

    def __init__(
        self,
        context: ssl.SSLContext,
        open_: OpenConnections,
        admitted: Callable[[], asyncio.Protocol],
        *,
        handshake_s: float | None,
    ) -> None:
        """Is in `open_` from now on until its handshake has ended."""
        self._context = context
        self._open = open_
        self._admitted = admitted
        self._handshake_s = handshake_s
        self._task: asyncio.Task[None] | None = None
        open_.accepted(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()  # Its first bytes are the handshake's.
        self._task = asyncio.get_running_loop().create_task(self._shake_hands(transport))

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        early = _Early()
        try:
            made = await asyncio.get_running_loop().start_tls(
                transport, early, self._context, server_side=True, ssl_handshake_timeout=self._handshake_s
            )
        except OSError as error:  # Whatever a client can do, and the end of its time.
            error.__traceback__ = None  # Its frames hold the connection, and are held by what they hold.
            return
        finally:
            self._open.lost(self)
            self._task = None
        if made is None or early.is_lost:
            return
        protocol = self._admitted()
        made.set_protocol(protocol)
        protocol.connection_made(made)
        if early.data:
            protocol.data_received(bytes(early.data))


class Hangup(asyncio.Protocol):
    """Ends a connection that is one too many to be told so."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class _Early(asyncio.Protocol):
    """What comes with the handshake's last bytes, in the turn before its connection is made."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: BaseException | None) -> None:  # noqa: ARG002
        self.is_lost = True
