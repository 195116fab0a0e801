"""Who a client of the HTTP door is by its certificate: the principal that `http.ssl.principal.mapping.rules` gives.

Owns that translation; TLS has checked the certificate by then. Must never decide what a principal may do: `rights`
does.
"""

from aiohttp import web

from tiered.rules.security.certificate_names import NoPrincipal, PrincipalMapping
from tiered.server.http.door.rights import PRINCIPAL, Handler
from tiered.server.http.messages.failures import error_response

MAPPING: web.AppKey[PrincipalMapping] = web.AppKey("mapping", PrincipalMapping)


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
