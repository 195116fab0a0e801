"""Where a request came in, and whether another broker passed it on.

Owns the two headers of requests between brokers. They give no rights: a program that sends them gets only this broker's
own answer, with URLs that it chose itself.
"""

import re

from aiohttp import web

from tiered.config.addresses import host_and_port

SENDER = "X-Tiered-Forwarded-By"
"""Which broker passed the request on. Who gets it answers by itself: there is one hop."""
ORIGIN = "X-Tiered-Origin"
"""Scheme, host and port under which the client came in: URLs in the answer are made of these."""
MAX_ORIGIN_CHARS = 300
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.:_\[\]-]+\Z", re.ASCII)


def is_forwarded(request: web.Request) -> bool:
    """Whether another broker passed this request on: then it is answered here or not at all."""
    return SENDER in request.headers


def origin_of(request: web.Request) -> str:
    """Scheme, host and port that the client used. `browser_guard` has checked the Host header."""
    told = request.headers.get(ORIGIN, "")
    if is_forwarded(request) and len(told) <= MAX_ORIGIN_CHARS and _ORIGIN.match(told):
        return told
    host = request.headers.get("Host")
    if host is None:  # HTTP/1.0. aiohttp would ask the resolver for a name here, and block.
        address, port = request.get_extra_info("sockname")[:2]
        host = host_and_port(address, port)
    return f"{request.scheme}://{host}"
