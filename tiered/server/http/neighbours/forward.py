"""Passes requests on to another broker's HTTP door, and asks it for what it alone knows.

Owns the one client session of the door and the bounds of a request between brokers: one hop, a short time to
connect, an answer that is never gathered in memory. A browser's headers (Origin, the token for changes) were checked
where it came in and go no further: nothing here lets anybody do what a program that reaches the port could not do
anyway. Whose rights count is said along with it (`rights`). Must never decide who should answer: `elsewhere` does.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from tiered.config.client_security import ClientSecurity
from tiered.config.listeners import SecurityProtocol, is_loopback
from tiered.config.tls import ListenerTls
from tiered.errors import InvalidRequest, Retriable
from tiered.peer.security import PeerSecurity
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.rights import on_behalf_of
from tiered.server.http.messages.body import body_of
from tiered.server.http.messages.origin import ORIGIN, SENDER, origin_of
from tiered.server.http.messages.schema import ANYTHING, Schema, check

log = logging.getLogger(__name__)

PASSED_ON = ("Accept", "Content-Type", "Last-Event-ID")
PASSED_BACK = (
    "Allow",
    "Cache-Control",
    "Content-Length",
    "Content-Type",
    "Location",
    "Retry-After",
    "X-Accel-Buffering",
)
CONNECT_S = 2.0
ASK_S = 2.0
READ_S = 10.0
TWO_QUESTIONS_S = 2.5
"""Longer than a busy machine keeps an event loop waiting. The console asks every three seconds."""
SECOND_QUESTION_AFTER_S = 1.0
PAUSE_AFTER_FAILURE_S = 0.3
IS_ALIVE = "/healthz"
SAFE_METHODS = ("GET", "HEAD")
# A stream that shows no sign of life for so many heartbeats has lost its broker.
SILENT_HEARTBEATS = 3
PIECE_BYTES = 64 << 10
MAX_CONNECTIONS = 300
MAX_ASKED_BYTES = 32 << 20


class Unreachable(Retriable):
    """The broker that must answer does not. The request may be tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another broker, and where its HTTP door is if it has told."""

    broker_id: int
    http_host: str | None
    http_port: int | None
    is_secure: bool = False

    def url(self, path: str) -> str:
        """`path` on its door. Raises Unreachable when nobody knows where that is."""
        if not self.http_host or not self.http_port:
            raise Unreachable(
                f"broker {self.broker_id} must answer this and has not said where its HTTP door is: ask it directly"
            )
        host = f"[{self.http_host}]" if ":" in self.http_host else self.http_host
        return f"{'https' if self.is_secure else 'http'}://{host}:{self.http_port}{path}"


class Connections:
    """Connections to the HTTP doors of other brokers: opened by their first use, kept for the next."""

    def __init__(self, tls: ListenerTls | None = None) -> None:
        """`tls` is that of our own door: others are believed and answered with the same certificates."""
        self._session: aiohttp.ClientSession | None = None
        security = ClientSecurity() if tls is None else ClientSecurity(protocol=SecurityProtocol.SSL, tls=tls.material)
        self._security = PeerSecurity(security)

    def ssl(self) -> ssl.SSLContext | bool:
        """For aiohttp: True is the system's certificate authorities."""
        return self._security.context() or True

    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept-Encoding"),
                auto_decompress=False,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


CONNECTIONS: web.AppKey[Connections] = web.AppKey("connections", Connections)


async def forward(request: web.Request, to: Neighbour) -> web.StreamResponse:
    """The answer of another broker to this request, passed on as it comes. Raises Unreachable.

    The deadline of the route, if it has one, bounds it as it bounds an answer of our own.
    """
    body = await body_of(request) if request.can_read_body else None
    headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
    # A request that changes nothing may soon be repeated; of a change the client should learn the outcome.
    silent_s = READ_S if request.method in SAFE_METHODS else None
    # A client may name a whole URL, as proxies are asked: its own path is what counts.
    path = request.raw_path if request.raw_path.startswith("/") else request.rel_url.raw_path_qs
    asked = asking(request, to, request.method, path, headers=headers, body=body, silent_s=silent_s)
    async with asked as answer:
        return await _passed_back(request, answer)


