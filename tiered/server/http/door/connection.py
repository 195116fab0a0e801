"""One connection of the HTTP door: the handshake of HTTPS, bytes that are no HTTP, and one too many.

Owns the limits of the parser, and those that shake hands, so that they count and can be ended. Hostile bytes cost their
sender an answer and the connection, and the log nothing. Must never let more handshakes begin than there may be
connections.
"""

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from aiohttp import http_exceptions, web

from tiered.runtime import release_transport
from tiered.server.http.door.browser_guard import HEADERS
from tiered.server.http.messages.failures import error_response

log = logging.getLogger(__name__)

MAX_LINE_BYTES = 16 << 10
MAX_HEADER_BYTES = 16 << 10
MAX_HEADERS = 100
READ_BYTES = 16 << 10
"""At once. Of a body, ahead of its reader: twice as many at the most."""
LINGER_S = 2.0
MAX_SHOWN_CHARS = 200
MAX_READ_CHARS = 1000


OpenConnections = set[asyncio.Protocol]
"""Those that count, from the moment that they are accepted: they may shake hands first."""


class HttpConnection(web.RequestHandler):
    """aiohttp's connection within our limits, with our form of an error."""

    __slots__ = ("_open",)

    def __init__(self, server: web.Server, open_: OpenConnections, *, patience_s: float) -> None:
        """Is in `open_` from now on until the connection ends."""
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # aiohttp tests it for truth.
            # Also how long the head of the first request may take.
            keepalive_timeout=patience_s,
            lingering_time=LINGER_S,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
            # Also how many chunks of a body are looked at in one turn: a sixteenth as many.
            read_bufsize=READ_BYTES,
            # Also what nobody reads would be unfolded, in one turn of the loop after the answer (`body`).
            auto_decompress=False,
        )
        self._open = open_
        open_.add(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if hasattr(transport, "max_size"):
            # asyncio's is a quarter of a MiB, whose chunks of one byte each would all be looked at in one turn.
            transport.max_size = READ_BYTES
        sock = transport.get_extra_info("socket")
        if hasattr(socket, "TCP_USER_TIMEOUT") and sock is not None and sock.family != socket.AF_UNIX:
            # Ends the connection of a client that does not read its answer. Source: tcp(7).
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self.keepalive_timeout * 1000))

    def connection_lost(self, exc: BaseException | None) -> None:
        self._open.discard(self)
        release_transport(self.transport)
        super().connection_lost(exc)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Of a body that is not what its head says nobody needs a stack: its client has hung up or lies."""
        if not isinstance(kw.get("exc_info"), web.RequestPayloadError | http_exceptions.HttpProcessingError):
            super().log_exception(*args, **kw)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what never became a request; the connection ends."""
        if isinstance(exc, UnicodeEncodeError):
            # aiohttp would repeat a method or an Expect that it does not know, and those bytes may be no text.
            status, message = HTTPStatus.BAD_REQUEST, "its head has bytes that are no text"
        elif not isinstance(exc, http_exceptions.HttpProcessingError | ConnectionError):
            log.error("an HTTP connection failed in an unforeseen way", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun; nothing can be said any more")
        # aiohttp's message repeats the bytes, a quarter of a MiB of them, and points at one.
        what = " ".join((message or HTTPStatus(status).phrase)[:MAX_READ_CHARS].split())[:MAX_SHOWN_CHARS]
        response = error_response(status, f"this cannot be read as an HTTP/1.1 request: {what}")
        response.headers.update(HEADERS)
        response.force_close()
        return response


class TooManyConnections(asyncio.Protocol):
    """Answers that there are too many connections, before anything is read, and hangs up."""

    def connection_made(self, transport: Any) -> None:
        body = json.dumps({"error_code": 503, "message": "too many HTTP connections are open; try again later"})
        transport.write(
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        transport.close()


class TlsGate(asyncio.Protocol):
    """One HTTPS connection until the end of its handshake. `admitted` makes what it speaks to afterwards.

    asyncio's own way, a server with a context, tells nobody of a handshake that fails, and leaves each of them, a third
    of a MiB, in a cycle of its exception and its frames: the collector comes too rarely for who opens connections and
    says nothing.
    """

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
        open_.add(self)

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
        # Whatever a client can do, and the end of its time; ValueError is a certificate with a name that is no text.
        except (OSError, ValueError) as error:
            error.__traceback__ = None  # Its frames hold the connection, and are held by what they hold.
            return
        finally:
            self._open.discard(self)
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
    """Bytes that come with the end of the handshake, in the same turn, before the connection is made."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: BaseException | None) -> None:  # noqa: ARG002
        self.is_lost = True
