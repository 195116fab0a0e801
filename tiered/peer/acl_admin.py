"""Access control lists from outside: show them, add to them, take some away.

Owns how each request is put. Must never judge a rule: the broker does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tiered.peer.answers import require_success, the_only
from tiered.peer.cluster import Cluster
from tiered.rules.security.acl import AclFilter, Operation, PatternType, Permission, ResourceType

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Acl:
    """One rule, in Kafka's words."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


async def describe_acls(cluster: Cluster, wanted: AclFilter) -> list[Acl]:
    """The rules that the filter means. Raises BrokerError with the broker's reason."""
    answer = await cluster.request(DESCRIBE_ACLS, lambda make: make.DescribeAclsRequest(**_words(wanted)))
    require_success(answer, "the rules were not described")
    return sorted(_told(resource, each) for resource in answer.resources for each in resource.acls)


async def create_acls(cluster: Cluster, rules: Sequence[Acl]) -> None:
    """Adds all of them. Raises BrokerError for the first one that was refused; others may be there."""

    def request(make: Any) -> Any:
        return make.CreateAclsRequest(
            creations=[
                make.AclCreation(
                    resource_type=ResourceType[each.resource_type],
                    resource_name=each.resource_name,
                    resource_pattern_type=PatternType[each.pattern_type],
                    principal=each.principal,
                    host=each.host,
                    operation=Operation[each.operation],
                    permission_type=Permission[each.permission],
                )
                for each in rules
            ]
        )

    for result in (await cluster.request(CREATE_ACLS, request)).results:
        require_success(result, "the rule was not added")


async def delete_acls(cluster: Cluster, wanted: AclFilter) -> list[Acl]:
    """The rules that are gone. Raises BrokerError with the broker's reason."""
    answer = await cluster.request(
        DELETE_ACLS, lambda make: make.DeleteAclsRequest(filters=[make.DeleteAclsFilter(**_words(wanted))])
    )
    found = the_only(answer.filter_results, "filter")
    require_success(found, "the rules were not deleted")
    return sorted(_told(each, each) for each in found.matching_acls)


def _told(resource: Any, rule: Any) -> Acl:
    """One rule of an answer: DescribeAcls tells of a resource once for all of its rules, DeleteAcls with each."""
    return Acl(
        resource_type=_name(ResourceType, resource.resource_type),
        resource_name=resource.resource_name,
        pattern_type=_name(PatternType, resource.pattern_type),
        principal=rule.principal,
        host=rule.host,
        operation=_name(Operation, rule.operation),
        permission=_name(Permission, rule.permission_type),
    )


def _words(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _name(words: Any, value: int) -> str:
    """The word of a code; its number, where a newer broker has one that this version does not know."""
    return words(value).name if value in list(words) else str(value)
