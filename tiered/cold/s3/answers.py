"""Limits on an answer of the store: its bytes, and the time from its first byte to its last.

Owns the bounds of all that botocore and the standard library read by themselves, which is everything but the bodies of
objects: heads, lists, errors, acknowledgements. Loaded with the first request, as botocore is. Must never touch an
answer that keeps within them.
"""

import http.client
import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
    AWSResponse,
)
from botocore.exceptions import HTTPClientError
from botocore.response import StreamingBody

from tiered.cold.s3.body_deadlines import BodyDeadlines

MAX_ANSWER_BYTES = 8 << 20
"""A page of a list has 1,000 names of 1 KB at the most, of which XML makes three."""
MAX_ERROR_BYTES = 256 << 10
_MAX_INTERIM = 5
_WAITS_OF_A_POST = 20
"""S3 sends a space now and then while it puts the parts of an upload together, for minutes."""


def bound_answers(client: Any, deadlines: BodyDeadlines) -> None:
    """From now on `client` reads no answer without a bound. Bodies of objects are for whoever asked for them."""
    logging.getLogger("urllib3.connection").addFilter(_is_no_header)
    session = client._endpoint.http_session  # noqa: SLF001 - there is no other way to it
    pools = {
        "http": _watched(AWSHTTPConnectionPool, AWSHTTPConnection, deadlines),
        "https": _watched(AWSHTTPSConnectionPool, AWSHTTPSConnection, deadlines),
    }
    session._pool_classes_by_scheme = session._manager.pool_classes_by_scheme = pools  # noqa: SLF001 - the same
    client._endpoint.http_session = _BoundedSession(session, deadlines)  # noqa: SLF001 - the same


def _is_no_header(record: logging.LogRecord) -> bool:
    """urllib3 logs each malformed header with a stack trace. The reader of an answer reports what it lacks."""
    return not record.msg.startswith("Failed to parse headers")


class _BoundedSession:
    """botocore's session, and what it reads of an answer by itself is bounded."""

    def __init__(self, session: Any, deadlines: BodyDeadlines) -> None:
        self._session = session
        self._deadlines = deadlines

    def send(self, request: Any) -> Any:
        is_object = request.stream_output
        request.stream_output = True  # Or the session reads it all.
        answer = self._session.send(request)
        if is_object and answer.status_code < 300:
            return answer
        max_bytes = MAX_ERROR_BYTES if answer.status_code >= 300 else MAX_ANSWER_BYTES
        waits = _WAITS_OF_A_POST if request.method == "POST" else 2
        length: Any = None  # What it says of itself is looked at below.
        with closing(StreamingBody(answer.raw, length)) as body, self._deadlines.watched(0, waits=waits):
            content = body.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise HTTPClientError(error=f"an answer of more than {max_bytes} bytes")
        if missing_bytes := answer.raw.length_remaining:
            raise HTTPClientError(error=f"an answer that broke off {missing_bytes} bytes before its end")
        return AWSResponse(answer.url, answer.status_code, answer.headers, _Read(content))

    def close(self) -> None:
        self._session.close()


class _Read:
    """The rest of an answer that was read."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> Iterator[bytes]:
        yield self._content


class _FinalResponse(http.client.HTTPResponse):
    """Passes over a few interim answers ("100 Continue"), and not over as many as a store likes to send."""

    _statuses = 0

    def _read_status(self) -> Any:
        self._statuses += 1
        if self._statuses > _MAX_INTERIM:
            raise http.client.HTTPException("one interim answer after the other")
        return super()._read_status()  # type: ignore[misc]


def _watched(pool: type, connection: Any, deadlines: BodyDeadlines) -> type:
    """The pool, of connections whose answers have a deadline from their first byte on."""

    def getresponse(self: Any) -> Any:
        with deadlines.answering(self.sock):
            return connection.getresponse(self)

    watched = type("WatchedConnection", (connection,), {"getresponse": getresponse, "response_class": _FinalResponse})
    return type("WatchedPool", (pool,), {"ConnectionCls": watched})
