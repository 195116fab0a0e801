"""TLS at one listener: from an accepted socket to a stream whose other side is known, or to a complaint.

Owns the handshakes in progress and their number, deadline and threads: signing takes milliseconds, in which the loop
serves others. Must never hold an accepted socket longer than the deadline.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from tiered.config.listeners import ListenerOptions
from tiered.errors import MalformedRequest, TieredError
from tiered.rules.security.certificate_names import PrincipalMapping
from tiered.rules.security.principal import ANONYMOUS, Principal
from tiered.runtime import BlockingPool, every
from tiered.server.kafka.transport.other_protocols import is_http, not_tls
from tiered.server.kafka.transport.tls_stream import TlsStream
from tiered.tls import Reloaded, UnreadableName, server_context

THREADS = 2
MAX_HANDSHAKES = 1_000
"""Of one listener at once. Those who come later are let in at the cost of the one that has taken longest."""
MAX_HANDSHAKE_BYTES = 256 << 10
RECEIVE_BYTES = 16 << 10
SCRATCH_BYTES = 32 << 10
"""OpenSSL's memory buffers keep the size that they once had: so much is received and given to them at a time."""
WATCH_INTERVAL_MS = 5_000
_HANDSHAKE_RECORD = 0x16
_UNEXPECTED_MESSAGE = b"\x15\x03\x03\x00\x02\x02\x0a"
"""A fatal alert (RFC 8446, 6)."""

# OpenSSL's names of what goes wrong, where they do not say what to do about it.
_ADVICE = {
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not know who signed this broker's certificate: its truststore needs it",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refused this broker's certificate: is it expired, or for another host?",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refused this broker's certificate: it needs ssl.truststore.location",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this broker's certificate has expired",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has shown no certificate, and ssl.client.auth=required here",
    "UNSUPPORTED_PROTOCOL": "the client speaks an older TLS than ssl.enabled.protocols allows",
    "NO_SHARED_CIPHER": "the client offers no cipher of ssl.cipher.suites",
}


class TlsDoor:
    """The handshakes of one listener."""

    def __init__(self, options: ListenerOptions) -> None:
        """Raises InvalidConfig when certificates or rules do not load."""
        assert options.tls is not None
        tls = options.tls
        self._mapping = PrincipalMapping(tls.principal_mapping_rules)
        self.context = Reloaded(lambda: server_context(tls), tls.material, what=f"listener {options.name}")
        self._timeout_s = tls.handshake_timeout_ms / 1000.0
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._pool = BlockingPool("tls", threads=THREADS)
        self._in_progress: dict[asyncio.Task[None], None] = {}

    def begin(
        self,
        sock: socket.socket,
        run: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        opened: Callable[[TlsStream, Principal], None],
        failed: Callable[[str | None], None],
    ) -> None:
        """One of `opened` and `failed` is called, once; the socket is closed before `failed`, which gets the reason.

        The reason is None for a client that went away before it said anything.
        """
        if len(self._in_progress) >= MAX_HANDSHAKES:
            longest = next(iter(self._in_progress))
            # At once, or of all that come before it has ended none would be broken off but it.
            del self._in_progress[longest]
            longest.cancel()
        task = run(self._open(sock, opened, failed))
        self._in_progress[task] = None
        task.add_done_callback(lambda done: self._in_progress.pop(done, None))

    def stop(self) -> None:
        """Ends the handshakes in progress."""
        for task in list(self._in_progress):
            task.cancel()
        self._pool.close(wait=False)

    async def _open(
        self,
        sock: socket.socket,
        opened: Callable[[TlsStream, Principal], None],
        failed: Callable[[str | None], None],
    ) -> None:
        why: str | None = None
        made: tuple[TlsStream, Principal] | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                made = await self._handshake(sock)
        except asyncio.CancelledError:
            # Only this one: the loop goes on, or everything ends.
            why = "its TLS handshake was broken off, for too many others have begun since"
            raise
        except TimeoutError:
            why = f"its TLS handshake did not end within {self._timeout_s:g} s"
        except UnreadableName as error:
            why = str(error)
        except ssl.SSLError as error:
            why = _reason(error)
        except OSError:
            pass  # It went away.
        except TieredError as error:
            why = str(error)
        finally:
            if made is None:
                sock.close()
                failed(why)
        if made is not None:
            opened(*made)

    async def _handshake(self, sock: socket.socket) -> tuple[TlsStream, Principal]:
        loop = asyncio.get_running_loop()
        # Before its first bytes are here a connection costs a task and a socket.
        received = await loop.sock_recv(sock, RECEIVE_BYTES)
        if received and received[0] != _HANDSHAKE_RECORD:
            if is_http(received[:4]):
                # An HTTP client learns from it that this is TLS. A Kafka client would read a length.
                with suppress(OSError):
                    sock.send(_UNEXPECTED_MESSAGE)
            raise MalformedRequest(not_tls(received[:4]))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.context.current.wrap_bio(incoming, outgoing, server_side=True)
        left = MAX_HANDSHAKE_BYTES
        while True:
            left -= len(received)
            if not received or left < 0:
                raise ConnectionAbortedError
            incoming.write(received)
            try:
                is_done = await self._pool.run(_step, tls)
            except ssl.SSLError:
                with suppress(OSError):
                    sock.send(outgoing.read())  # Tells the client why.
                raise
            if outgoing.pending:
                await loop.sock_sendall(sock, outgoing.read())
            if is_done:
                break
            received = await loop.sock_recv(sock, RECEIVE_BYTES)
        certificate = tls.getpeercert()
        principal = ANONYMOUS
        if certificate:
            principal = self._mapping.principal(certificate.get("subject", ()))  # type: ignore[arg-type]
        return TlsStream(sock, tls, incoming, outgoing, self._scratch), principal


async def watched(doors: Sequence[TlsDoor]) -> None:
    """Looks for certificates that have changed, until cancelled."""

    async def look() -> None:
        for door in doors:
            await asyncio.to_thread(door.context.refresh)

    await every(WATCH_INTERVAL_MS, look, name="certificates")


def _step(tls: ssl.SSLObject) -> bool:
    """Whether the handshake is done; else it needs more bytes."""
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate that the client has shown is refused: {error.verify_message}"
    name = error.reason or "it does not parse"
    return f"its TLS handshake failed: {_ADVICE.get(name, name)}"
