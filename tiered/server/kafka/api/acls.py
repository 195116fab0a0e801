"""DescribeAcls (key 29), CreateAcls (key 30) and DeleteAcls (key 31), versions 1 to 3 each (KIP-140, KIP-290).

Rules are found by filters, with MATCH for every pattern that a name falls under. Each new rule is checked for itself,
and those that are right are committed together; they count on this broker when it answers, and on others in a moment.
Where no authorizer is on all three are SECURITY_DISABLED. A host is an IP address or `*`; any other text is kept, as in
Kafka, and meets nobody. Difference to Kafka: unknown codes, which end the connection there, are INVALID_REQUEST.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tiered.errors import TieredError
from tiered.rules.security.acl import AclFilter, Operation, PatternType, Permission, ResourceType, code
from tiered.server.kafka.audited import AuditEntry, aligned, word
from tiered.server.kafka.authorize import require_cluster
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages import create_acls, delete_acls, describe_acls


async def describe(
    context: Context, request: "describe_acls.Request", reply: "describe_acls.Reply"
) -> "describe_acls.Response":
    error, message, resources = NONE, None, list["describe_acls.Replies.DescribeAclsResource"]()
    try:
        require_cluster(context, Operation.DESCRIBE)
        by_resource: dict[tuple[str, str, str], list[describe_acls.Replies.AclDescription]] = {}
        async for rule in in_turns(await context.broker.acls.describe(_filter(request))):
            key = (rule.resource_type, rule.resource_name, rule.pattern_type)
            by_resource.setdefault(key, []).append(
                reply.AclDescription(
                    principal=rule.principal,
                    host=rule.host,
                    operation=Operation[rule.operation],
                    permission_type=Permission[rule.permission],
                )
            )
        resources = [
            reply.DescribeAclsResource(
                resource_type=ResourceType[kind], resource_name=name, pattern_type=PatternType[pattern], acls=rules
            )
            async for (kind, name, pattern), rules in in_turns(by_resource.items())
        ]
    except TieredError as refused:
        error, message = error_code(refused), str(refused)
    return reply.DescribeAclsResponse(throttle_time=0, error_code=error, error_message=message, resources=resources)


async def create(
    context: Context, request: "create_acls.Request", reply: "create_acls.Reply"
) -> "create_acls.Response":
    acls = context.broker.acls
    rules: list[Any] = []
    errors: list[TieredError | None] = []
    async for asked in in_turns(request.creations):
        try:
            require_cluster(context, Operation.ALTER)
            rules.append(
                acls.check(
                    resource_type=asked.resource_type,
                    resource_name=asked.resource_name,
                    pattern_type=asked.resource_pattern_type,
                    principal=asked.principal,
                    host=asked.host,
                    operation=asked.operation,
                    permission=asked.permission_type,
                )
            )
            errors.append(None)
        except TieredError as error:
            errors.append(error.without_frames())
    if rules:
        try:
            await acls.create(rules)
        except TieredError as error:
            refused = error.without_frames()
            errors = [error or refused async for error in in_turns(errors)]
    return reply.CreateAclsResponse(
        throttle_time=0,
        results=[
            reply.AclCreationResult(
                error_code=NONE if error is None else error_code(error),
                error_message=None if error is None else str(error),
            )
            async for error in in_turns(errors)
        ],
    )


async def delete(
    context: Context, request: "delete_acls.Request", reply: "delete_acls.Reply"
) -> "delete_acls.Response":
    filters: list[AclFilter] = []
    errors: list[TieredError | None] = []
    async for asked in in_turns(request.filters):
        try:
            require_cluster(context, Operation.ALTER)
            filters.append(_filter(asked))
            errors.append(None)
        except TieredError as error:
            errors.append(error.without_frames())
    found: list[list[Any]] = []
    if filters:
        try:
            found = await context.broker.acls.delete(filters)
        except TieredError as error:
            refused = error.without_frames()
            errors = [error or refused async for error in in_turns(errors)]
    gone = iter(found)
    return reply.DeleteAclsResponse(
        throttle_time=0,
        filter_results=[
            reply.DeleteAclsFilterResult(
                error_code=NONE if error is None else error_code(error),
                error_message=None if error is None else str(error),
                matching_acls=[] if error is not None else [_gone(reply, rule) async for rule in in_turns(next(gone))],
            )
            async for error in in_turns(errors)
        ],
    )


def _gone(reply: "delete_acls.Reply", rule: Any) -> "delete_acls.Replies.DeleteAclsMatchingAcl":
    return reply.DeleteAclsMatchingAcl(
        error_code=NONE,
        error_message=None,
        resource_type=ResourceType[rule.resource_type],
        resource_name=rule.resource_name,
        pattern_type=PatternType[rule.pattern_type],
        principal=rule.principal,
        host=rule.host,
        operation=Operation[rule.operation],
        permission_type=Permission[rule.permission],
    )


def _filter(asked: "describe_acls.Request | delete_acls.DeleteAclsFilter") -> AclFilter:
    """Raises InvalidRequest for codes that are not known."""
    return AclFilter(
        resource_type=code(ResourceType, asked.resource_type_filter),
        resource_name=asked.resource_name_filter,
        pattern_type=code(PatternType, asked.pattern_type_filter),
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=code(Operation, asked.operation),
        permission=code(Permission, asked.permission_type),
    )


def _created_acls(request: "create_acls.Request", answer: "create_acls.Response | None") -> Iterable[AuditEntry]:
    for each, answered in aligned(request.creations, answer and answer.results):
        resource = f"{word(ResourceType, each.resource_type)}:{each.resource_name}"
        rule = {
            "pattern": word(PatternType, each.resource_pattern_type),
            "for": each.principal[:300],
            "from": each.host[:64],
            "operation": word(Operation, each.operation),
            "permission": word(Permission, each.permission_type),
        }
        yield AuditEntry(resource, answered, {"rule": rule})


def _deleted_acls(request: "delete_acls.Request", answer: "delete_acls.Response | None") -> Iterable[AuditEntry]:
    counts = [len(each.matching_acls) for each in answer.filter_results] if answer is not None else []
    for number, (each, answered) in enumerate(aligned(request.filters, answer and answer.filter_results)):
        wanted = {
            "pattern": word(PatternType, each.pattern_type_filter),
            "for": None if each.principal_filter is None else each.principal_filter[:300],
            "from": None if each.host_filter is None else each.host_filter[:64],
            "operation": word(Operation, each.operation),
            "permission": word(Permission, each.permission_type),
        }
        resource = f"{word(ResourceType, each.resource_type_filter)}:{each.resource_name_filter or ''}"
        found = {"deleted": counts[number]} if number < len(counts) else {}
        yield AuditEntry(resource, answered, {"filter": wanted, **found})


DESCRIBE_API = Api(29, "DescribeAcls", (1, 3), rights="DESCRIBE on the cluster", handle=describe)
CREATE_API = Api(30, "CreateAcls", (1, 3), rights="ALTER on the cluster", handle=create, audit=_created_acls)
DELETE_API = Api(31, "DeleteAcls", (1, 3), rights="ALTER on the cluster", handle=delete, audit=_deleted_acls)
