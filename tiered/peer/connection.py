"""One connection to one broker: frames out, frames in, one request at a time.

Owns its socket and the negotiated API versions. Must never decode a record, and never repeat a request: whether
that is safe is the caller's to know. TLS is asyncio's own, and `login` says who we are.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, Self, TypeVar

from tiered import __version__, errors
from tiered.config.addresses import host_and_port
from tiered.peer.answers import ConnectionLost, CorruptAnswer, require_success
from tiered.peer.login import LoginState
from tiered.peer.security import PLAINTEXT, PeerSecurity, tls_failed
from tiered.runtime import release_transport
from tiered.wire import fetch, frames, messages, produce
from tiered.wire.error_codes import UNSUPPORTED_VERSION
from tiered.wire.primitives import Buffer

API_VERSIONS = 18
CLIENT_ID = "tiered"
MAX_FRAME_BYTES = 128 << 20
TIMEOUT_MS = 30_000
START_BYTES = 4 << 10
"""Most answers that are asked for often are shorter than this, and so take one read."""
KEPT_BYTES = 4 << 20
"""A buffer for records that is not larger than this is kept for the next answer."""
EARNEST_BYTES = 64 << 10
LOW_WATER_BYTES = 512 << 10
"""Of the rest of a long answer, so much at once is waited for: each piece costs a turn of the loop."""
UNASKED = "a broker sent a frame that was not asked for"

# Topics go by name here: from the next version on they would go by id.
_LAST_FETCH_BY_NAME = fetch.FIRST_WITH_TOPIC_IDS - 1
# Version 12 promises the second version of the transaction protocol: it adds partitions to transactions (KIP-890).
_LAST_PRODUCE, _PRODUCE_IN_TRANSACTIONS = 11, 12

T = TypeVar("T")


class _Frames(asyncio.BufferedProtocol):
    """Receives answers, one awaited at a time: small ones in one read, the rest of large ones where it belongs.

    With `keeps_buffer` an answer is there only until the next request: memory for a MiB costs as much as receiving it.
    """

    def __init__(self, *, keeps_buffer: bool) -> None:
        self._start = memoryview(bytearray(START_BYTES))
        """Where a frame begins, and most of them end."""
        self._keeps_buffer = keeps_buffer
        self._kept = bytearray()
        self._frame: memoryview | None = None
        """A frame that is longer than that."""
        self._filled = 0
        self._low_water = 1
        self._answer: asyncio.Future[memoryview] | None = None
        self._deadline_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        """For the deadline of an exchange; one that is early only looks again, so that few are made."""
        self._lost: Exception | None = None
        self._transport: asyncio.Transport | None = None
        self._is_plain = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # Under TLS the kernel counts other bytes than those of the answer.
        self._is_plain = transport.get_extra_info("ssl_object") is None

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._start[self._filled :] if self._frame is None else self._frame[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._frame is None and self._filled >= frames.LENGTH_BYTES:
            self._begin_frame()
        if self._frame is None:
            return
        left = len(self._frame) - self._filled
        if left > 0:
            self._set_low_water(min(left, LOW_WATER_BYTES) if left >= EARNEST_BYTES else 1)
            return
        self._set_low_water(1)
        frame, self._frame, self._filled = self._frame, None, 0
        if self._answer is None or self._answer.done():
            self._fail(CorruptAnswer(UNASKED))
            return
        self._answer.set_result(frame)
        if left < 0:
            self._fail(CorruptAnswer(UNASKED))

    def _begin_frame(self) -> None:
        length = int.from_bytes(self._start[: frames.LENGTH_BYTES], "big", signed=True)
        if not frames.LENGTH_BYTES <= length <= MAX_FRAME_BYTES:
            self._filled = 0
            self._fail(
                CorruptAnswer(f"an answer announces {length} bytes; {MAX_FRAME_BYTES} are allowed: is this Kafka?")
            )
            return
        self._filled -= frames.LENGTH_BYTES
        self._frame = self._memory(length)
        here = min(length, self._filled)
        self._frame[:here] = self._start[frames.LENGTH_BYTES : frames.LENGTH_BYTES + here]

    def _memory(self, length: int) -> memoryview:
        if not self._keeps_buffer or length <= START_BYTES or length > KEPT_BYTES:
            return memoryview(bytearray(length))
        if len(self._kept) < length:
            self._kept = bytearray(min(KEPT_BYTES, 2 * length))
        return memoryview(self._kept)[:length]

    def _set_low_water(self, wanted: int) -> None:
        """Asks the kernel to wake us for so many bytes at once."""
        transport = self._transport
        if wanted != self._low_water and self._is_plain and transport is not None and not transport.is_closing():
            self._low_water = wanted
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)

    def connection_lost(self, error: Exception | None) -> None:
        release_transport(self._transport)
        # With TLS 1.3 a client hears only after its handshake that its certificate is refused.
        refused = tls_failed("the broker", error) if isinstance(error, OSError) and not self._is_plain else None
        self._fail(refused or ConnectionLost(f"the broker closed the connection ({error or 'end of stream'})"))

    def _fail(self, error: Exception) -> None:
        self._lost = self._lost or error
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(copy(self._lost))
        self.close()

    def close(self) -> None:
        self._lost = self._lost or ConnectionLost("the connection was closed here")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_open(self) -> bool:
        return self._lost is None

    async def exchange(self, parts: Iterable[Buffer], timeout_ms: float | None = None) -> memoryview:
        """The answer to a frame made of `parts`. Raises what ended the connection, and TimeoutError."""
        if self._lost is not None:
            # What is raised holds the frames that it came through, and this connection with them.
            raise copy(self._lost)
        assert self._transport is not None, "not connected"
        assert self._answer is None, "a request is under way"
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        if timeout_ms is not None:
            self._deadline_s = loop.time() + timeout_ms / 1000.0
            if self._timer is None or self._timer.when() > self._deadline_s:
                self._set_timer(loop)
        try:
            self._transport.writelines(parts)
            return await self._answer
        finally:
            self._answer = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._deadline_s, self._on_timer, loop)

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._answer is None or self._answer.done():
            return
        if loop.time() < self._deadline_s:
            self._set_timer(loop)
        else:
            self._answer.set_exception(TimeoutError())


class Peer:
    """One connection to one broker. Requests wait for each other; a time-out or a cancellation ends the connection,

    for its answer would be taken for the next one's.
    """

    def __init__(self, connection: _Frames, address: str, client_id: str, timeout_ms: float, login: LoginState) -> None:
        self._connection = connection
        self._login = login
        self._address = address
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._turn = asyncio.Lock()
        self._correlation_id = 0
        self.versions: dict[int, tuple[int, int]] = {}

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = CLIENT_ID,
        timeout_ms: float = TIMEOUT_MS,
        keeps_buffer: bool = False,
        security: PeerSecurity | None = None,
    ) -> Self:
        """A connection whose API versions are known. Raises ConnectionLost, RequestTimedOut, CorruptAnswer.

        With `keeps_buffer` the records of an answer are gone when the next request begins.
        """
        address = host_and_port(host, port)
        loop = asyncio.get_running_loop()
        tls = None if security is None else security.context()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, connection = await loop.create_connection(
                    lambda: _Frames(keeps_buffer=keeps_buffer), host, port, ssl=tls
                )
        except TimeoutError:
            raise errors.RequestTimedOut(f"{address} did not accept a connection in {timeout_ms:g} ms") from None
        except OSError as error:
            lost = ConnectionLost(f"{address} cannot be reached ({error}); check address and broker")
            raise (tls_failed(address, error) if tls is not None else None) or lost from None
        except (ValueError, OverflowError) as error:  # Brokers tell each other's addresses, and may tell anything.
            raise CorruptAnswer(f"{address[:300]!r} is no address of a broker ({error})") from None
        login = LoginState(PLAINTEXT if security is None else security.security, address)
        peer = cls(connection, address, client_id, timeout_ms, login)
        try:
            await peer._negotiate()
            async with asyncio.timeout(timeout_ms / 1000):
                await peer._log_in_when_due()
        except TimeoutError:
            connection.close()
            raise errors.RequestTimedOut(f"{address} did not answer a login in {timeout_ms:g} ms") from None
        except BaseException:
            connection.close()
            raise
        return peer

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    def close(self) -> None:
        """Ends the connection; a request under way raises ConnectionLost."""
        self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def _negotiate(self) -> None:
        """Asks for the API versions; a broker that is older than our question answers in version 0 (KIP-511)."""
        version = 3
        asked = messages.request(API_VERSIONS, version)
        body = messages.encode(
            asked.ApiVersionsRequest(client_software_name="tiered", client_software_version=__version__)
        )
        answer, position = await self.exchange(API_VERSIONS, version, [body])
        if int.from_bytes(answer[position : position + 2], "big") == UNSUPPORTED_VERSION:
            version = 0
            answer, position = await self.exchange(API_VERSIONS, version, [])
        found = self._message(API_VERSIONS, version, answer, position)
        require_success(found, f"{self._address} did not say which APIs it serves")
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in found.api_keys}

    def version_of(self, api_key: int, at_most: int | None = None) -> int:
        """The highest version of an API that both sides know. Raises UnsupportedVersion."""
        package, first, last = messages.APIS[api_key]
        lowest, highest = self.versions.get(api_key, (0, -1))
        version = min(highest, last if at_most is None else at_most)
        if version < max(lowest, first):
            raise errors.UnsupportedVersion(f"{self._address} serves no version of {package} that is known here")
        return version

    async def request(
        self,
        api_key: int,
        build: Callable[[messages.Messages], Any],
        *,
        at_most: int | None = None,
        timeout_ms: float | None = None,
    ) -> Any:
        """The response message to the request that `build(constructors)` makes, in the highest common version.

        Error codes inside the response are the caller's to look at. Raises UnsupportedVersion, RequestTimedOut,
        ConnectionLost and CorruptAnswer.
        """
        version = self.version_of(api_key, at_most)
        body = messages.encode(build(messages.request(api_key, version)))
        answer, position = await self.exchange(api_key, version, [body], timeout_ms=timeout_ms)
        return self._message(api_key, version, answer, position)

    async def fetch_as_replica(self, request: fetch.FetchRequest) -> fetch.FetchResponse:
        """As `fetch`, for a broker that follows this one: topics by id, in a version that knows replicas' epochs.

        Records are writable views of the answer. Not to be used beside other requests of this connection.
        """
        version = self.version_of(fetch.API_KEY)
        if version < fetch.FIRST_WITH_DIRECTORY_ID:
            raise errors.UnsupportedVersion(f"{self._address} serves no Fetch that followers can use; upgrade it")
        body = fetch.encode_fetch_request(request, version)
        limit_ms = self._timeout_ms + request.max_wait_ms
        try:
            if self._login.is_due:
                async with asyncio.timeout(limit_ms / 1000):
                    await self._log_in_when_due()
            answer, position = await self._exchange_now(fetch.API_KEY, version, [body], limit_ms)
        except TimeoutError:
            raise self._timed_out(fetch.API_KEY, limit_ms) from None
        return self._parsed(lambda: fetch.decode_fetch_response(answer, position, len(answer), version))

    async def fetch(self, request: fetch.FetchRequest) -> fetch.FetchResponse:
        """Topics by name; records are views of the answer. Waits up to the request's `max_wait_ms` longer."""
        version = self.version_of(fetch.API_KEY, _LAST_FETCH_BY_NAME)
        body = fetch.encode_fetch_request(request, version)
        timeout_ms = self._timeout_ms + request.max_wait_ms
        answer, position = await self.exchange(fetch.API_KEY, version, [body], timeout_ms=timeout_ms)
        return self._parsed(lambda: fetch.decode_fetch_response(answer, position, len(answer), version))

    async def produce(
        self,
        topics: Sequence[produce.TopicBatches],
        *,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> produce.ProduceResponse:
        """Topics by name. `acks` 0 is not possible here: it has no answer.

        With a transactional id the partitions become part of its transaction, without being added first.
        """
        assert acks != 0, "acks=0 has no answer to wait for"
        version = self.version_of(
            produce.API_KEY, _LAST_PRODUCE if transactional_id is None else _PRODUCE_IN_TRANSACTIONS
        )
        if transactional_id is not None and version < _PRODUCE_IN_TRANSACTIONS:
            raise errors.UnsupportedVersion(f"{self._address} adds no partitions to transactions; upgrade it")
        body = produce.encode_produce_request(
            topics, version, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id
        )
        wait_ms = self._timeout_ms + timeout_ms
        answer, position = await self.exchange(produce.API_KEY, version, [body], timeout_ms=wait_ms)
        return self._parsed(lambda: produce.decode_produce_response(answer, position, len(answer), version))

    async def exchange(
        self, api_key: int, api_version: int, body: Sequence[Buffer], *, timeout_ms: float | None = None
    ) -> tuple[memoryview, int]:
        """(answer, position of its body) to a request with this body, whatever it says."""
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000), self._turn:
                if self.versions:
                    await self._log_in_when_due()
                return await self._exchange_now(api_key, api_version, body)
        except TimeoutError:
            raise self._timed_out(api_key, limit_ms) from None

    async def _log_in_when_due(self) -> None:
        """A login that fails ends the connection."""
        if not self._login.is_due:
            return
        try:
            await self._login.carry_out(self._ask_now)
        except BaseException:
            self._connection.close()
            raise

    async def _ask_now(self, api_key: int, build: Callable[[messages.Messages], Any]) -> Any:
        version = self.version_of(api_key)
        body = messages.encode(build(messages.request(api_key, version)))
        answer, position = await self._exchange_now(api_key, version, [body])
        return self._message(api_key, version, answer, position)

    def _timed_out(self, api_key: int, limit_ms: float) -> errors.RequestTimedOut:
        return errors.RequestTimedOut(
            f"{self._address} did not answer API key {api_key} in {limit_ms:g} ms; its outcome is unknown"
        )

    async def _exchange_now(
        self, api_key: int, api_version: int, body: Sequence[Buffer], timeout_ms: float | None = None
    ) -> tuple[memoryview, int]:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        correlation_id = self._correlation_id
        header = frames.request_header(api_key, api_version, correlation_id, self._client_id)
        length = frames.frame_length(len(header) + sum(len(each) for each in body))
        try:
            answer = await self._connection.exchange([length + header, *body], timeout_ms)
        except BaseException:
            self._connection.close()
            raise
        found, position = self._parsed(
            lambda: frames.read_response_header(answer, 0, len(answer), api_key, api_version)
        )
        if found != correlation_id:
            self._connection.close()
            raise CorruptAnswer(f"{self._address} answered request {found} when {correlation_id} was asked")
        return answer, position

    def _message(self, api_key: int, version: int, answer: memoryview, position: int) -> Any:
        return self._parsed(lambda: messages.response_decoder(api_key, version)(bytes(answer), position))

    def _parsed(self, parse: Callable[[], T]) -> T:
        """The result of `parse`. An answer that does not parse ends the connection."""
        try:
            return parse()
        except errors.MalformedRequest as error:
            self._connection.close()
            raise CorruptAnswer(f"an answer of {self._address} does not parse: {error}") from None
