"""The principal of an HTTP client: by its certificate, else by a name and a password (basic), or a token (bearer).

Owns the principal that `http.ssl.principal.mapping.rules` gives to a certificate, which TLS has checked by then; the
two forms of the header, checked as SASL's are; and what is open without a login: whether the broker lives. A client
with a certificate need not log in. A browser asks for a name and a password when it meets the refusal, so the console
needs no page for that. Must never decide what a principal may do: `rights` does. Must never tell an unknown user from a
wrong password, nor put either into an answer or a log.
"""

import asyncio
import base64
import binascii

from aiohttp import web

from tiered.broker.security.authentication import Guarded, Login
from tiered.errors import Throttled
from tiered.rules.security.certificate_names import NoPrincipal, PrincipalMapping
from tiered.rules.security.sasl.failures import AuthenticationFailed
from tiered.server.http.door.keys import SERVICE
from tiered.server.http.door.rights import LOGIN, PRINCIPAL
from tiered.server.http.messages.failures import error_response
from tiered.server.http.messages.route import Handler

OPEN_PATHS = ("/healthz", "/readyz")
CHALLENGE = 'Basic realm="tiered", charset="UTF-8"'
MAX_AT_ONCE = 100
"""Failed logins whose answer waits; more are told at once, for waiting costs a connection."""

MAPPING: web.AppKey[PrincipalMapping] = web.AppKey("mapping", PrincipalMapping)
WAITING: web.AppKey[asyncio.Semaphore] = web.AppKey("failed_logins", asyncio.Semaphore)


@web.middleware
async def known_by_certificate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Gives the request its principal where its client has shown a certificate."""
    shown = request.get_extra_info("peercert")
    if shown:
        try:
            request[PRINCIPAL] = request.app[MAPPING].principal(shown.get("subject", ()))
        except NoPrincipal as error:
            return error_response(403, str(error))
    return await handler(request)


@web.middleware
async def logged_in(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Gives the request its principal, where `tiered.http.authentication` asks for one."""
    is_asked = request.app[SERVICE].settings.authentication.tiered_http_authentication != "none"
    if not is_asked or PRINCIPAL in request or request.path in OPEN_PATHS:
        return await handler(request)
    broker = request.app[SERVICE]
    try:
        login = await _login(broker, request.headers.get("Authorization", ""))
    except Throttled as error:
        return error_response(429, str(error))
    except AuthenticationFailed as error:
        return await _refused(request, broker, error)
    broker.counters.logins["succeeded"] += 1
    request[PRINCIPAL] = login.principal
    request[LOGIN] = login
    return await handler(request)


async def _login(broker: Guarded, header: str) -> Login:
    scheme, _, given = header.partition(" ")
    match scheme.lower():
        case "basic":
            return await broker.authentication.by_password(*_name_and_password(given.strip()))
        case "bearer":
            return await broker.authentication.by_http_token(given.strip())
        case _:
            raise AuthenticationFailed("log in: this broker wants a name and a password (basic), or a token (bearer)")


def _name_and_password(given: str) -> tuple[str, str]:
    name = colon = password = ""
    try:
        name, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        pass
    if not colon or "\x00" in name + password:
        raise AuthenticationFailed("basic is followed by the base64 of NAME:PASSWORD")
    return name, password


async def _refused(request: web.Request, broker: Guarded, why: AuthenticationFailed) -> web.Response:
    waiting = request.app[WAITING]
    if "Authorization" in request.headers:  # A browser's first request without credentials is no failed login.
        broker.counters.logins["failed"] += 1
        if not waiting.locked():
            async with waiting:
                await asyncio.sleep(broker.settings.authentication.connection_failed_authentication_delay_ms / 1000.0)
    return error_response(401, str(why), headers={"WWW-Authenticate": CHALLENGE})
