"""One connection of the HTTP door: its place, the handshake of HTTPS, bytes that are no HTTP, and one too many.

Owns the limits of the parser, and those that shake hands, so that they count and can be ended. Hostile bytes cost their
sender an answer and the connection, and the log nothing. Must never let a handshake begin, nor read a byte, without a
place (`open_connections`).
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

from tiered.config.addresses import client_address
from tiered.runtime import release_transport
from tiered.server.http.door.browser_guard import HEADERS
from tiered.server.http.door.open_connections import OpenConnections
from tiered.server.http.messages.failures import error_response
from tiered.tls import UnreadableName

log = logging.getLogger(__name__)

MAX_LINE_BYTES = 16 << 10
MAX_HEADER_BYTES = 16 << 10
MAX_HEADERS = 100
READ_BYTES = 16 << 10
"""At once. Of a body, ahead of its reader: twice as many at the most."""
LINGER_S = 2.0
MAX_SHOWN_CHARS = 200
MAX_READ_CHARS = 1000


class HttpConnection(web.RequestHandler):
    """aiohttp's connection within our limits, with our form of an error."""

    __slots__ = ("_open", "address")

    def __init__(self, server: web.Server, open_: OpenConnections, address: str, *, patience_s: float) -> None:
        """Is in `open_` from now on until the connection ends or gives up its place."""
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
        self.address = address
        self._open = open_
        open_.add(self)

    @property
    def has_request(self) -> bool:
        """From its whole head to the end of its answer; what is left of its body may be unread then."""
        return self._request_in_progress or bool(self._messages)

    def hang_up(self) -> None:
        if self.transport is not None:
            self.transport.abort()  # Whoever does not read the last answer could keep it open otherwise.

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages:
            self._open.brought_request(self)

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
        self._open.remove(self)
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


class Gate(asyncio.Protocol):
    """One connection until it may speak HTTP: it needs a place, and over TLS the end of its handshake. `admitted` makes
    what it speaks to afterwards, for its address.

    asyncio's own way, a server with a context, tells nobody of a handshake that fails, and leaves each of them, a third
    of a MiB, in a cycle of its exception and its frames: the collector comes too rarely for who opens connections and
    says nothing.
    """

    has_request = False

    def __init__(
        self,
        open_: OpenConnections,
        admitted: Callable[[str], asyncio.Protocol],
        *,
        context: ssl.SSLContext | None = None,
        handshake_s: float | None = None,
    ) -> None:
        self.address = ""
        self._open = open_
        self._admitted = admitted
        self._context = context
        self._handshake_s = handshake_s
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        peer = transport.get_extra_info("peername")
        self.address = client_address(peer[0]) if peer else ""
        if not self._open.make_room(self.address):
            _refuse(transport, in_words=self._context is None)
        elif self._context is None:
            self._hand_over(transport, b"")
        else:
            transport.pause_reading()  # Its first bytes are the handshake's.
            self._transport = transport
            self._open.add(self)
            self._task = asyncio.get_running_loop().create_task(self._shake_hands(transport, self._context))

    def hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _shake_hands(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        early = _Early()
        try:
            made = await asyncio.get_running_loop().start_tls(
                transport, early, context, server_side=True, ssl_handshake_timeout=self._handshake_s
            )
        except OSError as error:  # Whatever a client can do, and the end of its time.
            if isinstance(error, UnreadableName):
                log.warning("HTTPS connection from %s closed: %s", self.address, error)
            error.__traceback__ = None  # Its frames hold the connection, and are held by what they hold.
            return
        finally:
            has_place = self in self._open
            self._open.remove(self)
            self._transport = self._task = None
        if made is not None and has_place and not early.is_lost:
            self._hand_over(made, bytes(early.data))

    def _hand_over(self, transport: asyncio.Transport, data: bytes) -> None:
        protocol = self._admitted(self.address)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if data:
            protocol.data_received(data)


def _refuse(transport: asyncio.Transport, *, in_words: bool) -> None:
    """Ends one that finds no place, before anything is read. Words over TLS would need a handshake, without a place."""
    if not in_words:
        transport.abort()
        return
    body = json.dumps({"error_code": 503, "message": "too many HTTP connections are open; try again later"})
    transport.write(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    transport.close()


class _Early(asyncio.Protocol):
    """Bytes that come with the end of the handshake, in the same turn, before the connection is made."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: BaseException | None) -> None:  # noqa: ARG002
        self.is_lost = True
