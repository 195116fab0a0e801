"""What a request asks for, before the router looks at it: one that would cost much or break is made harmless here.

Owns the bounds of a request's target. aiohttp looks for the longest route that a path begins with, piece by piece from
its end, which takes the square of their number; and it forgets a connection whose request it cannot make.
"""

from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http import RawRequestMessage
from yarl import URL

MAX_PIECES = 16
"""Of a path. The deepest route has ten."""
MAX_CLUSTER_ID_CHARS = 80
MakeRequest = Callable[..., web.BaseRequest]


def pattern_of(path: str) -> str:
    """A route's path as the router is told it.

    Nearly every route begins with a cluster's id, and one pattern is tried after the other: a long name there must end
    each at once.
    """
    return path.replace("{cluster_id}", f"{{cluster_id:[^/{{}}]{{1,{MAX_CLUSTER_ID_CHARS}}}}}")


def with_checked_targets(make_request: MakeRequest) -> MakeRequest:
    """The same, for any target that a client can write."""

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
