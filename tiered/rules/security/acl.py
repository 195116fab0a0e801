"""The words of access control lists: kinds of resources, operations, patterns, permissions, and filters of them.

Owns Kafka's names and codes, what each operation implies, and what a filter matches. Must never decide whether somebody
may do something: `authorization` does.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Protocol, TypeVar

from tiered.config.addresses import address_or_word
from tiered.errors import InvalidRequest

WILDCARD = "*"
"""As a literal name: every resource of its kind. As a host: every host."""
CLUSTER_NAME = "kafka-cluster"
"""The one resource of its kind."""


class ResourceType(IntEnum):
    """The resource of a rule, with Kafka's codes. ANY stands in filters alone."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a rule names its resources. ANY and MATCH stand in filters alone."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """Operations on a resource, with Kafka's codes. ANY stands in filters alone, ALL in rules alone."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether a rule allows or denies, with Kafka's codes. ANY stands in filters alone."""

    ANY = 1
    DENY = 2
    ALLOW = 3


SUPPORTED: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that each kind of resource has: those that authorized_operations tells of."""

_EVERY = frozenset(Operation) - {Operation.ANY, Operation.ALL}
_DESCRIBE = Operation.DESCRIBE
_IMPLIED: dict[Operation, Operation] = {
    Operation.READ: _DESCRIBE,
    Operation.WRITE: _DESCRIBE,
    Operation.DELETE: _DESCRIBE,
    Operation.ALTER: _DESCRIBE,
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}


@cache
def spoken_for(operation: Operation, permission: Permission) -> frozenset[Operation]:
    """The operations that a rule about `operation` decides. Who may read may describe; who may not read still may."""
    if operation is Operation.ALL:
        return _EVERY
    implied = _IMPLIED.get(operation)
    if implied is None or permission is Permission.DENY:
        return frozenset((operation,))
    return frozenset((operation, implied))


Word = TypeVar("Word", bound=IntEnum)


def code(words: type[Word], value: int) -> Word:
    """The word of one of Kafka's codes. Raises InvalidRequest."""
    try:
        return words(value)
    except ValueError:
        known = ", ".join(f"{each.value} ({each.name})" for each in words)
        raise InvalidRequest(f"{words.__name__} {value} is not known; known are {known}") from None


class AclWords(Protocol):
    """A rule as the metadata store keeps it: every word is Kafka's own, in capitals."""

    @property
    def resource_type(self) -> str: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def pattern_type(self) -> str: ...
    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def permission(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Which rules somebody means; ANY and None leave it open. MATCH means every pattern that the name falls under."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, rule: AclWords) -> bool:
        return (
            self.resource_type.name in ("ANY", rule.resource_type)
            and self._is_meant(rule.pattern_type, rule.resource_name)
            and self.principal in (None, rule.principal)
            and (self.host is None or rule.host in (self.host, address_or_word(self.host)))
            and self.operation.name in ("ANY", rule.operation)
            and self.permission.name in ("ANY", rule.permission)
        )

    def _is_meant(self, pattern_type: str, name: str) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH) and self.pattern_type.name != pattern_type:
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.resource_name == name
        if pattern_type == PatternType.PREFIXED.name:
            return self.resource_name.startswith(name)
        return name in (self.resource_name, WILDCARD)
