"""`/api/v1/acls`, `/api/v1/users`, `/api/v1/quotas`: who may do what, who can log in, and how much each may use.

To look at: what changes them is Kafka's protocol. Answers come from memory, so they are there while SQL is away. Must
never tell anything of a password but that there is one.
"""

from aiohttp import web

from tiered.rules.security.authorization import parse_super_users
from tiered.rules.security.quotas import QuotaEntity, QuotaFilter
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages import schema
from tiered.server.http.messages.form import Form
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.route import answers_json, route

TAG = "access"
_ACL_WORDS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
_ACL = Form({word: schema.text() for word in _ACL_WORDS})
_ACLS = schema.record(
    {
        "is_on": schema.boolean("Whether an authorizer asks for rights; without one no rule counts."),
        "super_users": schema.array(schema.text(), "They may do everything."),
        "acls": schema.array(_ACL.schema),
    },
    is_open=True,
)
_USERS = schema.record(
    {
        "users": schema.array(
            schema.record(
                {
                    "name": schema.text(),
                    "credentials": schema.array(
                        schema.record({"mechanism": schema.text(), "iterations": schema.integer()}, is_open=True)
                    ),
                },
                is_open=True,
            )
        )
    },
    is_open=True,
)
_ENTITY_PARTS = ("user", "client_id", "ip")
_QUOTAS = schema.record(
    {
        "quotas": schema.array(
            schema.record(
                {
                    "entity": schema.mapping(
                        schema.nullable(schema.text()), "user, client_id and ip, as it has them; null is all others."
                    ),
                    "values": schema.mapping(schema.number(), "By the name of the quota."),
                },
                is_open=True,
            )
        )
    },
    is_open=True,
)


async def acls(request: web.Request) -> web.Response:
    broker = request.app[BROKER]
    told = {"is_on": broker.access.is_on, "super_users": parse_super_users(broker.settings.authorization.super_users)}
    return await json_with_list(told, "acls", map(_ACL.of, broker.security.acls))


async def users(request: web.Request) -> web.Response:
    found = request.app[BROKER].credentials.users()
    listed = (
        {
            "name": name,
            "credentials": [
                {"mechanism": str(mechanism), "iterations": kept.iterations} for mechanism, kept in found[name].items()
            ],
        }
        for name in sorted(found)
    )
    return await json_with_list({}, "users", listed)


async def quotas(request: web.Request) -> web.Response:
    found = request.app[BROKER].client_quotas.describe(QuotaFilter(parts={}))
    listed = ({"entity": _parts(entity), "values": dict(values)} for entity, values in found.items())
    return await json_with_list({}, "quotas", listed)


def _parts(entity: QuotaEntity) -> dict[str, str | None]:
    return {part: name or None for part in _ENTITY_PARTS if (name := getattr(entity, part)) is not None}


ROUTES = tuple(
    route("GET", f"/api/v1/{name}", handler, answers_json(answer), summary=summary, tag=TAG)
    for name, handler, summary, answer in (
        ("acls", acls, "The access control lists.", _ACLS),
        ("users", users, "Who has a password, and by which mechanism.", _USERS),
        ("quotas", quotas, "The quotas of users, client ids and addresses.", _QUOTAS),
    )
)
