"""The limits on one request, and on all of them together.

Owns the count of requests in progress, and which streams are open. A request above the bound, or above its client's
share of it, is refused at once; one that takes longer than its deadline, a slow body included, is ended with 408.
Whether the broker lives is answered whatever else is in progress. Must never cut a change halfway: `admin` runs changes
in tasks of their own.
"""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field

from aiohttp import web

from tiered.account import OwnersShares, current_owner
from tiered.server.http.door.keys import SERVICE
from tiered.server.http.door.logins import OPEN_PATHS
from tiered.server.http.messages.failures import error_response
from tiered.server.http.messages.long_list import DEADLINE
from tiered.server.http.messages.route import Handler, Route


@dataclass(slots=True)
class RequestsState:
    """Requests in progress: those with a deadline, and streams, which have none, apart."""

    bounded_shares: OwnersShares = field(default_factory=OwnersShares)
    stream_shares: OwnersShares = field(default_factory=OwnersShares)
    streams_of: dict[Hashable, list[web.Request]] = field(default_factory=dict)
    """The open streams by owner, the newest last. A producer's streams are not among them: what it is sending would be
    lost."""
    ending: web.Request | None = None
    """The stream that gives its place to somebody who has none."""

    @property
    def bounded(self) -> int:
        return self.bounded_shares.total

    @property
    def streams(self) -> int:
        return self.stream_shares.total

    def make_room(self, owner: Hashable) -> None:
        """Ends a stream of the owner with the most, if `owner` has none: its next try finds the place. A stream has no
        end of its own, so that a few owners, each with its share, would keep everybody else out for good."""
        if self.ending is not None or owner in self.streams_of:
            return
        most = max(self.streams_of.values(), key=len, default=[])
        if len(most) > 1:
            self.ending = most[-1]
            if self.ending.transport is not None:
                self.ending.transport.abort()


IS_STREAM: web.RequestKey[bool] = web.RequestKey("is_stream", bool)
"""Set on a request whose answer may take as long as it likes."""
REQUESTS: web.AppKey[RequestsState] = web.AppKey("requests", RequestsState)


def limited(route: Route) -> Handler:
    """The route's handler within its bounds."""
    if route.path in OPEN_PATHS:
        return route.handler  # It is a look at what is in memory. An orchestrator ends a broker that does not answer.
    if not route.has_deadline:
        return _stream(_may_end(route.handler))
    if not route.takes_stream:
        return _with_deadline(route.handler)
    bounded, stream = _with_deadline(route.handler), _stream(route.handler)

    async def run(request: web.Request) -> web.StreamResponse:
        # A body whose end is not announced may go on for as long as there are records.
        return await (stream if request.content_length is None and request.can_read_body else bounded)(request)

    return run


def _with_deadline(handler: Handler) -> Handler:
    async def run(request: web.Request) -> web.StreamResponse:
        settings, shares = request.app[SERVICE].settings, request.app[REQUESTS].bounded_shares
        with shares.taken(settings.http.tiered_http_max_requests) as is_taken:
            if not is_taken:
                return _too_many(f"{shares.total} requests are in progress; try again in a moment")
            request[DEADLINE] = deadline = asyncio.timeout(settings.http.tiered_http_request_timeout_ms / 1000.0)
            try:
                async with deadline:
                    return await handler(request)
            except TimeoutError:
                if not deadline.expired():
                    raise
                if request.writer.output_size > 0:  # Another answer would be taken for the rest of this one.
                    raise ConnectionResetError("the answer was not read in time") from None
                if not request.content.is_eof():
                    return error_response(408, "the request did not arrive in time; send it faster, or less of it")
                return error_response(
                    504, "the broker did not finish in time; it may still do it: look, then try again"
                )

    return run


def _stream(handler: Handler) -> Handler:
    async def run(request: web.Request) -> web.StreamResponse:
        request[IS_STREAM] = True
        state = request.app[REQUESTS]
        with state.stream_shares.taken(request.app[SERVICE].settings.http.tiered_http_max_streams) as is_taken:
            if not is_taken:
                state.make_room(current_owner())
                return _too_many(f"{state.streams} streams are open; close one, or try again later")
            return await handler(request)

    return run


def _may_end(handler: Handler) -> Handler:
    """A stream of this one may be ended for somebody who has none."""

    async def run(request: web.Request) -> web.StreamResponse:
        state, owner = request.app[REQUESTS], current_owner()
        streams = state.streams_of.setdefault(owner, [])
        streams.append(request)
        try:
            return await handler(request)
        finally:
            streams.remove(request)
            if not streams:
                del state.streams_of[owner]
            if state.ending is request:
                state.ending = None

    return run


def _too_many(message: str) -> web.Response:
    return error_response(429, message, headers={"Retry-After": "1"})