@asynccontextmanager
async def asking(
    request: web.Request,
    to: Neighbour,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    silent_s: float | None = None,
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer of another broker to a request of ours on behalf of `request`. It may be silent for `silent_s`, or
    else for as long as requests may take and heartbeats may be late.

    Raises Unreachable when there is none, or when it breaks off within the block.
    """
    counted = request.app[BROKER].counters.http_forwarded
    # The path is sent as it was written: yarl would decode and encode it anew.
    url = URL(to.url(path), encoded=True)
    sent = {
        **(headers or {}),
        SENDER: str(request.app[BROKER].broker_id),
        ORIGIN: origin_of(request),
        **on_behalf_of(request),
        **_own_login(request, to),
    }
    try:
        async with (
            request.app[CONNECTIONS]
            .session()
            .request(
                method,
                url,
                headers=sent,
                data=body,
                timeout=_patience(request, silent_s),
                allow_redirects=False,
                ssl=request.app[CONNECTIONS].ssl(),
            ) as answer
        ):
            yield answer
    except aiohttp.ClientError as error:
        counted["failed"] += 1
        raise Unreachable(
            f"broker {to.broker_id} must answer this and does not: {_shown(error)}; try again in a moment"
        ) from error
    counted["answered"] += 1


async def ask(request: web.Request, to: Neighbour, path: str, *, patience_s: float = ASK_S) -> Any:
    """The JSON of another broker's answer to GET `path`. Raises Unreachable, also when the answer is no success."""
    try:
        async with asyncio.timeout(patience_s), asking(request, to, "GET", path) as answer:
            content = await content_of(answer, to, MAX_ASKED_BYTES)
            if answer.status != 200:
                raise Unreachable(f"broker {to.broker_id} answers {answer.status}: {content[:200]!r}")
        return json.loads(content)
    except TimeoutError as error:
        request.app[BROKER].counters.http_forwarded["failed"] += 1
        raise Unreachable(
            f"broker {to.broker_id} does not answer within {patience_s:g} s; try again in a moment"
        ) from error
    except ValueError as error:
        raise Unreachable(f"broker {to.broker_id} answers without JSON: is that address its own?") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The outcome of up to two questions to one broker. `content` is the JSON of its answer to the first; None where it
    is too late or no success. A silent broker has answered neither."""

    content: Any
    is_silent: bool


async def ask_twice(request: web.Request, to: Neighbour, path: str, expected: Schema = ANYTHING) -> Reply:
    """The answer of another broker to GET `path`, and whether it answers at all.

    One answer that is late, lost or not as `expected` does not make a broker silent: it is asked a second time whether
    it lives. That costs it nothing, so that a broker with too much to do is not given more.
    """
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(_content_or_none(request, to, path, TWO_QUESTIONS_S, expected))
        await asyncio.wait({first}, timeout=SECOND_QUESTION_AFTER_S)
        if first.done():
            if first.result() is not None:
                return Reply(content=first.result(), is_silent=False)
            await asyncio.sleep(PAUSE_AFTER_FAILURE_S)
        patience_s = TWO_QUESTIONS_S - SECOND_QUESTION_AFTER_S
        second = tasks.create_task(_content_or_none(request, to, IS_ALIVE, patience_s))
    content = first.result()
    return Reply(content=content, is_silent=content is None and second.result() is None)


async def _content_or_none(
    request: web.Request, to: Neighbour, path: str, patience_s: float, expected: Schema = ANYTHING
) -> Any:
    try:
        content = await ask(request, to, path, patience_s=patience_s)
        check(content, expected, f"the answer of broker {to.broker_id}")
    except (Unreachable, InvalidRequest) as error:
        log.debug("an answer lacks what one broker knows: %s", error)
        return None
    return content


async def content_of(answer: aiohttp.ClientResponse, to: Neighbour, max_bytes: int) -> bytes:
    """The whole body. Raises Unreachable for one that is larger."""
    content = bytearray()
    async for some in answer.content.iter_chunked(PIECE_BYTES):
        content += some
        if len(content) > max_bytes:
            raise Unreachable(f"broker {to.broker_id} answers with more than {max_bytes} bytes")
    return bytes(content)


async def ask_all(request: web.Request, neighbours: Iterable[Neighbour], path: str) -> dict[int, Any]:
    """The answers of these brokers, by id; a broker that does not answer in time is missing."""
    found: dict[int, Any] = {}

    async def one(to: Neighbour) -> None:
        content = await _content_or_none(request, to, path, ASK_S)
        if content is not None:
            found[to.broker_id] = content

    async with asyncio.TaskGroup() as tasks:
        for each in neighbours:
            tasks.create_task(one(each))
    return found


async def ask_everybody(request: web.Request, neighbours: Sequence[Neighbour], path: str) -> dict[int, Any]:
    """The answers of these brokers, by id. Raises Unreachable when one is missing."""
    found = await ask_all(request, neighbours, path)
    missing = [str(each.broker_id) for each in neighbours if each.broker_id not in found]
    if missing:
        raise Unreachable(f"broker {', '.join(missing)} does not answer, and part of the whole is there; try again")
    return found


def _own_login(request: web.Request, to: Neighbour) -> dict[str, str]:
    """Raises Unreachable where this broker's password would cross the network in the clear."""
    broker = request.app[BROKER]
    login = broker.authentication.own_http_login()
    may_be_heard = is_loopback(to.http_host or "") or broker.settings.authentication.tiered_sasl_plain_without_tls
    if login and not (to.is_secure or may_be_heard):
        raise Unreachable(
            f"broker {to.broker_id} must answer this and speaks no https, so this broker's password would cross the "
            "network in the clear: give that broker --http https://…"
        )
    return login


def _patience(request: web.Request, silent_s: float | None) -> aiohttp.ClientTimeout:
    """Streams send heartbeats, everything else has a deadline."""
    if silent_s is not None:
        return aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silent_s)
    settings = request.app[BROKER].settings
    silent_ms = max(
        settings.http.tiered_tail_heartbeat_interval_ms * SILENT_HEARTBEATS,
        settings.http.tiered_http_request_timeout_ms,
    )
    return aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silent_ms / 1000.0)


async def _passed_back(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = {name: answer.headers[name] for name in PASSED_BACK if name in answer.headers}
    response = web.StreamResponse(status=answer.status, headers=headers)
    if "Content-Length" not in headers:
        response.force_close()
    await response.prepare(request)
    try:
        if request.method != "HEAD":
            async for some in answer.content.iter_any():
                await response.write(some)
        await response.write_eof()
    except ConnectionResetError:
        if answer.connection is not None and not answer.connection.transport:
            raise
        # Our own client has gone.
    return response


def _shown(error: BaseException) -> str:
    return "it takes too long" if isinstance(error, TimeoutError) else (str(error) or type(error).__name__)[:200]
