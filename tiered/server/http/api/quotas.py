"""`/api/v1/quotas`: how much users, client ids and addresses may use, and changes of that.

The list comes from memory, so it is there while SQL is away. A change goes the way of AlterClientQuotas.
"""

from aiohttp import web

from tiered.broker.security import client_quotas
from tiered.errors import InvalidRequest
from tiered.rules.security.acl import Operation
from tiered.rules.security.quotas import MAX_VALUE, QuotaChange, QuotaEntity, QuotaFilter, QuotaKey
from tiered.server.http.api.own_rights import MISSING_RIGHT, missing_right
from tiered.server.http.door.audited import audit_as
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages import schema
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.parameters import json_of
from tiered.server.http.messages.route import answers_json, route, tagged
from tiered.server.kafka.api.client_quotas import entity_of
from tiered.server.kafka.audited import AuditEntry

TAG = "access"
MAX_NAMES = 20
MAX_NAME_CHARS = 255
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
_QUOTAS = schema.record({"missing_right": MISSING_RIGHT, "quotas": schema.array(_QUOTA.schema)}, is_open=True)
_ENTITY_NAME = schema.nullable(schema.text(minLength=1, maxLength=MAX_NAME_CHARS))
_CHANGE = schema.record(
    {
        "entity": schema.record(
            dict.fromkeys(_ENTITY_PARTS, _ENTITY_NAME),
            optional=_ENTITY_PARTS,
            description="Of whom: a user, a client id, both, or an address. Null is all others.",
        ),
        "set": schema.nullable(
            schema.mapping(
                {"type": "number", "minimum": 0, "maximum": MAX_VALUE},
                f"By the name of the quota: {', '.join(QuotaKey)}.",
                max_properties=MAX_NAMES,
                max_name_chars=MAX_NAME_CHARS,
            )
        ),
        "reset": schema.nullable(
            schema.array(schema.text(maxLength=MAX_NAME_CHARS), "Quotas that go.", max_items=MAX_NAMES)
        ),
    },
    optional=("set", "reset"),
)


async def quotas(request: web.Request) -> web.StreamResponse:
    """The quotas of users, client ids and addresses."""
    stored = request.app[BROKER].client_quotas.describe(QuotaFilter(parts={}))
    fields = {"missing_right": missing_right(request, Operation.ALTER_CONFIGS)}
    return await json_with_list(request, fields, "quotas", map(_QUOTA.of, stored.items()))


async def alter(request: web.Request) -> web.Response:
    """Set or remove quotas of one entity, all or nothing."""
    body = await json_of(request, _CHANGE, keep_nulls=True)
    broker = request.app[BROKER]
    values: dict[str, float | None] = {name: float(value) for name, value in (body.get("set") or {}).items()}
    reset = body.get("reset") or []
    named = [(part.replace("_", "-"), name) for part, name in body["entity"].items()]
    shown = ",".join(f"{kind}={name or '<default>'}" for kind, name in named)
    audit_as(request, [AuditEntry(f"QUOTA:{shown}", None, {"quotas": {**values, **dict.fromkeys(reset)}})])
    if len(set(reset)) != len(reset) or not values.keys().isdisjoint(reset):
        raise InvalidRequest("a quota stands twice; either set it or reset it, once")
    if not values and not reset:
        raise InvalidRequest('nothing to change: give {"set": {name: value}} or {"reset": [name]}')
    values |= dict.fromkeys(reset)
    entity = entity_of(named)
    broker.client_quotas.check(entity, values)
    changes = [QuotaChange(entity=entity, quota=name, value=value) for name, value in values.items()]
    await client_quotas.alter(broker.changes, broker.feed, changes)
    stored = broker.client_quotas.describe(QuotaFilter(parts={}))
    return web.json_response(_QUOTA.of((entity, stored.get(entity, {}))))


def _parts(entity: QuotaEntity) -> dict[str, str | None]:
    return {part: name or None for part in _ENTITY_PARTS if (name := getattr(entity, part)) is not None}


ROUTES = tagged(
    TAG,
    route("GET", "/api/v1/quotas", quotas, answers_json(_QUOTAS)),
    route("PATCH", "/api/v1/quotas", alter, answers_json(_QUOTA.schema), body=_CHANGE),
)
