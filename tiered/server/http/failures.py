"""What an error looks like over HTTP: its status and its body. The only place where the statuses are given.

Owns the table. A kind without a row of its own takes the row of its nearest base class. Must never let a
traceback or a driver's words out.
"""

from aiohttp import web

from tiered import errors
from tiered.server.http.schema import Schema, integer, record, text

ERROR: Schema = record(
    {
        "error_code": integer("The HTTP status; under /v3 Confluent's code, whose first three digits are the status."),
        "message": text("What is wrong, and what to do about it."),
    },
    description="Every error.",
)

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
    errors.GroupNotFound: 404,
    errors.GroupNotEmpty: 409,
    errors.MessageTooLarge: 413,
    errors.OutOfRange: 416,
    errors.Corrupt: 500,
}

# Under /v3, as Confluent's REST Proxy numbers them; others are the status with 00 behind it.
_V3_CODES: dict[type[errors.TieredError], int] = {
    errors.UnknownTopicOrPartition: 40403,
    errors.InvalidTopic: 40002,
    errors.TopicExists: 40002,
    errors.InvalidPartitions: 40002,
    errors.InvalidReplicationFactor: 40002,
    errors.InvalidReplicaAssignment: 40002,
    errors.InvalidConfig: 40002,
    errors.PolicyViolation: 40002,
    errors.Retriable: 50003,
    errors.Corrupt: 50002,
}
V3 = "/v3"


def status_of(error: errors.TieredError) -> int:
    """The HTTP status for `error`: that of its own class, or of the nearest base class that has one."""
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def response_for(request: web.Request, error: errors.TieredError) -> web.Response:
    """`error` as the client of this path expects it."""
    if not is_v3(request):
        return error_response(status_of(error), str(error))
    code = v3_code_of(error)
    return error_response(code // 100, str(error), error_code=code)


def v3_code_of(error: errors.TieredError) -> int:
    """Confluent's code for `error`; its first three digits are the status."""
    for kind in type(error).__mro__:
        if kind in _V3_CODES:
            return _V3_CODES[kind]
        if kind in _STATUS:
            return _STATUS[kind] * 100
    return 50002


def refusal(request: web.Request, status: int, message: str) -> web.Response:
    """An error that has no kind of its own: of HTTP itself."""
    return error_response(status, message, error_code=status if status != 404 or not is_v3(request) else 404)


def is_v3(request: web.Request) -> bool:
    return request.path == V3 or request.path.startswith(V3 + "/")


def error_response(status: int, message: str, *, error_code: int | None = None) -> web.Response:
    """An error as clients see it. `error_code` repeats the HTTP status unless it is told otherwise."""
    return web.json_response({"error_code": error_code or status, "message": message}, status=status)
