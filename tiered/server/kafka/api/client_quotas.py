"""DescribeClientQuotas (key 48) and AlterClientQuotas (key 49), versions 0 to 1 each (KIP-546, KIP-612).

Users and client ids have producer_byte_rate, consumer_byte_rate, request_percentage and controller_mutation_rate;
addresses have connection_creation_rate. A null name is the default of its kind. Each entity of a change is checked for
itself; those that are right are committed together, and count on this broker when it answers. `validate_only` changes
nothing. An address is given as it is, and no name of a host. A read replica has no quotas.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tiered.broker.security import client_quotas
from tiered.config.addresses import named_address
from tiered.errors import InvalidRequest, TieredError, UnsupportedVersion
from tiered.rules.security.acl import Operation
from tiered.rules.security.quotas import DEFAULT, MatchType, QuotaChange, QuotaEntity, QuotaFilter
from tiered.server.kafka.audited import MAX_ITEMS, AuditEntry, aligned
from tiered.server.kafka.authorize import require_cluster
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages import alter_client_quotas, describe_client_quotas

_PARTS = {"client-id": "client_id", "user": "user", "ip": "ip"}
"""In the order in which Kafka names the parts of an entity: some tools rely on it."""
_EXACT, _DEFAULT, _ANY = 0, 1, 2


async def describe(
    context: Context, request: "describe_client_quotas.Request", reply: "describe_client_quotas.Reply"
) -> "describe_client_quotas.Response":
    code, message, entries = NONE, None, None
    try:
        require_cluster(context, Operation.DESCRIBE_CONFIGS)
        found = context.broker.client_quotas.describe(_filter(request.components, strict=request.strict))
        entries = [
            reply.EntryData(
                entity=[
                    reply.EntityData(entity_type=kind, entity_name=getattr(entity, part) or None)
                    for kind, part in _PARTS.items()
                    if getattr(entity, part) is not None
                ],
                values=[reply.ValueData(key=name, value=value) for name, value in values.items()],
            )
            async for entity, values in in_turns(found.items())
        ]
    except TieredError as error:
        code, message = error_code(error), str(error)
    return reply.DescribeClientQuotasResponse(error_code=code, error_message=message, entries=entries)


def _filter(components: "Sequence[describe_client_quotas.ComponentData]", *, strict: bool) -> QuotaFilter:
    parts: dict[str, tuple[MatchType, str]] = {}
    for each in components:
        part = _PARTS.get(each.entity_type)
        if part is None:
            raise UnsupportedVersion(f"entity type {each.entity_type[:80]!r} is unknown; {', '.join(_PARTS)} are known")
        if part in parts:
            raise InvalidRequest(f"entity type {each.entity_type} stands twice in the filter")
        if (each.match is not None) != (each.match_type == _EXACT):
            raise InvalidRequest("a name is given where one is matched exactly (match type 0), and nowhere else")
        if each.match is not None:
            parts[part] = (MatchType.EXACT, each.match)
        elif each.match_type in (_DEFAULT, _ANY):
            parts[part] = (MatchType.DEFAULT if each.match_type == _DEFAULT else MatchType.ANY, DEFAULT)
        else:
            raise InvalidRequest(f"match type {each.match_type} is unknown; 0 (exact), 1 (default) and 2 (any) are")
    if "ip" in parts and len(parts) > 1:
        raise InvalidRequest("an address goes with no user and no client id; ask for them apart")
    return QuotaFilter(parts=parts, strict=strict)


async def alter(
    context: Context, request: "alter_client_quotas.Request", reply: "alter_client_quotas.Reply"
) -> "alter_client_quotas.Response":
    quotas = context.broker.client_quotas
    changes: list[QuotaChange] = []
    errors: list[TieredError | None] = []
    changed: set[int] = set()
    seen: set[QuotaEntity] = set()
    denied: TieredError | None = None  # One for all entries: 100,000 errors would be 40 MiB.
    try:
        require_cluster(context, Operation.ALTER_CONFIGS)
    except TieredError as error:
        denied = error.without_frames()
    async for at, entry in in_turns(enumerate(request.entries)):
        if denied is not None:
            errors.append(denied)
            continue
        try:
            entity = entity_of((part.entity_type, part.entity_name) for part in entry.entity)
            if entity in seen:
                raise InvalidRequest("this entity stands twice in the request")
            seen.add(entity)
            values = {op.key: None if op.remove else op.value for op in entry.ops}
            if len(values) != len(entry.ops):
                raise InvalidRequest("a quota stands twice for this entity")
            quotas.check(entity, values)
        except TieredError as error:
            errors.append(error.without_frames())
            continue
        errors.append(None)
        changed.add(at)
        changes += [QuotaChange(entity=entity, quota=name, value=value) for name, value in values.items()]
    if changes and not request.validate_only:
        try:
            await client_quotas.alter(context.broker.changes, context.broker.feed, changes)
        except TieredError as error:
            errors = [error.without_frames() if at in changed else each for at, each in enumerate(errors)]
    return reply.AlterClientQuotasResponse(
        entries=[
            reply.EntryData(
                error_code=NONE if error is None else error_code(error),
                error_message=None if error is None else str(error),
                entity=[
                    reply.EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
                    async for each in in_turns(_in_kafkas_order(entry.entity))
                ],
            )
            async for entry, error in in_turns(zip(request.entries, errors, strict=True))
        ]
    )


def _in_kafkas_order(parts: "Sequence[alter_client_quotas.EntityData]") -> "Sequence[alter_client_quotas.EntityData]":
    if len(parts) > len(_PARTS):
        return parts  # It was refused, and there may be very many.
    places = {kind: place for place, kind in enumerate(_PARTS)}
    return sorted(parts, key=lambda part: places.get(part.entity_type, len(places)))


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of Kafka's types and their names, None being the default of its kind. Raises InvalidRequest."""
    names: dict[str, str] = {}
    for kind, name in parts:
        part = _PARTS.get(kind)
        if part is None:
            raise InvalidRequest(f"entity type {kind[:80]!r} is unknown; {', '.join(_PARTS)} are known")
        if part in names:
            raise InvalidRequest(f"entity type {kind} stands twice in one entity")
        if name == "":
            raise InvalidRequest(f"an empty name of {kind}; null is the default for all others")
        names[part] = name or DEFAULT
    if not names:
        raise InvalidRequest("an entity without user, client-id and ip; name one of them")
    if "ip" in names:
        if len(names) > 1:
            raise InvalidRequest("an address goes with no user and no client id; set them apart")
        if names["ip"] != DEFAULT:
            names["ip"] = _address(names["ip"])
    return QuotaEntity(**names)


def _address(text: str) -> str:
    try:
        return named_address(text)
    except ValueError:
        raise InvalidRequest(f"{text[:80]!r} is no IP address") from None


def _told(
    request: "alter_client_quotas.Request", answer: "alter_client_quotas.Response | None"
) -> Iterable[AuditEntry]:
    for each, code in aligned(request.entries, answer and answer.entries):
        entity = ",".join(f"{part.entity_type}={part.entity_name or '<default>'}" for part in each.entity)
        quotas = {change.key[:100]: None if change.remove else change.value for change in each.ops[:MAX_ITEMS]}
        yield AuditEntry(f"QUOTA:{entity}", code, {"quotas": quotas})


DESCRIBE_API = Api(48, "DescribeClientQuotas", (0, 1), rights="DESCRIBE_CONFIGS on the cluster", handle=describe)
ALTER_API = Api(49, "AlterClientQuotas", (0, 1), rights="ALTER_CONFIGS on the cluster", handle=alter, audit=_told)
