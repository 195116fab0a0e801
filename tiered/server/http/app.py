"""The HTTP server: the routes behind their guards, on a socket.

Owns the application's set-up and the answer to an exception. Must never hold state of its own: every answer is read
from the broker, or from another broker that must give it.
"""

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import RequestPayloadError
from yarl import URL

from tiered.broker.broker import Broker
from tiered.errors import TieredError
from tiered.rules.security.certificate_names import PrincipalMapping
from tiered.server.http.door import browser_guard, limits, logins, quotas, rights
from tiered.server.http.door.audited import audited
from tiered.server.http.door.connection import Gate, HttpConnection
from tiered.server.http.door.keys import BROKER, SERVICE, Service
from tiered.server.http.door.open_connections import OpenConnections
from tiered.server.http.messages import openapi
from tiered.server.http.messages.body import BODY_GUARD, BodyGuard
from tiered.server.http.messages.failures import error_response, response_for
from tiered.server.http.messages.parameters import LARGE_BODY_TURN
from tiered.server.http.messages.route import Handler, Route
from tiered.server.http.metrics.by_name import CHOSEN, Chosen
from tiered.server.http.metrics.cluster_view import VIEWS, ClusterViews
from tiered.server.http.neighbours.forward import CONNECTIONS, Connections
from tiered.server.http.neighbours.produce import ROUTER, RecordRouter
from tiered.server.http.routes import ROUTES
from tiered.server.kafka.transport.turns import Turns
from tiered.tls import Reloaded

log = logging.getLogger(__name__)

SHUTDOWN_S = 2.0
BACKLOG = 128
ACCEPTS_A_TURN = 8
"""Of the event loop. asyncio accepts as many as its `backlog` has at once, and each takes a third of a millisecond."""
MAX_PIECES = 16
"""Of a path. The deepest route has ten."""
MAX_CLUSTER_ID_CHARS = 80
MakeRequest = Callable[..., web.BaseRequest]


def application(broker: Broker) -> web.Application:
    """The routes of this version, with errors as JSON: `{"error_code": …, "message": …}`."""
    app = guarded(broker, ROUTES)
    app[BROKER] = broker
    app[BODY_GUARD] = BodyGuard(rights.require_again)
    app[VIEWS] = ClusterViews()
    app[CHOSEN] = Chosen()
    app[CONNECTIONS] = Connections(broker.options.http_tls)
    app[ROUTER] = RecordRouter()
    app.on_cleanup.append(lambda app: app[CONNECTIONS].close())
    return app


def guarded(service: Service, routes: Sequence[Route]) -> web.Application:
    """An application of these routes, behind everything that guards a door."""
    app = web.Application(
        middlewares=[
            _counted,
            quotas.in_turn,
            audited,
            _errors_as_json,
            browser_guard.same_origin_only,
            logins.known_by_certificate,
            logins.logged_in,
            rights.authorized,
            quotas.accounted,
        ]
    )
    app[SERVICE] = service
    app[browser_guard.CSRF_TOKEN] = browser_guard.new_token()
    app[limits.REQUESTS] = limits.RequestsState()
    app[quotas.TURNS] = Turns(service.clock.monotonic_ms)
    app[LARGE_BODY_TURN] = asyncio.Semaphore(1)
    app[logins.WAITING] = asyncio.Semaphore(logins.MAX_AT_ONCE)
    tls = service.options.http_tls
    app[logins.MAPPING] = PrincipalMapping("DEFAULT" if tls is None else tls.principal_mapping_rules)
    app[openapi.DOCUMENT] = json.dumps(openapi.document_of(routes)).encode()
    app.on_response_prepare.append(browser_guard.add_headers)
    for route in routes:
        handler = limits.limited(route)
        if route.method == "GET":
            app.router.add_get(_pattern_of(route.path), handler, allow_head=route.has_deadline)
        else:
            app.router.add_route(route.method, _pattern_of(route.path), handler)
    return app


