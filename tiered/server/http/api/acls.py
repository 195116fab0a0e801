"""`/api/v1/acls`: the access control lists; adding and removing some.

The list comes from memory, so it is there while SQL is away. Changes go through `broker.security.acls`, as those of
Kafka's protocol do, and count on this broker when the answer comes. An answer to a change says what the asker
itself may not do to the cluster any more: with `validate_only` before anything is changed.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from aiohttp import web

from tiered.errors import InvalidRequest
from tiered.rules.security.acl import WILDCARD, Operation, PatternType, Permission, ResourceType
from tiered.rules.security.authorization import parse_super_users
from tiered.runtime import in_turns
from tiered.server.http.api.own_rights import MISSING_RIGHT, missing_right
from tiered.server.http.door.audited import audit_as
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.rights import principal_of, rights_of
from tiered.server.http.messages import schema
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.parameters import json_of
from tiered.server.http.messages.route import answers_json, route, tagged
from tiered.server.kafka.audited import AuditEntry

TAG = "access"
MAX_RULES = 100
"""The bound of one request: every rule has a line in the audit log, and all lines are written in one step."""
MAX_NAME_CHARS = 255
MAX_HOST_CHARS = 64
_ACL_WORDS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
_ACL = schema.Form({word: schema.text() for word in _ACL_WORDS})
_ACLS = schema.record(
    {
        "is_on": schema.boolean("Whether an authorizer asks for rights; without one no rule counts."),
        "super_users": schema.array(schema.text(), "They may do everything."),
        "principal": schema.text("Who asks, as rules name it."),
        "missing_right": MISSING_RIGHT,
        "acls": schema.array(_ACL.schema),
    },
    is_open=True,
)


def _words_of(words: Iterable[Any]) -> list[str]:
    return [word.name for word in words if word.name not in ("ANY", "MATCH")]


_RULE = schema.input_record(
    {
        "resource_type": schema.text(allowed=_words_of(ResourceType)),
        "resource_name": schema.text("* is all of them; kafka-cluster is the cluster.", maxLength=MAX_NAME_CHARS),
        "pattern_type": schema.text("LITERAL if absent.", allowed=_words_of(PatternType)),
        "principal": schema.text("Such as User:ann; User:* is everybody.", maxLength=MAX_NAME_CHARS),
        "host": schema.text("The address that it comes from; * if absent.", maxLength=MAX_HOST_CHARS),
        "operation": schema.text(allowed=_words_of(Operation)),
        "permission": schema.text("ALLOW if absent. What denies wins.", allowed=_words_of(Permission)),
    },
    optional=("pattern_type", "host", "permission"),
)
_DEFAULTS = {"pattern_type": PatternType.LITERAL.name, "host": WILDCARD, "permission": Permission.ALLOW.name}
_CHANGE = schema.input_record(
    {
        "acls": schema.array(_RULE, "All of them are changed, or none is.", max_items=MAX_RULES),
        "validate_only": schema.boolean("Check, and change nothing."),
    },
    optional=("validate_only",),
)
_CHANGED = schema.record(
    {
        "own_rights_lost": schema.array(
            schema.text(), "Operations on the cluster that the asker may do before this change, and not after it."
        ),
        "acls": schema.array(_ACL.schema, "Which rules it is about."),
    },
    is_open=True,
)


async def acls(request: web.Request) -> web.StreamResponse:
    """The access control lists."""
    broker, rights = request.app[BROKER], rights_of(request)
    fields = {
        "is_on": broker.access.is_on,
        "super_users": parse_super_users(broker.settings.authorization.super_users),
        "principal": str(principal_of(request)) if rights is None else rights.principal,
        "missing_right": missing_right(request, Operation.ALTER),
    }
    return await json_with_list(request, fields, "acls", map(_ACL.of, broker.security.acls))


async def add(request: web.Request) -> web.StreamResponse:
    """Add access control lists, all of them or none.

    Those that exist already stay.
    """
    body = await json_of(request, _CHANGE)
    acls = request.app[BROKER].acls
    rules = [
        acls.check(
            resource_type=ResourceType[words["resource_type"]],
            resource_name=words["resource_name"],
            pattern_type=PatternType[words["pattern_type"]],
            principal=words["principal"],
            host=words["host"],
            operation=Operation[words["operation"]],
            permission=Permission[words["permission"]],
        )
        async for words in in_turns(_named_rules(request, body))
    ]
    lost = await _own_rights_lost(request, added=rules)
    if not body.get("validate_only", False):
        await acls.create(rules)
    return await json_with_list(request, {"own_rights_lost": lost}, "acls", map(_ACL.of, rules))


async def remove(request: web.Request) -> web.StreamResponse:
    """Remove exactly these access control lists, and say which of them there were."""
    body = await json_of(request, _CHANGE)
    acls = request.app[BROKER].acls
    rules = [acls.stored_as(words) async for words in in_turns(_named_rules(request, body))]
    lost = await _own_rights_lost(request, removed=rules)
    if not body.get("validate_only", False):
        rules = await acls.remove(rules)
    return await json_with_list(request, {"own_rights_lost": lost}, "acls", map(_ACL.of, rules))


async def _own_rights_lost(
    request: web.Request, *, added: Sequence[Any] = (), removed: Sequence[Any] = ()
) -> list[str]:
    rights = rights_of(request)
    if rights is None:
        return []
    lost = await request.app[BROKER].acls.cluster_operations_lost(rights, added=added, removed=removed)
    return [operation.name for operation in lost]


def _named_rules(request: web.Request, body: dict[str, Any]) -> list[dict[str, str]]:
    """All seven words of each rule in the body, each of which has its line in the audit log. Raises InvalidRequest."""
    rules = [{**_DEFAULTS, **words} for words in body["acls"]]
    is_check = {"validate_only": True} if body.get("validate_only", False) else {}
    audit_as(request, (AuditEntry(_resource_of(rule), None, {"rule": _audited(rule), **is_check}) for rule in rules))
    if not rules:
        raise InvalidRequest("acls is empty: name at least one rule")
    return rules


def _resource_of(rule: dict[str, str]) -> str:
    return f"{rule['resource_type']}:{rule['resource_name']}"


def _audited(rule: dict[str, str]) -> dict[str, str]:
    """The rule in the words of CreateAcls and DeleteAcls."""
    return {
        "pattern": rule["pattern_type"],
        "for": rule["principal"],
        "from": rule["host"],
        "operation": rule["operation"],
        "permission": rule["permission"],
    }


ROUTES = tagged(
    TAG,
    route("GET", "/api/v1/acls", acls, answers_json(_ACLS)),
    route("POST", "/api/v1/acls", add, answers_json(_CHANGED), body=_CHANGE),
    route("POST", "/api/v1/acls/remove", remove, answers_json(_CHANGED), body=_CHANGE),
)
