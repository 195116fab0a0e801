"""The principals of brokers: by name, or by a pattern, so that a new broker is known without a restart.

Owns the pattern: one star, for letters, digits, `-` and `_`. It is matched with the whole principal, so it never
reaches over a dot, a comma or an equals sign into another part of a certificate's subject. Must never know where a
principal comes from.
"""

import re
from dataclasses import dataclass
from typing import Self

from tiered.errors import InvalidConfig
from tiered.rules.security.principal import Principal, parse_principal

STAR = "*"
_WITHIN_A_NAME = re.compile(r"[A-Za-z0-9_-]+")
_BEFORE_A_STAR = re.compile(r"[A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class _Pattern:
    before: str
    after: str

    def matches(self, principal: str) -> bool:
        if not (principal.startswith(self.before) and principal.endswith(self.after)):
            return False
        between = principal[len(self.before) : len(principal) - len(self.after)]
        return _WITHIN_A_NAME.fullmatch(between) is not None


@dataclass(frozen=True, slots=True)
class BrokerPrincipals:
    """Asked for each Fetch of a follower."""

    names: frozenset[str]
    patterns: tuple[_Pattern, ...]

    @classmethod
    def parse(cls, text: str, *, others: frozenset[str]) -> Self:
        """Of `tiered.broker.principals`, between semicolons; `others` are brokers too. Raises InvalidConfig."""
        names, patterns = set(others), []
        for each in text.split(";"):
            if not each.strip():
                continue
            try:
                principal = parse_principal(each.strip())
                if STAR in principal.name:
                    patterns.append(_pattern(principal))
                else:
                    names.add(str(principal))
            except InvalidConfig as error:
                raise InvalidConfig(f"tiered.broker.principals: {error}") from None
        return cls(frozenset(names), tuple(patterns))

    def __bool__(self) -> bool:
        return bool(self.names or self.patterns)

    def __contains__(self, principal: str) -> bool:
        return principal in self.names or any(pattern.matches(principal) for pattern in self.patterns)


def _pattern(principal: Principal) -> _Pattern:
    before, _, after = principal.name.partition(STAR)
    if STAR in after:
        raise InvalidConfig(f"{str(principal)!r} has more than one *")
    if _BEFORE_A_STAR.fullmatch(before[-1:]) is None:
        raise InvalidConfig(
            f"{str(principal)!r} would take strangers for brokers: a name must begin before the *, such as "
            "User:CN=broker-*.example.com. Where a certificate's name has a star itself, put it into super.users"
        )
    return _Pattern(f"{principal.kind}:{before}", after)
