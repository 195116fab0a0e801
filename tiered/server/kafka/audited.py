"""Which requests are administration, and what the audit log says of each: resources, outcomes, and no secret.

Owns the table. A request is told of when its answer is known, or when whoever sent it went away before. Must never
look at a value that may be secret: of settings and credentials only names are told.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tiered.broker.audit import ALLOWED, DENIED, FAILED, MAX_NAME, UNKNOWN, AuditLog
from tiered.rules.security.acl import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from tiered.server.kafka.transport.connection import Connection
from tiered.wire.error_codes import AUTHORIZATION_FAILED, NONE

MAX_LINES_A_REQUEST = 1_000
"""Beyond it many resources share a line: none that was changed may hide behind others."""
MAX_ITEMS = 100
"""Of one kind in one line."""
_CONFIGURED = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}


class Entry(NamedTuple):
    """What became of one resource of a request. The code is None while there is no answer."""

    resource: str
    code: int | None
    details: Mapping[str, object] = {}


Tell = Callable[[Any, Any], Iterable[Entry]]
"""(request, answer or None) -> what it was about"""


def note(audit: AuditLog, connection: Connection, api_key: int, name: str, request: Any, answer: Any) -> None:
    """Writes down an administrative request; `answer` is None when nobody waited for it."""
    tell = AUDITED.get(api_key)
    if tell is None or not audit.is_on:
        return
    who = {"principal": str(connection.principal or ""), "host": connection.host, "via": "kafka", "action": name}
    shared: dict[str, object] = {"validate_only": True} if getattr(request, "validate_only", False) else {}
    together: dict[str, list[str]] = {ALLOWED: [], UNKNOWN: []}
    for number, entry in enumerate(tell(request, answer)):
        outcome = _outcome(entry.code)
        if number >= MAX_LINES_A_REQUEST and outcome in together:
            together[outcome].append(entry.resource[:MAX_NAME])
            if len(together[outcome]) == MAX_ITEMS:
                _note_together(audit, who, outcome, together, shared)
            continue
        told = {} if entry.code in (None, NONE) else {"error_code": entry.code}
        # Of what was refused the log itself keeps to a bound.
        audit.note(**who, outcome=outcome, resource=entry.resource, details={**entry.details, **told, **shared})
    for outcome in together:
        _note_together(audit, who, outcome, together, shared)


def _note_together(
    audit: AuditLog,
    who: Mapping[str, str],
    outcome: str,
    together: dict[str, list[str]],
    shared: Mapping[str, object],
) -> None:
    resources, together[outcome] = together[outcome], []
    if resources:
        audit.note(
            **who, outcome=outcome, resource=f"{len(resources)} more", details={"resources": resources, **shared}
        )


def _outcome(code: int | None) -> str:
    if code is None:
        return UNKNOWN
    if code == NONE:
        return ALLOWED
    return DENIED if code in AUTHORIZATION_FAILED else FAILED


def _aligned(asked: Iterable[Any], answers: Iterable[Any] | None) -> list[tuple[Any, int | None]]:
    """Each item of a request with its code."""
    items = list(asked)
    if answers is None:
        return [(each, None) for each in items]
    return list(zip(items, (int(each.error_code) for each in answers), strict=False))


def _sum(codes: Iterable[int]) -> tuple[int, dict[str, object]]:
    """(one code for all of them, what else is to be told). When anything was done, that is what the line says: one that
    fails beside it must not make a refusal of it, for of refusals not all have lines."""
    found = list(codes)
    failed = next((code for code in found if code != NONE), NONE)
    if failed != NONE and NONE in found:
        return NONE, {"partly_failed": failed}
    return failed, {}


def _of_partitions(partitions: Iterable[Any]) -> Iterable[int]:
    return (int(each.error_code) for each in partitions)


def _created_topics(request: Any, answer: Any) -> Iterable[Entry]:
    for each, code in _aligned(request.topics, answer and answer.topics):
        yield Entry(f"TOPIC:{each.name}", code, {"partitions": each.num_partitions or len(each.assignments)})


def _deleted_topics(request: Any, answer: Any) -> Iterable[Entry]:
    named = getattr(request, "topics", None)
    asked = request.topic_names if named is None else [each.name or str(each.topic_id) for each in named]
    for name, code in _aligned(asked, answer and answer.responses):
        yield Entry(f"TOPIC:{name}", code)


def _deleted_records(request: Any, answer: Any) -> Iterable[Entry]:
    sums: list[tuple[int | None, dict[str, object]]] = [(None, {}) for _ in request.topics]
    if answer is not None:
        sums = [_sum(_of_partitions(each.partitions)) for each in answer.topics]
    for topic, (code, partly) in zip(request.topics, sums, strict=False):
        before = {str(each.partition_index): each.offset for each in topic.partitions[:MAX_ITEMS]}
        yield Entry(f"TOPIC:{topic.name}", code, {"before_offsets": before, **partly})


def _created_acls(request: Any, answer: Any) -> Iterable[Entry]:
    for each, code in _aligned(request.creations, answer and answer.results):
        resource = f"{_word(ResourceType, each.resource_type)}:{each.resource_name}"
        rule = {
            "pattern": _word(PatternType, each.resource_pattern_type),
            "for": each.principal[:300],
            "from": each.host[:64],
            "operation": _word(Operation, each.operation),
            "permission": _word(Permission, each.permission_type),
        }
        yield Entry(resource, code, {"rule": rule})


def _deleted_acls(request: Any, answer: Any) -> Iterable[Entry]:
    counts = [len(each.matching_acls) for each in answer.filter_results] if answer is not None else []
    for number, (each, code) in enumerate(_aligned(request.filters, answer and answer.filter_results)):
        wanted = {
            "pattern": _word(PatternType, each.pattern_type_filter),
            "for": None if each.principal_filter is None else each.principal_filter[:300],
            "from": None if each.host_filter is None else each.host_filter[:64],
            "operation": _word(Operation, each.operation),
            "permission": _word(Permission, each.permission_type),
        }
        resource = f"{_word(ResourceType, each.resource_type_filter)}:{each.resource_name_filter or ''}"
        found = {"deleted": counts[number]} if number < len(counts) else {}
        yield Entry(resource, code, {"filter": wanted, **found})


def _word(words: Any, value: int) -> str:
    return words(value).name if value in list(words) else str(value)


def _altered_configs(request: Any, answer: Any) -> Iterable[Entry]:
    for each, code in _aligned(request.resources, answer and answer.responses):
        resource = f"{_CONFIGURED.get(each.resource_type, each.resource_type)}:{each.resource_name}"
        yield Entry(resource, code, {"configs": sorted(config.name[:100] for config in each.configs[:MAX_ITEMS])})


def _more_partitions(request: Any, answer: Any) -> Iterable[Entry]:
    for each, code in _aligned(request.topics, answer and answer.results):
        yield Entry(f"TOPIC:{each.name}", code, {"partitions": each.count})


def _deleted_groups(request: Any, answer: Any) -> Iterable[Entry]:
    for group_id, code in _aligned(request.groups_names, answer and answer.results):
        yield Entry(f"GROUP:{group_id}", code)


def _elected(request: Any, answer: Any) -> Iterable[Entry]:
    code: int | None = None
    partly: dict[str, object] = {}
    if answer is not None:
        found = [code for each in answer.replica_election_results for code in _of_partitions(each.partition_result)]
        code, partly = _sum(found or [int(getattr(answer, "error_code", NONE))])
    topics = (
        None
        if request.topic_partitions is None
        else [each.topic[:249] for each in request.topic_partitions[:MAX_ITEMS]]
    )
    kind = "unclean" if getattr(request, "election_type", 0) else "preferred"
    yield Entry(f"CLUSTER:{CLUSTER_NAME}", code, {"election": kind, "topics": topics, **partly})


def _reassigned(request: Any, answer: Any) -> Iterable[Entry]:
    whole = NONE if answer is None else int(answer.error_code)
    codes: dict[str, list[int]] = {}
    for each in () if answer is None else answer.responses:
        codes.setdefault(each.name, []).extend(_of_partitions(each.partitions))
    for topic in request.topics:
        code, partly = _sum([whole] if whole else codes.get(topic.name, []))
        moved = {
            str(each.partition_index): each.replicas and list(each.replicas[:MAX_ITEMS])
            for each in topic.partitions[:MAX_ITEMS]
        }
        yield Entry(f"TOPIC:{topic.name}", None if answer is None else code, {"replicas": moved, **partly})


def _deleted_offsets(request: Any, answer: Any) -> Iterable[Entry]:
    code: int | None = None
    partly: dict[str, object] = {}
    if answer is not None:
        found = [code for each in answer.topics for code in _of_partitions(each.partitions)]
        code, partly = _sum([int(answer.error_code)] if answer.error_code or not found else found)
    topics = [each.name[:249] for each in request.topics[:MAX_ITEMS]]
    yield Entry(f"GROUP:{request.group_id}", code, {"topics": topics, **partly})


def _altered_quotas(request: Any, answer: Any) -> Iterable[Entry]:
    for each, code in _aligned(request.entries, answer and answer.entries):
        entity = ",".join(f"{part.entity_type}={part.entity_name or '<default>'}" for part in each.entity)
        quotas = {change.key[:100]: None if change.remove else change.value for change in each.ops[:MAX_ITEMS]}
        yield Entry(f"QUOTA:{entity}", code, {"quotas": quotas})


def _altered_credentials(request: Any, answer: Any) -> Iterable[Entry]:
    codes = {} if answer is None else {each.user: int(each.error_code) for each in answer.results}
    for what, changes in (("deleted", request.deletions), ("set", request.upsertions)):
        for each in changes:
            code = None if answer is None else codes.get(each.name, NONE)
            yield Entry(f"USER:{each.name}", code, {"credential": what, "mechanism": each.mechanism})


def _unregistered(request: Any, answer: Any) -> Iterable[Entry]:
    yield Entry(f"BROKER:{request.broker_id}", None if answer is None else int(answer.error_code))


def _moved_between_log_dirs(request: Any, answer: Any) -> Iterable[Entry]:
    asked = sorted({topic.name for each in request.dirs for topic in each.topics})
    results = () if answer is None else answer.results
    codes = {each.topic_name: _sum(_of_partitions(each.partitions)) for each in results}
    paths = [each.path[:249] for each in request.dirs[:MAX_ITEMS]]
    for name in asked:
        code, partly = (None, {}) if answer is None else codes.get(name, (NONE, {}))
        yield Entry(f"TOPIC:{name}", code, {"log_dirs": paths, **partly})


def _updated_features(request: Any, answer: Any) -> Iterable[Entry]:
    levels = {each.feature[:100]: each.max_version_level for each in request.feature_updates[:MAX_ITEMS]}
    yield Entry(f"CLUSTER:{CLUSTER_NAME}", None if answer is None else int(answer.error_code), {"features": levels})


AUDITED: dict[int, Tell] = {
    19: _created_topics,
    20: _deleted_topics,
    21: _deleted_records,
    30: _created_acls,
    31: _deleted_acls,
    33: _altered_configs,
    34: _moved_between_log_dirs,
    37: _more_partitions,
    42: _deleted_groups,
    43: _elected,
    44: _altered_configs,
    45: _reassigned,
    47: _deleted_offsets,
    49: _altered_quotas,
    51: _altered_credentials,
    57: _updated_features,
    64: _unregistered,
}
