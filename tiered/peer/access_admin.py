"""A client's requests about access control lists, users (KIP-554) and client quotas.

Owns the form of each request. Must never judge a rule or a value: the broker does. A password is salted before it is
sent, so that no broker sees it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tiered.peer.answers import CorruptAnswer, require_success, the_only
from tiered.peer.cluster import Cluster
from tiered.rules.security.acl import AclFilter, Operation, PatternType, Permission, ResourceType
from tiered.rules.security.sasl.mechanism import ScramMechanism

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS, DESCRIBE_USERS, ALTER_USERS = 48, 49, 50, 51
_EXACT, _DEFAULT = 0, 1


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


Users = Mapping[str, Mapping[ScramMechanism, int]]
"""The iterations of each mechanism by which a user may log in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPassword:
    """Of a user for one mechanism."""

    mechanism: ScramMechanism
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)
    iterations: int


async def describe_users(cluster: Cluster) -> Users:
    """All users. Raises BrokerError."""
    answer = await cluster.request(DESCRIBE_USERS, lambda make: make.DescribeUserScramCredentialsRequest(users=None))
    require_success(answer, "the users were not described")
    by_code = {each.code: each for each in ScramMechanism}
    return {
        each.user: {
            by_code[info.mechanism]: info.iterations for info in each.credential_infos if info.mechanism in by_code
        }
        for each in answer.results
    }


async def alter_user(
    cluster: Cluster, name: str, *, new: Iterable[NewPassword] = (), deleted: Iterable[ScramMechanism] = ()
) -> None:
    """All of it, or nothing. Raises BrokerError with the broker's reason."""
    answer = await cluster.request(
        ALTER_USERS,
        lambda make: make.AlterUserScramCredentialsRequest(
            deletions=[make.ScramCredentialDeletion(name=name, mechanism=each.code) for each in deleted],
            upsertions=[
                make.ScramCredentialUpsertion(
                    name=name,
                    mechanism=each.mechanism.code,
                    iterations=each.iterations,
                    salt=each.salt,
                    salted_password=each.salted_password,
                )
                for each in new
            ],
        ),
    )
    for found in answer.results:
        require_success(found, "the user was not changed")


Entity = Mapping[str, str | None]
"""Names by type of entity, which is `user`, `client-id` or `ip`; None is the default for all others."""


async def describe_quotas(cluster: Cluster, entity: Entity) -> list[tuple[Entity, Mapping[str, float]]]:
    """Each entity that has these parts, with its quotas; all of them for an empty one."""
    answer = await cluster.request(
        DESCRIBE_CLIENT_QUOTAS,
        lambda make: make.DescribeClientQuotasRequest(
            components=[
                make.ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
                for kind, name in entity.items()
            ],
            strict=False,
        ),
    )
    require_success(answer, "the quotas were not described")
    entries = answer.entries or ()
    if not all(math.isfinite(each.value) for entry in entries for each in entry.values):
        raise CorruptAnswer("a broker tells of a quota that is no number")
    return [
        ({each.entity_type: each.entity_name for each in entry.entity}, {each.key: each.value for each in entry.values})
        for entry in entries
    ]


async def alter_quotas(
    cluster: Cluster, entity: Entity, values: Mapping[str, float | None], *, validate_only: bool = False
) -> None:
    """Sets the quotas of one entity; None takes one away. Raises BrokerError with the broker's reason."""

    def request(make: Any) -> Any:
        parts = [make.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
        changes = [make.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
        return make.AlterClientQuotasRequest(
            entries=[make.EntryData(entity=parts, ops=changes)], validate_only=validate_only
        )

    found = the_only((await cluster.request(ALTER_CLIENT_QUOTAS, request)).entries, "entity")
    require_success(found, "the quotas were not changed")
