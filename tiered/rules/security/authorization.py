"""Authorization by access control lists, prepared once and asked a million times.

Owns the decision, with the meaning that Kafka's StandardAuthorizer gives it: super users may do everything; a DENY that
fits wins; else an ALLOW that fits; else it is denied, unless `allow.everyone.if.no.acl.found` says so of a resource
that no rule names. Immutable: a change of the rules makes another one. Must never remember who asked.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tiered.config.addresses import address_or_word
from tiered.errors import InvalidConfig
from tiered.rules.security.acl import (
    SUPPORTED,
    WILDCARD,
    AclWords,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    spoken_for,
)
from tiered.rules.security.principal import USER, parse_principal

EVERYBODY = f"{USER}:{WILDCARD}"
"""The principal of rules that are about everyone."""

MAX_SCOPE_NAMES = 200
MAX_SCOPE_PREFIXES = 20
"""More make a statement of SQL that costs more than it spares."""

# Looked up by the thousand, where an enum's own look-up takes its time.
_TYPES, _OPERATIONS = dict(ResourceType.__members__), dict(Operation.__members__)
_PERMISSIONS = dict(Permission.__members__)
_PREFIXED = PatternType.PREFIXED.name


@dataclass(frozen=True, slots=True)
class NameScope:
    """Names that have to be looked at: every name for which `allows` is true is among them, and others may be.

    The names themselves and all that begin with one of the prefixes; every name begins with the empty prefix.
    """

    names: frozenset[str]
    prefixes: tuple[str, ...]

    @property
    def is_everything(self) -> bool:
        return "" in self.prefixes

    @property
    def is_nothing(self) -> bool:
        return not self.names and not self.prefixes

    def holds(self, name: str) -> bool:
        return name in self.names or name.startswith(self.prefixes)


EVERYTHING = NameScope(frozenset(), ("",))
NOTHING = NameScope(frozenset(), ())


class _Rule(NamedTuple):
    """The rest of a rule once its resource and its principal have been found."""

    host: str
    operations: frozenset[Operation]
    operation: Operation
    is_allow: bool


class _Patterns:
    """The rules of one principal about resources of one kind, by how they name them."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, list[_Rule]] = {}
        self.prefixed: dict[str, list[_Rule]] = {}
        self.lengths: tuple[int, ...] = ()
        """Of the prefixes: a name has few prefixes worth looking for, however many there are."""

    def matching(self, name: str) -> Iterator[_Rule]:
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        for length in self.lengths:
            yield from self.prefixed.get(name[:length], ())

    def names(self, name: str) -> bool:
        """Whether any rule is about the resource of this name."""
        return next(self.matching(name), None) is not None


