"""Writes changes over HTTP into the audit log: the principal, the change, the resource and the outcome.

A request has one line, about the resources that rights were asked for; or those lines that its handler has named.
Records that are produced are no administration: what is refused of them is counted with all other refused requests for
data. Must never tell a body or a query, for either may hold what is nobody's business.
"""

from collections.abc import Iterable

from aiohttp import web

from tiered.broker.security.audit import ALLOWED, DENIED, FAILED, UNKNOWN
from tiered.errors import NotAuthorized
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.rights import ON_BEHALF_OF, asked_for, principal_of, rights_of
from tiered.server.http.messages.origin import SENDER
from tiered.server.http.messages.route import Handler
from tiered.server.kafka.audited import AuditEntry

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
RECORDS = "/records"
_ENTRIES: web.RequestKey[list[AuditEntry]] = web.RequestKey("audit_entries", list)


def audit_as(request: web.Request, entries: Iterable[AuditEntry]) -> None:
    """The request has a line for each of these from now on, whatever comes of it. They are few, and have no secret; the
    outcome of the request counts, no code."""
    request[_ENTRIES] = list(entries)


@web.middleware
async def audited(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The answer, once it is written down."""
    resource = request.match_info.route.resource
    is_change = request.method not in SAFE_METHODS and resource is not None
    if not is_change or BROKER not in request.app or resource is None or resource.canonical.endswith(RECORDS):
        return await handler(request)
    status = 0
    try:
        response = await handler(request)
        status = response.status
    finally:
        _note(request, f"{request.method} {resource.canonical}", status)
    return response


def _note(request: web.Request, action: str, status: int) -> None:
    audit = request.app[BROKER].audit
    if not audit.is_on:
        return
    outcome = UNKNOWN if not status else ALLOWED if status < 400 else DENIED if status in (401, 403) else FAILED
    peer = request.get_extra_info("peername")
    principal, host = str(principal_of(request)), str(peer[0]) if peer else ""
    is_passed_on = SENDER in request.headers
    try:
        if (rights := rights_of(request)) is not None:
            principal, host = rights.principal, rights.host
            # A broker names its client in this header, which is believed. Any other client may forge it.
            is_passed_on = is_passed_on and ON_BEHALF_OF in request.headers
    except NotAuthorized:
        is_passed_on = False  # It spoke for somebody else and was not believed: the line names who it was.
    shared: dict[str, object] = {"path": request.path[:300]}
    if status >= 400:
        shared["status"] = status
    if is_passed_on:
        shared["passed_on_by"] = request.headers[SENDER][:20]
    for entry in request.get(_ENTRIES) or [AuditEntry(" ".join(asked_for(request)), None)]:
        audit.note(
            principal=principal,
            host=host,
            via="http",
            action=action,
            outcome=outcome,
            resource=entry.resource,
            details={**entry.details, **shared},
        )
