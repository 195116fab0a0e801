"""Which request goes to which handler: the table of served APIs, and the answer's frame.

Owns the table. ApiVersions is derived from it, so what is advertised is served. Must never contain
behaviour of an API: that is in `api/<api>.py`.
"""

import struct
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import Any

from tiered.broker.broker import Broker
from tiered.errors import MalformedRequest, UnsupportedVersion
from tiered.server.kafka.connection import Connection, Parts
from tiered.wire import frames, messages

API_VERSIONS_KEY = 18


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler may use besides its request."""

    broker: Broker
    connection: Connection
    api_version: int
    client_id: str | None


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request of a hand-written codec: its body is `buffer[position:end]`, gone once the handler returns."""

    context: Context
    buffer: memoryview
    position: int
    end: int
    correlation_id: int


RawHandler = Callable[[RawRequest], Parts | Coroutine[Any, Any, Parts | None] | None]
MessageHandler = Callable[[Context, Any, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Api:
    """One row of the table: versions `min_version` to `max_version` (inclusive) of API `key`.

    Either `raw` handles the bytes, or `handle(context, request, reply)` takes kio's request object and the
    constructors of its reply; ApiVersions alone gets None, for a version that is not served. `refuse_below`
    names versions that are advertised for the sake of old clients
    (KAFKA-18659) and answered by closing the connection.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    handle: MessageHandler | None = None
    raw: RawHandler | None = None
    refuse_below: int = 0


class Dispatch:
    """Turns frames into answers by the table of APIs."""

    def __init__(self, broker: Broker, apis: Iterable[Api]) -> None:
        self._broker = broker
        self.apis = {api.key: api for api in apis}

    def handle(
        self, connection: Connection, buffer: memoryview, position: int, end: int
    ) -> Parts | Coroutine[Any, Any, Parts | None] | None:
        """The answer to one frame's request; see `connection.FrameHandler`.

        Raises MalformedRequest and UnsupportedVersion for what ends the connection.
        """
        header = frames.read_request_header(buffer, position, end)
        api = self.apis.get(header.api_key)
        version = header.api_version
        if api is None:
            raise UnsupportedVersion(f"API key {header.api_key} is not served; see ApiVersions")
        context = Context(self._broker, connection, version, header.client_id)
        if not max(api.min_version, api.refuse_below) <= version <= api.max_version:
            if api.key == API_VERSIONS_KEY:
                # The one API that answers a version it does not know: in version 0, with error 35 (KIP-511).
                return self._answer(api, replace(context, api_version=0), None, header.correlation_id)
            raise UnsupportedVersion(
                f"{api.name} version {version} is not served; {api.min_version} to {api.max_version} are"
            )
        connection.client_id = header.client_id
        if api.raw is not None:
            return api.raw(RawRequest(context, buffer, header.body_position, end, header.correlation_id))
        request = messages.request_decoder(api.key, version)(bytes(buffer[header.body_position : end]), 0)
        return self._answer(api, context, request, header.correlation_id)

    async def _answer(self, api: Api, context: Context, request: Any, correlation_id: int) -> Parts:
        assert api.handle is not None
        started_ms = self._broker.clock.monotonic_ms()
        message = await api.handle(context, request, messages.reply(api.key, context.api_version))
        counters = self._broker.counters
        counters.requests[api.name] += 1
        counters.request_latency[api.name].observe(self._broker.clock.monotonic_ms() - started_ms)
        return framed(api.key, context.api_version, correlation_id, messages.encode(message))


_prefix = struct.Struct(">i")


def framed(api_key: int, api_version: int, correlation_id: int, body: bytes | bytearray) -> Parts:
    """One part: length, response header and body."""
    head = frames.response_header(correlation_id, api_key, api_version)
    if len(head) + len(body) > 0x7FFFFFFF:
        raise MalformedRequest("the answer would exceed 2 GiB; ask for less")
    return [_prefix.pack(len(head) + len(body)) + head + body]
