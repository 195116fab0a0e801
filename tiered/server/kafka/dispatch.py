"""Which request goes to which handler: the table of served APIs, and the answer's frame.

Owns the table. ApiVersions is derived from it, so every advertised API is served. Must never contain behaviour of an
API: that is in `api/<api>.py`.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Hashable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from tiered.account import Account, OwnersShares, OwnersTurns
from tiered.broker.broker import Broker
from tiered.errors import MalformedRequest, Throttled, TieredError
from tiered.runtime import in_turns as in_turns  # noqa: PLC0414 - handlers take it from here, as all that they need
from tiered.runtime import without_repeats as without_repeats  # noqa: PLC0414 - the same
from tiered.server.kafka import audited, throttling
from tiered.server.kafka.transport.connection import Connection
from tiered.server.kafka.transport.outbox import Parts
from tiered.server.kafka.transport.requests import Answer, CarriedOut, Overlapping
from tiered.server.kafka.transport.turns import Turns, Work
from tiered.wire import frames, messages
from tiered.wire.error_codes import UNSUPPORTED_VERSION
from tiered.wire.refusal import refusal

if TYPE_CHECKING:
    from tiered.read_replica.replica import ReadReplica  # A broker does not pay for it.

API_VERSIONS_KEY = 18
# Bodies above this size are decoded in turns, few at once: their objects take thirty times the bytes, and one of the
# smallest items alone half a microsecond a byte. Not in a thread: one that computes in Python takes the interpreter's
# lock, which the loop and SQL then wait for a thousand times a second.
LARGE_BODY_BYTES = 16 << 10
LARGE_AT_ONCE = 4
# Larger ones may have a hundred thousand objects: one at a time, whoever sends them. Side by side they took 100 MiB
# more, and the garbage collector 0.1 s now and then (docs/adr/0034).
HUGE_BODY_BYTES = 256 << 10
# One that asks SQL for each of its names takes minutes: after so long the next one begins beside it.
HUGE_TURN_S = 5.0
MAX_WAITING_BYTES = 32 << 20
# An answer that took this long to make may be large: it is encoded in pieces.
LONG_ANSWER_MS = 1.0
# Larger bodies are not copied behind their headers.
LARGE_ANSWER_BYTES = 64 << 10
MAX_CLIENT_ID = 256

T = TypeVar("T")


class Context(NamedTuple):
    """What a handler may use besides its request. (A NamedTuple: one is built for each request.)

    On a read replica `broker` is that replica, which has the parts of a broker that its handlers use.
    """

    broker: Broker
    connection: Connection
    api_version: int
    client_id: str | None
    throttle_ms: int = 0
    """What the answer tells the client at the least; its connection is muted already."""


class RawRequest(NamedTuple):
    """A request of a hand-written codec: its body is `buffer[position:end]`, gone once the handler returns."""

    context: Context
    buffer: memoryview
    position: int
    end: int
    correlation_id: int


def replica_of(context: Context) -> "ReadReplica":
    """The read replica, for a handler that only a read replica has."""
    return cast("ReadReplica", context.broker)


class Refused(NamedTuple):
    """A read replica's refusal of an API that changes something: its error code, in the answer's own shape."""

    code: int | None = None


class Later(NamedTuple):
    """What a handler returns in place of a reply when it only waits for others; see `Overlapping`."""

    done: "asyncio.Future[None]"
    """What it waits for."""
    reply: Callable[[], Awaitable[Any]]
    """For when that is done."""


RawHandler = Callable[[RawRequest], Answer]
MessageHandler = Callable[[Context, Any, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Api:
    """One row of the table: API `key` in `versions`, the first and the last.

    `rights` are what a client needs, in the words of docs/security-rights.md, or "none". Either `raw` handles the
    bytes, or `handle(context, request, reply)` takes kio's request object and the constructors of its reply, and gives
    the reply or Later; ApiVersions alone gets None, for a version that is not served. `refuse_below` names versions
    that are advertised for the sake of old clients (KAFKA-18659) and answered by closing the connection. `audit` says
    what an administrative request was about, and `audits` which requests are one. `on_replica` is what a read replica
    does instead of `handle` or `raw`, or the same; without it a read replica does not serve the API. One that
    `waits_for_clients` to ask for the same gives its turn among large requests up while it does, and goes with its
    client.
    """

    key: int
    name: str
    versions: tuple[int, int]
    rights: str = field(kw_only=True)
    handle: MessageHandler | None = None
    raw: RawHandler | None = None
    refuse_below: int = 0
    audit: audited.Tell | None = None
    audits: Callable[[Context], bool] = lambda _: True
    on_replica: MessageHandler | RawHandler | Refused | None = None
    waits_for_clients: bool = False


def _unserved(connection: Connection, api_key: int, api_version: int) -> Api | None:
    """How to answer an API, or a version of one, that is not served: UNSUPPORTED_VERSION in the answer's own shape.

    None when the messages of that version are not known: the client could not read any answer, so the connection is
    closed, as Kafka always does. The log has a line about it.
    """
    api = _refusing(api_key, api_version)
    end = "the connection is closed" if api is None else "UNSUPPORTED_VERSION is the answer"
    connection.complain_once(
        api_key, "%s asks for API key %d in version %d, which is not served: %s", api_key, api_version, end
    )
    if api is None:
        connection.close()
    return api


@cache
def _refusing(api_key: int, api_version: int) -> Api | None:
    package, first, last = messages.APIS.get(api_key, ("", 0, -1))
    if not first <= api_version <= last:
        return None
    name = package.title().replace("_", "")

    async def handle(_context: Context, request: Any, _reply: Any) -> Any:
        words = f"{name} version {api_version} is not served here; see ApiVersions"
        return refusal(api_key, api_version, request, UNSUPPORTED_VERSION, words)

    return Api(api_key, name, (api_version, api_version), rights="none", handle=handle)


class Dispatch:
    """Turns frames into answers by the table of APIs."""

    def __init__(self, served: "Broker | ReadReplica", apis: Iterable[Api]) -> None:
        """`apis` are rows for a broker, or for a read replica: its handlers see that it is one."""
        self._broker = cast(Broker, served)
        self._served = {
            (api.key, version): api
            for api in apis
            for version in range(max(api.versions[0], api.refuse_below), api.versions[1] + 1)
        }
        self._large_turns = asyncio.Semaphore(LARGE_AT_ONCE)
        self._huge_turn = asyncio.Semaphore(1)
        self.turns = Turns(served.clock.monotonic_ms)
        self._large_owners = OwnersTurns()
        self._large_shares = OwnersShares()

    @property
    def answers_large(self) -> bool:
        """Whether large requests wait or are being answered."""
        return self._large_shares.total > 0

    def handle(self, connection: Connection, buffer: memoryview, position: int, end: int) -> Answer | CarriedOut:
        """The answer to one frame's request; see `connection.FrameHandler`.

        Raises MalformedRequest for what ends the connection.
        """
        api_key, version, correlation_id, client_id, body_position = frames.read_request_header(buffer, position, end)
        context = Context(self._broker, connection, version, client_id)
        api = self._served.get((api_key, version))
        if api is None:
            # The one API that answers a version it does not know: in version 0, with error 35 (KIP-511).
            api = self._served.get((api_key, 0)) if api_key == API_VERSIONS_KEY else None
            if api is not None:
                return self._answer(api, context._replace(api_version=0), correlation_id, None)
            api = _unserved(connection, api_key, version)
            if api is None:
                return None
        connection.client_id = client_id and client_id[:MAX_CLIENT_ID]
        request = RawRequest(context, buffer, body_position, end, correlation_id)
        if self._broker.client_quotas.limits_requests:
            answer = self._handle_timed(api, request)
        elif api.raw is not None:
            return api.raw(request)
        else:
            answer = self._handle(api, request)
        if api.raw is None and isinstance(answer, Coroutine):
            begun = self.turns.begin(self._account(connection), cast(Work, answer))
            goes_on = end - body_position > LARGE_BODY_BYTES and not api.waits_for_clients
            return CarriedOut(begun) if goes_on and not isinstance(begun, list) else begun
        return answer

    def _handle_timed(self, api: Api, request: RawRequest) -> Answer:
        """Counts the time that the request takes of everybody's event loop; waits are not among it."""
        broker, connection = self._broker, request.context.connection
        context = request.context._replace(throttle_ms=throttling.request_rest_ms(broker, connection))
        request = request._replace(context=context)
        started_ms = broker.clock.monotonic_ms()
        try:
            answer = self._handle(api, request) if api.raw is None else api.raw(request)
        finally:
            throttling.used(broker, connection, started_ms)
        return throttling.timed(broker, connection, answer) if asyncio.iscoroutine(answer) else answer

    def _account(self, connection: Connection) -> Account:
        """Who takes turns with others, and pays for what SQL does."""
        owner = connection.owner
        if not self._broker.client_quotas.limits_requests:
            return Account(owner)
        return Account(owner, partial(throttling.charge, self._broker, connection))

    def _handle(self, api: Api, request: RawRequest) -> Answer:
        """The answer of an API without a hand-written codec."""
        context, correlation_id = request.context, request.correlation_id
        size_bytes = request.end - request.position
        if size_bytes > LARGE_BODY_BYTES:
            self._require_room(context, size_bytes)
        body = bytes(request.buffer[request.position : request.end])
        if size_bytes > LARGE_BODY_BYTES:
            return self._answer_large(api, context, correlation_id, body)
        # It is a step, too: one who sends many requests ahead must not have all of them decoded in one turn.
        decode = messages.request_decoder(api.key, context.api_version)
        message = self.turns.step(self._account(context.connection), partial(decode, body, 0))
        return self._answer(api, context, correlation_id, message)

    async def _answer_large(self, api: Api, context: Context, correlation_id: int, body: bytes) -> Parts | Overlapping:
        """Nothing is done where the client went before its turn came. Later it is carried out: to let go of half of it
        takes 40 ms at once."""
        owner, size_bytes = context.connection.owner, len(body)
        self._require_room(context, size_bytes)  # Others of the owner's may have come in the same turn of the loop.
        with self._large_shares.taken_by(owner, size_bytes):
            async with self._large_owners.taken_by(owner), self._in_huge_turn(size_bytes), self._large_turns:
                if context.connection.closed:
                    return []
                request = await _result_in_turns(
                    messages.request_decoder_in_pieces(api.key, context.api_version)(body, 0)
                )
                del body
                if not api.waits_for_clients:
                    return await self._answer_and_free(api, context, correlation_id, request, size_bytes)
        return await self._answer_and_free(api, context, correlation_id, request, 0)

    @asynccontextmanager
    async def _in_huge_turn(self, size_bytes: int) -> AsyncIterator[None]:
        if size_bytes <= HUGE_BODY_BYTES:
            yield
            return
        await self._huge_turn.acquire()
        is_over = False

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._huge_turn.release()

        timer = asyncio.get_running_loop().call_later(HUGE_TURN_S, end)
        try:
            yield
        finally:
            timer.cancel()
            end()

    async def _answer_and_free(
        self, api: Api, context: Context, correlation_id: int, request: Any, size_bytes: int
    ) -> Parts | Overlapping:
        """The answer to a large request, which has a share of so many bytes until its last part is over."""
        try:
            answer = await self._answer(api, context, correlation_id, request, large_bytes=size_bytes)
        except TieredError:
            await _freed_in_turns(request)
            raise
        if isinstance(answer, Overlapping):  # Its work goes on, and may need the request.
            self._large_shares.take(context.connection.owner, size_bytes)
        else:
            await _freed_in_turns(request)
        return answer

    def _require_room(self, context: Context, size_bytes: int) -> None:
        if not self._large_shares.has_room(context.connection.owner, size_bytes, MAX_WAITING_BYTES):
            raise Throttled("too many large requests wait for their turn; send fewer or smaller ones")

    async def _answer(
        self, api: Api, context: Context, correlation_id: int, request: Any, *, large_bytes: int = 0
    ) -> Parts | Overlapping:
        assert api.handle is not None
        started_ms = self._broker.clock.monotonic_ms()
        work = api.handle(context, request, messages.reply(api.key, context.api_version))
        message = await (work if api.audit is None else self._audited(api, context, request, work))
        if isinstance(message, Later):
            work = self._answer_late(api, context, correlation_id, message, started_ms)
            if large_bytes:
                work = self._freeing(context.connection.owner, request, large_bytes, work)
            return Overlapping(self.turns.after(message.done, self._account(context.connection), work))
        return await self._framed(api, context, correlation_id, message, started_ms, started_ms)

    async def _audited(self, api: Api, context: Context, request: Any, work: Awaitable[Any]) -> Any:
        """The result of `work`; what it was is written down."""
        assert api.audit is not None
        noted = partial(audited.noted, self._broker.audit, context.connection, api.audit, api.name, request)
        if not api.audits(context):
            return await work
        try:
            message = await work
        except BaseException:
            # Also when its client has gone: what was begun may be done all the same.
            self._broker.audit.finish(noted(None))
            raise
        steps = noted(message)
        try:
            async for _ in in_turns(steps):
                pass
        except BaseException:  # Its client has gone in a pause.
            self._broker.audit.finish(steps)
            raise
        return message

    async def _answer_late(
        self,
        api: Api,
        context: Context,
        correlation_id: int,
        later: Later,
        started_ms: float,
    ) -> Parts:
        made_from_ms = self._broker.clock.monotonic_ms()
        message = await later.reply()
        return await self._framed(api, context, correlation_id, message, started_ms, made_from_ms)

    async def _freeing(self, owner: Hashable, request: Any, size_bytes: int, work: Coroutine[Any, Any, Parts]) -> Parts:
        """What the work gives, the last part of a large request. Then its share is free again."""
        try:
            answer = await work
            await _freed_in_turns(request)
            return answer
        finally:
            self._large_shares.take(owner, -size_bytes)

    async def _framed(
        self, api: Api, context: Context, correlation_id: int, message: Any, started_ms: float, made_from_ms: float
    ) -> Parts:
        body: bytes | bytearray
        clock = self._broker.clock
        if context.throttle_ms and hasattr(message, "throttle_time"):
            message.throttle_time = max(message.throttle_time, context.throttle_ms)
        if clock.monotonic_ms() - made_from_ms > LONG_ANSWER_MS:
            body = await encoded_in_turns(message)
            if len(body) > LARGE_ANSWER_BYTES:
                await _freed_in_turns(message)
        else:
            body = messages.encode(message)
        counters = self._broker.counters
        counters.requests[api.name] += 1
        counters.request_latency[api.name].observe(clock.monotonic_ms() - started_ms)
        return framed(api.key, context.api_version, correlation_id, body)


async def _result_in_turns(pieces: Generator[None, None, T]) -> T:
    """What the generator returns. On the loop, as below."""
    results: list[T] = []

    def kept() -> Iterator[None]:
        results.append((yield from pieces))

    async for _ in in_turns(kept()):
        pass
    return results[0]


async def encoded_in_turns(message: Any) -> bytearray:
    """On the loop, not in a thread: one that computes in Python takes the interpreter's lock for longer."""
    out = bytearray()
    async for _ in in_turns(messages.encode_in_pieces(message, out)):
        pass
    return out


async def _freed_in_turns(message: Any) -> None:
    async for _ in in_turns(messages.freed_in_pieces(message)):
        pass


_prefix = struct.Struct(">i")


def framed(api_key: int, api_version: int, correlation_id: int, body: bytes | bytearray) -> Parts:
    """Length, response header and body, in one part unless the body is large."""
    head = frames.response_header(correlation_id, api_key, api_version)
    length = len(head) + len(body)
    if length > 0x7FFFFFFF:
        raise MalformedRequest("the answer would exceed 2 GiB; ask for less")
    if length > LARGE_ANSWER_BYTES:
        return [_prefix.pack(length) + head, body]
    return [_prefix.pack(length) + head + body]
