"""Which request goes to which handler of a read replica. ApiVersions is derived from the same table.

Owns the table and the answer's frame. Must never contain behaviour of an API.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tiered.broker.read_only.replica import ReadReplica
from tiered.errors import MalformedRequest, Throttled
from tiered.server.kafka import unserved
from tiered.server.kafka.dispatch import (
    API_VERSIONS_KEY,
    LARGE_AT_ONCE,
    LARGE_BODY_BYTES,
    LONG_ANSWER_MS,
    MAX_CLIENT_ID,
    MAX_WAITING_BYTES,
    Api,
    encoded_in_turns,
    framed,
)
from tiered.server.kafka.transport.connection import Connection
from tiered.server.kafka.transport.frame_handler import Answer
from tiered.server.kafka.transport.outbox import Parts
from tiered.server.kafka.transport.turns import Turns
from tiered.wire import frames, messages


class ReadContext(NamedTuple):
    """What a handler may use besides its request."""

    replica: ReadReplica
    connection: Connection
    api_version: int


class RawRead(NamedTuple):
    """A request of a hand-written codec: its body is `buffer[position:end]`, gone once the handler returns."""

    context: ReadContext
    buffer: memoryview
    position: int
    end: int
    correlation_id: int


Handler = Callable[[ReadContext, Any, Any], Awaitable[Any]]
RawHandler = Callable[[RawRead], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadApi:
    """One row: the versions are those of the API that brokers serve. Either `raw` handles the bytes, or
    `handle(context, request, reply)` takes kio's request object and the constructors of its reply."""

    of: Api
    handle: Handler | None = None
    raw: RawHandler | None = None


class ReadDispatch:
    """Turns frames into answers by the table of APIs."""

    def __init__(self, replica: ReadReplica, apis: Iterable[ReadApi]) -> None:
        self._replica = replica
        self._apis = {api.of.key: api for api in apis}
        self._large_turns = asyncio.Semaphore(LARGE_AT_ONCE)
        self._turns = Turns(replica.clock.monotonic_ms)
        self._large_bytes = 0

    def handle(self, connection: Connection, buffer: memoryview, position: int, end: int) -> Answer:
        """The answer to one frame's request. Raises MalformedRequest for what ends the connection."""
        header = frames.read_request_header(buffer, position, end)
        api = self._apis.get(header.api_key)
        version = header.api_version
        context = ReadContext(self._replica, connection, version)
        if api is None or not max(api.of.min_version, api.of.refuse_below) <= version <= api.of.max_version:
            if api is not None and api.of.key == API_VERSIONS_KEY:
                # The one API that answers a version it does not know: in version 0, with error 35 (KIP-511).
                return self._answer(api, context._replace(api_version=0), header.correlation_id, None)
            refused = unserved.refuse(connection, header.api_key, version)
            if refused is None:
                return None
            api = ReadApi(of=Api(header.api_key, refused.name, version, version), handle=refused.handle)
        connection.client_id = header.client_id and header.client_id[:MAX_CLIENT_ID]
        if api.raw is not None:
            return api.raw(RawRead(context, buffer, header.body_position, end, header.correlation_id))
        body = bytes(buffer[header.body_position : end])
        if len(body) > LARGE_BODY_BYTES:
            if self._large_bytes + len(body) > MAX_WAITING_BYTES:
                raise Throttled("too many large requests wait for their turn; send fewer or smaller ones")
            large = self._answer_large(api, context, header.correlation_id, body)
            return self._turns.taking((context.connection.principal, context.connection.host), large)
        request = messages.request_decoder(api.of.key, version)(body, 0)
        work = self._answer(api, context, header.correlation_id, request)
        return self._turns.taking((context.connection.principal, context.connection.host), work)

    async def _answer_large(self, api: ReadApi, context: ReadContext, correlation_id: int, body: bytes) -> Parts:
        self._large_bytes += len(body)
        try:
            async with self._large_turns:
                decode = messages.request_decoder(api.of.key, context.api_version)
                request = await asyncio.to_thread(decode, body, 0)
                return await self._answer(api, context, correlation_id, request)
        finally:
            self._large_bytes -= len(body)

    async def _answer(self, api: ReadApi, context: ReadContext, correlation_id: int, request: Any) -> Parts:
        assert api.handle is not None
        clock, counters = self._replica.clock, self._replica.counters
        started_ms = clock.monotonic_ms()
        message = await api.handle(context, request, messages.reply(api.of.key, context.api_version))
        body: bytes | bytearray
        if clock.monotonic_ms() - started_ms > LONG_ANSWER_MS:
            body = await encoded_in_turns(message)
        else:
            body = messages.encode(message)
        counters.requests[api.of.name] += 1
        counters.request_latency[api.of.name].observe(clock.monotonic_ms() - started_ms)
        return framed(api.of.key, context.api_version, correlation_id, body)


def too_many_partitions(limit: int) -> MalformedRequest:
    """Why a connection ends whose Fetch asks for more partitions than there can be."""
    return MalformedRequest(f"a Fetch asks for more than {limit} partitions; more cannot be (tiered.max.partitions)")
