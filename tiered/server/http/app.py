"""The HTTP server: which route goes where, and what an error looks like.

Owns the application's set-up and its limits. Must never hold state of its own: every answer is read from
the broker.
"""

import logging
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.errors import (
    Corrupt,
    Fenced,
    Invalid,
    OutOfRange,
    Retriable,
    TieredError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tiered.server.http import routes_catalogue, routes_health, routes_metrics
from tiered.server.http.keys import BROKER

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 1 << 20
KEEPALIVE_S = 60.0
SHUTDOWN_S = 2.0

_STATUS: tuple[tuple[type[TieredError], int], ...] = (
    (UnknownTopicOrPartition, 404),
    (UnknownTopicId, 404),
    (Retriable, 503),
    (Fenced, 409),
    (OutOfRange, 416),
    (Corrupt, 500),
    (Invalid, 400),
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(broker: Broker) -> web.Application:
    """The routes of this version, with errors as JSON: `{"error_code": …, "message": …}`."""
    app = web.Application(client_max_size=MAX_REQUEST_BYTES, middlewares=[_errors_as_json])
    app[BROKER] = broker
    routes_health.add(app)
    routes_metrics.add(app)
    routes_catalogue.add(app)
    return app


class HttpServer:
    """Serves `application` on a bound socket between `start` and `stop`."""

    def __init__(self, broker: Broker) -> None:
        self._runner = web.AppRunner(
            application(broker), access_log=None, keepalive_timeout=KEEPALIVE_S, shutdown_timeout=SHUTDOWN_S
        )

    async def start(self, sock: socket.socket) -> None:
        await self._runner.setup()
        await web.SockSite(self._runner, sock).start()

    async def stop(self) -> None:
        await self._runner.cleanup()


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return error_response(error.status, error.reason)
    except TieredError as error:
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
        return error_response(status, str(error))
    except Exception:
        log.exception("%s %s failed in an unforeseen way", request.method, request.path)
        return error_response(500, "the broker failed in an unforeseen way; its log has the details")


def error_response(status: int, message: str) -> web.Response:
    """An error as clients see it. `error_code` repeats the HTTP status."""
    return web.json_response({"error_code": status, "message": message}, status=status)
