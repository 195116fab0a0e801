"""What becomes of a request of an API, or of a version of one, that is not served: an answer its client can read.

Owns the words. UNSUPPORTED_VERSION stands in the answer's own shape wherever the messages of that version are known;
where they are not, the connection ends, for nothing that we could say would be understood. Kafka ends it always.
"""

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, NamedTuple

from tiered.server.kafka.transport.connection import Connection
from tiered.wire import messages
from tiered.wire.error_codes import UNSUPPORTED_VERSION
from tiered.wire.refusal import refusal


class Refused(NamedTuple):
    """An API that is answered with UNSUPPORTED_VERSION, in place of a row of the table."""

    name: str
    handle: Callable[[Any, Any, Any], Awaitable[Any]]


def refuse(connection: Connection, api_key: int, api_version: int) -> Refused | None:
    """How to answer; None when nobody could read it, and the connection is closed. The log has a line about it."""
    refused = _refused(api_key, api_version)
    end = "the connection is closed" if refused is None else "UNSUPPORTED_VERSION is the answer"
    connection.complain_once(
        api_key, "%s asks for API key %d in version %d, which is not served: %s", api_key, api_version, end
    )
    if refused is None:
        connection.close()
    return refused


@cache
def _refused(api_key: int, api_version: int) -> Refused | None:
    package, first, last = messages.APIS.get(api_key, ("", 0, -1))
    if not first <= api_version <= last:
        return None
    name = package.title().replace("_", "")

    async def handle(_context: Any, request: Any, _reply: Any) -> Any:
        words = f"{name} version {api_version} is not served here; see ApiVersions"
        return refusal(api_key, api_version, request, UNSUPPORTED_VERSION, words)

    return Refused(name, handle)