class AccessList:
    """The rules of a cluster. `allows` costs a few look-ups in dictionaries, whatever their number."""

    def __init__(
        self, rules: Iterable[AclWords] = (), *, super_users: Iterable[str] = (), allow_unnamed: bool = False
    ) -> None:
        """A rule with a word that this version does not know gives nothing; it cannot deny what it cannot name."""
        self._super_users = frozenset(super_users)
        self._allow_unnamed = allow_unnamed
        self._of_principal: dict[tuple[ResourceType, str], _Patterns] = {}
        self._of_all: dict[ResourceType, _Patterns] = {}
        for words in rules:
            self._add(words)
        for patterns in (*self._of_principal.values(), *self._of_all.values()):
            patterns.lengths = tuple(sorted({len(prefix) for prefix in patterns.prefixed}))

    def _add(self, words: AclWords) -> None:
        resource_type = _TYPES.get(words.resource_type)
        operation, permission = _OPERATIONS.get(words.operation), _PERMISSIONS.get(words.permission)
        is_known = words.pattern_type in PatternType.__members__
        if resource_type is None or operation is None or permission is None or not is_known:
            return
        # Earlier versions kept the address of an IPv4 client in its long form, in which nobody comes.
        host = address_or_word(words.host) if ":" in words.host else words.host
        rule = _Rule(host, spoken_for(operation, permission), operation, is_allow=permission is Permission.ALLOW)
        own = self._of_principal.setdefault((resource_type, words.principal), _Patterns())
        named = self._of_all.setdefault(resource_type, _Patterns())
        for patterns in (own, named):
            place = patterns.prefixed if words.pattern_type == _PREFIXED else patterns.literal
            place.setdefault(words.resource_name, []).append(rule)

    def is_super_user(self, principal: str) -> bool:
        return principal in self._super_users

    def allows(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, resource_name: str
    ) -> bool:
        """Whether `principal`, who comes from `host`, may do it."""
        if principal in self._super_users:
            return True
        is_allowed = False
        for patterns in self._about(principal, resource_type):
            for rule in patterns.matching(resource_name):
                if operation in rule.operations and rule.host in (host, WILDCARD):
                    if not rule.is_allow:
                        return False
                    is_allowed = True
        return is_allowed or (self._allow_unnamed and not self._is_named(resource_type, resource_name))

    def allows_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there can be a resource of the kind of which `allows` is true (KIP-679).

        An ALLOW counts unless a DENY covers all that it names; what an operation implies does not count.
        """
        if principal in self._super_users:
            return True
        allowed: list[tuple[bool, str]] = []
        denied: set[tuple[bool, str]] = set()
        for patterns in self._about(principal, resource_type):
            for is_prefix, place in ((False, patterns.literal), (True, patterns.prefixed)):
                for name, rules in place.items():
                    for rule in rules:
                        if rule.operation in (operation, Operation.ALL) and rule.host in (host, WILDCARD):
                            if rule.is_allow:
                                allowed.append((is_prefix, name))
                            else:
                                denied.add((is_prefix, name))
        if (False, WILDCARD) in denied:
            return False
        if (False, WILDCARD) in allowed:
            return True
        if self._allow_unnamed and not self._is_all_named(resource_type):
            return True
        return any(
            (is_prefix, name) not in denied
            and not any((True, name[:length]) in denied for length in range(len(name) + 1))
            for is_prefix, name in allowed
        )

    def scope(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> NameScope:
        """Where to look for what `allows`: a DENY takes nothing from it. EVERYTHING where a list of names and prefixes
        would be long."""
        if principal in self._super_users or self._allow_unnamed:
            return EVERYTHING
        names: set[str] = set()
        prefixes: set[str] = set()
        for patterns in self._about(principal, resource_type):
            for place, allowed in ((patterns.literal, names), (patterns.prefixed, prefixes)):
                for name, rules in place.items():
                    if any(
                        rule.is_allow and operation in rule.operations and rule.host in (host, WILDCARD)
                        for rule in rules
                    ):
                        allowed.add(name)
        if WILDCARD in names or "" in prefixes or len(names) > MAX_SCOPE_NAMES or len(prefixes) > MAX_SCOPE_PREFIXES:
            return EVERYTHING
        return NameScope(frozenset(names), tuple(sorted(prefixes)))

    def authorized_operations(self, principal: str, host: str, resource_type: ResourceType, resource_name: str) -> int:
        """The bits of what `principal` may do to the resource, as answers of Kafka's protocol carry them."""
        supported = SUPPORTED[resource_type]
        return bits_of(each for each in supported if self.allows(principal, host, each, resource_type, resource_name))

    def _about(self, principal: str, resource_type: ResourceType) -> Iterator[_Patterns]:
        for each in dict.fromkeys((principal, EVERYBODY)):
            found = self._of_principal.get((resource_type, each))
            if found is not None:
                yield found

    def _is_all_named(self, resource_type: ResourceType) -> bool:
        """Whether each name is in some rule. (A prefix `*` is that of few.)"""
        rules = self._of_all.get(resource_type)
        return rules is not None and (WILDCARD in rules.literal or "" in rules.prefixed)

    def _is_named(self, resource_type: ResourceType, resource_name: str) -> bool:
        found = self._of_all.get(resource_type)
        return found is not None and found.names(resource_name)


def bits_of(operations: Iterable[Operation]) -> int:
    """One bit for each, at the place of its code."""
    return sum(1 << operation for operation in operations)


def parse_super_users(text: str) -> tuple[str, ...]:
    """The principals of `super.users`, between semicolons because names may have commas. Raises InvalidConfig."""
    users = []
    for each in text.split(";"):
        if each.strip():
            try:
                users.append(str(parse_principal(each.strip())))
            except InvalidConfig as error:
                raise InvalidConfig(f"super.users: {error}") from None
    return tuple(users)
