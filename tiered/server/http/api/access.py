"""`/api/v1/acls`, `/api/v1/users`, `/api/v1/quotas`: who may do what, who can log in, and how much each may use.

To look at: what changes them is Kafka's protocol. Answers come from memory, so they are there while SQL is away. Must
never tell anything of a password but that there is one.
"""

from aiohttp import web

from tiered.rules.security.authorization import parse_super_users
from tiered.rules.security.quotas import QuotaEntity, QuotaFilter
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages import schema
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.route import answers_json, route

TAG = "access"
_ACL_WORDS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
_ACL = schema.Form({word: schema.text() for word in _ACL_WORDS})
_ACLS = schema.record(
    {
        "is_on": schema.boolean("Whether an authorizer asks for rights; without one no rule counts."),
        "super_users": schema.array(schema.text(), "They may do everything."),
        "acls": schema.array(_ACL.schema),
    },
    is_open=True,
)
_CREDENTIAL = schema.record({"mechanism": schema.text(), "iterations": schema.integer()}, is_open=True)
_USER = schema.Form(
    {
        "name": (schema.text(), lambda user: user[0]),
        "credentials": (
            schema.array(_CREDENTIAL),
            lambda user: [{"mechanism": str(each), "iterations": kept.iterations} for each, kept in user[1].items()],
        ),
    }
)
_ENTITY_PARTS = ("user", "client_id", "ip")
_QUOTA = schema.Form(
    {
        "entity": (
            schema.mapping(
                schema.nullable(schema.text()), "user, client_id and ip, as it has them; null is all others."
            ),
            lambda quota: _parts(quota[0]),
        ),
        "values": (schema.mapping(schema.number(), "By the name of the quota."), lambda quota: dict(quota[1])),
    }
)


def _list_of(name: str, form: schema.Form) -> schema.Schema:
    return schema.record({name: schema.array(form.schema)}, is_open=True)


async def acls(request: web.Request) -> web.StreamResponse:
    broker = request.app[BROKER]
    told = {"is_on": broker.access.is_on, "super_users": parse_super_users(broker.settings.authorization.super_users)}
    return await json_with_list(request, told, "acls", map(_ACL.of, broker.security.acls))


async def users(request: web.Request) -> web.StreamResponse:
    found = request.app[BROKER].credentials.users()
    return await json_with_list(request, {}, "users", map(_USER.of, sorted(found.items())))


async def quotas(request: web.Request) -> web.StreamResponse:
    found = request.app[BROKER].client_quotas.describe(QuotaFilter(parts={}))
    return await json_with_list(request, {}, "quotas", map(_QUOTA.of, found.items()))


def _parts(entity: QuotaEntity) -> dict[str, str | None]:
    return {part: name or None for part in _ENTITY_PARTS if (name := getattr(entity, part)) is not None}


ROUTES = tuple(
    route("GET", f"/api/v1/{name}", handler, answers_json(answer), summary=summary, tag=TAG)
    for name, handler, summary, answer in (
        ("acls", acls, "The access control lists.", _ACLS),
        ("users", users, "Who has a password, and by which mechanism.", _list_of("users", _USER)),
        ("quotas", quotas, "The quotas of users, client ids and addresses.", _list_of("quotas", _QUOTA)),
    )
)
