"""What listens at an address that does not speak Kafka: the usual mistakes, told apart.

Owns one question to each address. Called only after a failure, so it may take a moment.
"""

import asyncio
from collections.abc import Sequence

TIMEOUT_S = 1.0
_QUESTION = b"GET / HTTP/1.0\r\n\r\n"
_TLS_ALERT = b"\x15\x03"


async def what_listens(addresses: Sequence[tuple[str, int]]) -> str | None:
    """In words, for the first address where something else than Kafka answers; None where none does."""
    for host, port in addresses:
        answer = await _first_bytes(host, port)
        if answer.startswith(_TLS_ALERT) or b"HTTPS port" in answer:
            return (
                f"TLS is spoken at {host}:{port}: give --command-config a file with security.protocol=SSL and "
                "ssl.truststore.location=FILE"
            )
        if answer.startswith(b"HTTP/"):
            return (
                f"HTTP is spoken at {host}:{port}; name the port of --kafka, which `tiered serve` prints as kafka=... "
                "(9092 by default)"
            )
    return None


async def _first_bytes(host: str, port: int) -> bytes:
    """What comes back for an HTTP request; nothing where nobody listens or answers."""
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
