"""Keeps other people's web pages from using this door through a visitor's browser.

Three checks and a set of headers. The Host header must name this broker, or a page could point a name of its own
at 127.0.0.1 (DNS rebinding). A browser's request comes from our own page, or is a link that somebody follows. One
that changes something carries a token besides, which only a page of this origin can read. Programs send neither
Origin nor Sec-Fetch-Site, and need no token. Owns the token, which lives as long as the process. Must never be
taken for authentication: `logins` asks who somebody is, and `rights` what they may do.
"""

import ipaddress
import platform
from hmac import compare_digest
from urllib.parse import urlsplit

from aiohttp import web

from tiered.runtime import new_uuid
from tiered.server.http.door.keys import SERVICE, Service
from tiered.server.http.messages.failures import error_response
from tiered.server.http.messages.route import Handler, answers_json, route, tagged
from tiered.server.http.messages.schema import record, text

CSRF_HEADER = "X-Tiered-CSRF"
CSRF_TOKEN: web.AppKey[str] = web.AppKey("csrf_token", str)
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
MAX_HOST_CHARS = 255
MAX_ORIGIN_CHARS = MAX_HOST_CHARS + len("https://")
"""Python brings the letters of a name that is not ASCII into their order, which takes the square of their number."""

HEADERS = {
    # The console's page needs no inline script and no inline style, so an injected one does not run.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # In place of aiohttp's, which tells everybody the versions of it and of Python.
    "Server": "tiered",
}

HTTPS_ALONE = "max-age=31536000"
"""For a year, and for this host alone: not for those below it, which may be anybody's."""


def new_token() -> str:
    """122 random bits."""
    return new_uuid().hex


@web.middleware
async def same_origin_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses what another origin's page makes a browser send."""
    objection = _objection(request)
    if objection is not None:
        status, message = objection
        return error_response(status, message)
    return await handler(request)


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Gives every answer its security headers; nothing is kept in caches unless the route says how."""
    response.headers.update(HEADERS)
    if request.app[SERVICE].options.http_tls is not None:
        response.headers["Strict-Transport-Security"] = HTTPS_ALONE
    response.headers.setdefault("Cache-Control", "no-store")
    if "Transfer-Encoding" in request.headers:
        # aiohttp takes the last field behind a chunked body for the next request's first header, even another client's,
        # sent over the same connection by a proxy: so no request may follow. Not announced in the head, at which some
        # clients would stop to send what is to follow.
        response.force_close()
    if response.status >= 400 and not request.content.is_eof():
        # The rest of the body is not read, so the connection cannot be used for another request.
        response.force_close()


def _objection(request: web.Request) -> tuple[int, str] | None:
    """(status, message) when the request must not be served."""
    host = request.headers.get("Host")
    if host is not None and not is_own_host(request.app[SERVICE], host):
        return 403, (
            f"Host {host[:80]!r} is none of this broker's names: use an address or localhost, or allow the name with "
            "--set tiered.http.allowed.hosts=NAME"
        )
    origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
    if origin is None and site is None:
        return None
    changes = request.method not in SAFE_METHODS
    is_own = (origin is None or _is_own_origin(origin, host)) and site in (None, "same-origin", "none")
    if not is_own and (changes or request.headers.get("Sec-Fetch-Mode") != "navigate"):
        return 403, "this comes from a page of another origin: open the console that this broker serves itself"
    token = request.headers.get(CSRF_HEADER, "")
    if changes and not compare_digest(token.encode(), request.app[CSRF_TOKEN].encode()):
        return 403, f"a browser must send the token of GET /api/v1/session in {CSRF_HEADER}: fetch a new one, repeat"
    return None


def is_own_host(service: Service, header: str) -> bool:
    """True when the Host header names this broker: an address, localhost, or a name that it was told."""
    if len(header) > MAX_HOST_CHARS:
        return False
    try:
        parts = urlsplit(f"//{header}")
        host, _ = parts.hostname or "", parts.port  # Reading the port checks it.
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost") or _is_address(host):
        return True
    names = {service.options.http_host, service.options.listeners[0].advertise_host or "", platform.node()}
    names.update(service.settings.http.tiered_http_allowed_hosts)
    return host != "" and host in {name.lower() for name in names}


def _is_address(host: str) -> bool:
    # A rebinding attack needs a name: an address in the Host header is the address that the browser went to.
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_own_origin(origin: str, host: str | None) -> bool:
    if len(origin) > MAX_ORIGIN_CHARS:
        return False
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and host is not None and parts.netloc.lower() == host.lower()


async def _session(request: web.Request) -> web.Response:
    """The token that a browser sends with requests that change something."""
    return web.json_response({"csrf_token": request.app[CSRF_TOKEN]})


ROUTES = tagged(
    "session",
    route(
        "GET", "/api/v1/session", _session, answers_json(record({"csrf_token": text(f"For the header {CSRF_HEADER}.")}))
    ),
)
