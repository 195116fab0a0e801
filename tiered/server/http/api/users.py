"""`/api/v1/users`: who has a password, new users and new passwords.

The list comes from memory, so it is there while SQL is away. A password that comes in is made into SCRAM's keys by the
threads that check passwords, and is kept nowhere: must never stand in an answer, an error, a log or a URL, nor be taken
where it has crossed a network in the clear.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiohttp import web

from tiered.config.addresses import client_address
from tiered.config.listeners import is_loopback
from tiered.errors import InvalidRequest, PolicyViolation
from tiered.rules.security.acl import Operation
from tiered.rules.security.sasl.failures import UserNotFound
from tiered.rules.security.sasl.mechanism import (
    DEFAULT_ITERATIONS,
    MAX_ITERATIONS,
    MAX_PASSWORD_BYTES,
    MAX_USER_NAME,
    MIN_ITERATIONS,
    ScramMechanism,
)
from tiered.rules.security.sasl.scram import CredentialChange, ScramCredential
from tiered.server.http.api.own_rights import MISSING_RIGHT, missing_right
from tiered.server.http.door.audited import audit_as
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages import schema
from tiered.server.http.messages.body import check_permission
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.parameters import USER, json_of
from tiered.server.http.messages.route import Answer, answers_json, no_content, route, tagged
from tiered.server.kafka.audited import AuditEntry

TAG = "access"
_CREDENTIAL = schema.record({"mechanism": schema.text(), "iterations": schema.integer()}, is_open=True)
_USER = schema.Form(
    {
        "name": (schema.text(), lambda user: user[0]),
        "credentials": (
            schema.array(_CREDENTIAL),
            lambda user: [
                {"mechanism": str(mechanism), "iterations": kept.iterations} for mechanism, kept in user[1].items()
            ],
        ),
        "is_of_brokers": schema.boolean(
            "This broker logs in at the others as this user (tiered.sasl.inter.broker.username): deleted, or with "
            "another password, it ends replication."
        ),
    }
)
_USERS = schema.record(
    {
        "missing_right": MISSING_RIGHT,
        "password_refusal": schema.nullable(
            schema.text("Why this broker takes no password over this connection; null where it does.")
        ),
        "users": schema.array(_USER.schema),
    },
    is_open=True,
)
_PASSWORD = {
    "password": schema.kept_secret(
        schema.text(f"1 to {MAX_PASSWORD_BYTES} bytes of UTF-8.", minLength=1, maxLength=MAX_PASSWORD_BYTES)
    ),
    "mechanisms": schema.array(
        schema.text(allowed=list(ScramMechanism)), "By which it counts.", max_items=len(ScramMechanism)
    ),
    "iterations": schema.integer(
        f"How dear each guess is; {DEFAULT_ITERATIONS} if absent.", minimum=MIN_ITERATIONS, maximum=MAX_ITERATIONS
    ),
}
_OPTIONAL = ("mechanisms", "iterations")
_PARTS_OF_NO_PATH = (".", "..")
_NEW_USER = schema.kept_secret(
    schema.input_record({"name": schema.text(minLength=1, maxLength=MAX_USER_NAME), **_PASSWORD}, optional=_OPTIONAL)
)
_NEW_PASSWORD = schema.kept_secret(schema.input_record(_PASSWORD, optional=_OPTIONAL))


async def users(request: web.Request) -> web.StreamResponse:
    """Who has a password, and by which mechanism."""
    known = request.app[BROKER].credentials.users()
    fields = {"missing_right": missing_right(request, Operation.ALTER), "password_refusal": _password_refusal(request)}
    shown = (_shown(request, name, credentials) for name, credentials in sorted(known.items()))
    return await json_with_list(request, fields, "users", shown)


async def create(request: web.Request) -> web.Response:
    """Create a user who logs in by a password.

    With SCRAM-SHA-512 where no mechanism is named.
    """
    _require_private_way(request)
    body = await json_of(request, _NEW_USER)
    name, mechanisms = body["name"], _mechanisms(body) or [ScramMechanism.SHA_512]
    if name in _PARTS_OF_NO_PATH:
        raise InvalidRequest(
            f"browsers take {name!r} out of a path, so nobody could change this user: name it otherwise"
        )
    audit_as(request, _entries(name, "set", mechanisms))
    changes = await _password_changes(request, name, body, mechanisms)
    credentials = request.app[BROKER].credentials
    await credentials.alter(changes, new_users=[name])
    return web.json_response(_shown(request, name, credentials.users().get(name, {})), status=201)


async def set_password(request: web.Request) -> web.Response:
    """Give a user a new password.

    With all mechanisms that the user has where none is named: the former password is good for none of them. Open
    connections of the user end.
    """
    _require_private_way(request)
    body = await json_of(request, _NEW_PASSWORD)
    name = USER.of(request)
    existing = _existing(request, name)
    mechanisms = _mechanisms(body) or existing
    audit_as(request, _entries(name, "set", mechanisms))
    changes = await _password_changes(request, name, body, mechanisms)
    credentials = request.app[BROKER].credentials
    await credentials.alter(changes, existing_users=[name])
    return web.json_response(_shown(request, name, credentials.users().get(name, {})))


async def delete(request: web.Request) -> web.Response:
    """Delete a user. Its open connections end; rules and quotas that name it stay."""
    name = USER.of(request)
    audit_as(request, [AuditEntry(f"USER:{name}", None, {"credential": "deleted"})])
    mechanisms = await request.app[BROKER].credentials.delete(name)
    audit_as(request, _entries(name, "deleted", mechanisms))
    return web.Response(status=204)


async def _password_changes(
    request: web.Request, name: str, body: dict[str, Any], mechanisms: Iterable[ScramMechanism]
) -> list[CredentialChange]:
    """What gives the user the password of the body. Raises NotAuthorized, AuthenticationFailed where the client lost
    its rights or its login while the password waited for its turn."""
    iterations = body.get("iterations", DEFAULT_ITERATIONS)
    credentials = request.app[BROKER].credentials
    changes = await credentials.password_changes(name, body["password"], mechanisms, iterations=iterations)
    check_permission(request)
    return changes


def _shown(request: web.Request, name: str, credentials: Mapping[ScramMechanism, ScramCredential]) -> dict[str, Any]:
    own_name = request.app[BROKER].settings.authentication.tiered_sasl_inter_broker_username
    return _USER.of((name, credentials), is_of_brokers=name == own_name)


def _mechanisms(body: dict[str, Any]) -> list[ScramMechanism]:
    """Those that the body names, which may be none."""
    return [ScramMechanism(name) for name in dict.fromkeys(body.get("mechanisms", ()))]


def _existing(request: web.Request, name: str) -> Sequence[ScramMechanism]:
    """The mechanisms that the user has a password for, as this broker knows; the transaction decides whether it is
    there. Raises UserNotFound."""
    credentials = request.app[BROKER].credentials.users().get(name)
    if credentials is None:
        raise UserNotFound(f"there is no user {name[:80]!r}; GET /api/v1/users has those that there are")
    return list(credentials)


def _require_private_way(request: web.Request) -> None:
    """Raises PolicyViolation before the body is read, where the password has crossed a network in the clear."""
    refusal = _password_refusal(request)
    if refusal is not None:
        raise PolicyViolation(refusal)


def _password_refusal(request: web.Request) -> str | None:
    """Why no password is taken; None over TLS, from this machine, or where the setting allows it, as for logins."""
    broker = request.app[BROKER]
    peer = request.get_extra_info("peername")
    is_private = broker.options.http_tls is not None or (peer and is_loopback(client_address(str(peer[0]))))
    if is_private or broker.settings.authentication.tiered_sasl_plain_without_tls:
        return None
    return (
        "this connection has no TLS, so a password would cross the network in the clear: use https, or on the broker's "
        "machine 127.0.0.1; or use `tiered users`, which sends no password; or start the broker with "
        "tiered.sasl.plain.without.tls=true where nobody else hears the network"
    )


def _entries(name: str, change: str, mechanisms: Iterable[ScramMechanism]) -> list[AuditEntry]:
    """The lines that AlterUserScramCredentials writes."""
    return [
        AuditEntry(f"USER:{name}", None, {"credential": change, "mechanism": mechanism.code})
        for mechanism in mechanisms
    ]


_PATH = "/api/v1/users"

ROUTES = tagged(
    TAG,
    route("GET", _PATH, users, answers_json(_USERS)),
    route(
        "POST", _PATH, create, {201: Answer(description="The user can log in.", schema=_USER.schema)}, body=_NEW_USER
    ),
    route("PUT", f"{_PATH}/{{user}}/password", set_password, answers_json(_USER.schema), body=_NEW_PASSWORD),
    route("DELETE", f"{_PATH}/{{user}}", delete, no_content("The user cannot log in any more.")),
)
