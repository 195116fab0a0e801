"""The status and the body of an error over HTTP. The only place that assigns statuses.

Owns the table. A kind without a row of its own takes the row of its nearest base class. Must never let a
traceback or a driver's words out.
"""

import math
from collections.abc import Mapping

from aiohttp import web

from tiered import errors
from tiered.rules.security.sasl.failures import AuthenticationFailed, UserExists, UserNotFound
from tiered.server.http.messages.schema import Schema, integer, record, text

ERROR: Schema = record(
    {
        "error_code": integer("The HTTP status; under /v3 Confluent's code."),
        "message": text("What is wrong, and what to do about it."),
    },
    description="Every error.",
)


class NoSuchResource(errors.Invalid):
    """The path names a cluster, broker, config or member that is not here."""


class RefusedElsewhere(errors.TieredError):
    """The answer of the broker that had to carry out the request."""

    def __init__(self, message: str, *, status: int, error_code: int) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code


_STATUS: dict[type[errors.TieredError], int] = {
    errors.TieredError: 500,
    errors.Retriable: 503,
    errors.UnknownTopicOrPartition: 404,
    errors.UnknownTopicId: 404,
    errors.RequestTimedOut: 504,
    errors.Throttled: 429,
    errors.RebalanceInProgress: 409,
    errors.Fenced: 409,
    errors.Invalid: 400,
    errors.TopicExists: 409,
    errors.PolicyViolation: 403,
    errors.NotAuthorized: 403,
    errors.Pinned: 409,
    errors.PinNotFound: 404,
    errors.SnapshotExists: 409,
    errors.GroupNotFound: 404,
    errors.TransactionalIdNotFound: 404,
    errors.GroupNotEmpty: 409,
    errors.MessageTooLarge: 413,
    errors.OutOfRange: 416,
    errors.Corrupt: 500,
    NoSuchResource: 404,
    AuthenticationFailed: 401,
    UserExists: 409,
    UserNotFound: 404,
}

# Under /v3 the codes are those of Confluent's REST Proxy, and so are the statuses, with one exception: what may
# succeed later is 503 there too, so that nobody takes it for a fault of the broker.
_V3: dict[type[errors.TieredError], tuple[int, int]] = {
    errors.TieredError: (500, 50002),
    errors.Retriable: (503, 50003),
    errors.UnknownTopicOrPartition: (404, 40403),
    errors.UnknownTopicId: (404, 40403),
    errors.Throttled: (429, 42901),
    errors.Fenced: (409, 409),
    errors.Invalid: (400, 40002),
    errors.ReadOnly: (403, 40301),
    errors.NotAuthorized: (403, 40301),
    errors.GroupNotFound: (404, 404),
    errors.GroupNotEmpty: (409, 409),
    errors.MessageTooLarge: (413, 413),
    errors.Corrupt: (500, 50002),
    NoSuchResource: (404, 404),
    AuthenticationFailed: (401, 40101),
}
V3 = "/v3"


def status_of(error: errors.TieredError) -> int:
    """The HTTP status for `error`: that of its own class, or of the nearest base class that has one."""
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


class OverQuota(errors.Throttled):
    """The client has used up a quota: nothing was done, and it may come again after that time."""

    def __init__(self, quota: str, rest_ms: float) -> None:
        self.retry_after_s = math.ceil(rest_ms / 1000.0)
        super().__init__(f"{quota} is used up; try again in {math.ceil(rest_ms)} ms")


def response_for(request: web.Request, error: errors.TieredError) -> web.Response:
    """`error` as the client of this path expects it."""
    status, code = v3_status_and_code(error) if is_v3(request) else (status_of(error), None)
    headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, OverQuota) else {}
    return error_response(status, str(error), error_code=code, headers=headers)


def v3_status_and_code(error: errors.TieredError) -> tuple[int, int]:
    """(HTTP status, Confluent's code) for `error`."""
    if isinstance(error, RefusedElsewhere):
        return error.status, error.error_code
    return next(_V3[kind] for kind in type(error).__mro__ if kind in _V3)


def v3_refusal(message: str, error_code: int) -> RefusedElsewhere:
    """Another broker's error for one record, with the status of its code."""
    status = next((status for status, code in _V3.values() if code == error_code), error_code)
    status = status if 400 <= status <= 599 else 500
    return RefusedElsewhere(message, status=status, error_code=error_code)


def is_v3(request: web.Request) -> bool:
    return request.path == V3 or request.path.startswith(V3 + "/")


def error_response(
    status: int, message: str, *, error_code: int | None = None, headers: Mapping[str, str] | None = None
) -> web.Response:
    """An error as clients see it. `error_code` repeats the HTTP status unless it is told otherwise."""
    return web.json_response({"error_code": error_code or status, "message": message}, status=status, headers=headers)