class HttpServer:
    """Serves an application on a bound socket between `start` and `stop`."""

    def __init__(self, app: web.Application) -> None:
        self._service = app[SERVICE]
        # A handler whose client has gone is cancelled: no client waits for its answer.
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=SHUTDOWN_S)
        self._tls: Reloaded | None = None
        self._handshake_s: float | None = None
        self._listening: asyncio.Server | None = None
        # aiohttp has a list too, but many connections that come at once are not in it before all are accepted.
        self._open = OpenConnections(lambda: self._service.settings.http.tiered_http_max_connections)

    async def start(self, sock: socket.socket, tls: Reloaded | None = None, handshake_s: float | None = None) -> None:
        """Takes the socket. With `tls` nothing else is spoken; a new connection is shown the newest certificates."""
        self._tls, self._handshake_s = tls, handshake_s
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        server.request_factory = _with_checked_targets(server.request_factory)
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._accepted, sock=sock, backlog=ACCEPTS_A_TURN)
        sock.listen(BACKLOG)

    async def stop(self) -> None:
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()

    def _accepted(self) -> asyncio.Protocol:
        context = None if self._tls is None else self._tls.current
        return Gate(self._open, self._connection, context=context, handshake_s=self._handshake_s)

    def _connection(self, address: str) -> asyncio.Protocol:
        server, settings = self._runner.server, self._service.settings
        assert server is not None
        patience_s = settings.http.tiered_http_request_timeout_ms / 1000.0
        return HttpConnection(server, self._open, address, patience_s=patience_s)


def _pattern_of(path: str) -> str:
    """A route's path as the router is told it.

    Nearly every route begins with a cluster's id, and one pattern is tried after the other: a long name there must end
    each at once.
    """
    return path.replace("{cluster_id}", f"{{cluster_id:[^/{{}}]{{1,{MAX_CLUSTER_ID_CHARS}}}}}")


def _with_checked_targets(make_request: MakeRequest) -> MakeRequest:
    """The same, for any target that a client can write: what would cost the router much, or break it, is made harmless.

    aiohttp looks for the longest route that a path begins with, piece by piece from its end, which takes the square of
    their number; and it forgets a connection whose request it cannot make.
    """

    def make(message: RawRequestMessage, *others: Any) -> web.BaseRequest:
        return make_request(message._replace(url=_checked(message.url)), *others)

    return make


def _checked(url: URL) -> URL:
    """The path and the query. The Host header says whose (`browser_guard`); a name in the target may be unreadable.

    A path of too many pieces loses some: it is served nowhere, with them or without.
    """
    if url.absolute:
        url = url.relative()
    if not url.raw_path:
        return url.with_path("/", keep_query=True)
    pieces = url.raw_path.split("/", MAX_PIECES + 1)
    return url.with_path("/".join(pieces[: MAX_PIECES + 1]), encoded=True) if len(pieces) > MAX_PIECES + 1 else url


@web.middleware
async def _counted(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Counts requests by what is served, never by what was asked: names that clients choose have no bound."""
    service = request.app[SERVICE]
    started_ms = service.clock.monotonic_ms()
    response = await handler(request)
    resource = request.match_info.route.resource
    route, method = (resource.canonical, request.method) if resource is not None else ("other", "other")
    if response.status == 405:
        method = "other"
    service.counters.http_requests[method, route, response.status] += 1
    if not request.get(limits.IS_STREAM, False):
        service.counters.http_latency[route].observe(service.clock.monotonic_ms() - started_ms)
    return response


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Exception as error:
        if request.writer.output_size > 0:
            # Another answer would be taken for the rest of the one that has begun.
            if not isinstance(error, ConnectionError):
                log.exception("%s %s failed in the middle of its answer", request.method, request.path)
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the answer was broken off") from error
        answer = _answer_to(request, error)
        # A request holds the error of a path that is not there, whose frames would hold the request.
        error.__traceback__ = None
        return answer


def _answer_to(request: web.Request, error: Exception) -> web.Response:
    match error:
        case web.HTTPException():
            if error.status < 400:
                raise error
            return _as_json(request, error)
        case TieredError():
            return response_for(request, error)
        case RequestPayloadError():
            return error_response(400, f"the body cannot be read: {error}")
        case _:
            log.error("%s %s failed in an unforeseen way", request.method, request.path, exc_info=error)
            return error_response(500, "the broker failed in an unforeseen way; its log has the details")


def _as_json(request: web.Request, error: web.HTTPException) -> web.Response:
    if isinstance(error, web.HTTPMethodNotAllowed):
        methods = ", ".join(sorted(error.allowed_methods))
        message = f"{request.method[:20]} is not possible here; {methods} are"
        return error_response(405, message, headers={"Allow": methods})
    if error.status == 404:
        return error_response(404, f"nothing is served at {request.path[:200]}; /openapi.json lists what is")
    return error_response(error.status, error.reason)
