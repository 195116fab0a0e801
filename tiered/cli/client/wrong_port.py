"""Finds out why an address did not answer as a broker does: the usual mistakes, told apart.

Owns two questions to each address. Called only after a failure, so it may take a moment.
"""

import asyncio
import socket
from collections.abc import Sequence

from tiered.config.addresses import host_and_port
from tiered.errors import TieredError
from tiered.peer import Peer
from tiered.peer.login import HANDSHAKE
from tiered.peer.security import PeerSecurity
from tiered.rules.security.sasl.mechanism import Mechanism
from tiered.wire.error_codes import UNSUPPORTED_SASL_MECHANISM

TIMEOUT_S = 1.0
LOGIN_TIMEOUT_MS = 3000
_QUESTION = b"GET / HTTP/1.0\r\n\r\n"
_TLS_ALERT = b"\x15\x03"


async def what_listens(addresses: Sequence[tuple[str, int]]) -> str | None:
    """In words, for the first address where something else than Kafka answers; None where none does."""
    for host, port in addresses:
        answer, where = await _first_bytes(host, port), host_and_port(host, port)
        if answer.startswith(_TLS_ALERT) or b"HTTPS port" in answer:
            return (
                f"TLS is spoken at {where}: give --command-config a file with ssl.truststore.location=FILE and "
                "security.protocol=SSL (SASL_SSL where a login is wanted)"
            )
        if answer.startswith(b"HTTP/"):
            return (
                f"{where} is no Kafka address: HTTP is spoken at it; name the port of --kafka, which `tiered "
                "serve` prints as kafka=... (9092 by default)"
            )
    return None


async def without_address(addresses: Sequence[tuple[str, int]]) -> str | None:
    """In words, which host's name has no address here; None where each has one, or where that takes long to find."""
    for host, port in addresses:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError:
            continue
        except (OSError, UnicodeError):
            return f"the name {host} does not resolve to an address on this machine"
    return None


async def wanted_login(addresses: Sequence[tuple[str, int]], security: PeerSecurity) -> str | None:
    """In words, which login the first broker wants that `security` comes as far as; None where none wants one.

    Before a login a broker answers nothing but which logins it takes (KIP-43), and one that wants none says so too.
    """
    for host, port in addresses:
        try:
            peer = await Peer.connect(host, port, timeout_ms=LOGIN_TIMEOUT_MS, security=security)
            async with peer:
                answer = await peer.request(
                    HANDSHAKE, lambda make: make.SaslHandshakeRequest(mechanism=""), timeout_ms=LOGIN_TIMEOUT_MS
                )
        except TieredError:
            continue
        if answer.error_code == UNSUPPORTED_SASL_MECHANISM:
            taken = [each.value for each in Mechanism if each.value in answer.mechanisms]
            protocol = "SASL_SSL" if security.security.protocol.uses_tls else "SASL_PLAINTEXT"
            ways = " or ".join(taken) or "a mechanism that is not known here"
            return (
                f"{host_and_port(host, port)} wants a login, by {ways}: give "
                f"--command-config a file with security.protocol={protocol}, {_what_a_login_needs(taken)}"
            )
    return None


def _what_a_login_needs(taken: Sequence[str]) -> str:
    passwords = [each for each in taken if each != Mechanism.OAUTHBEARER]
    if passwords or not taken:
        mechanism = passwords[-1] if passwords else "..."
        return f"sasl.mechanism={mechanism}, sasl.username=NAME and sasl.password=file:PATH"
    return "sasl.mechanism=OAUTHBEARER and sasl.oauthbearer.token.endpoint.url=file:///PATH"


async def _first_bytes(host: str, port: int) -> bytes:
    """The answer to an HTTP request; empty where nothing listens or answers."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(_QUESTION)
                await writer.drain()
                return await reader.read(512)
            finally:
                writer.transport.abort()
    except (TimeoutError, OSError):
        return b""
