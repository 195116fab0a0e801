"""A principal: `User:alice`.

Owns the two parts of a name and its text. Must never decide what a principal may do.
"""

from dataclasses import dataclass

from tiered.errors import InvalidConfig

USER = "User"
"""The one kind that authentication gives; others may stand in access control lists, as with Kafka."""


@dataclass(frozen=True, slots=True)
class Principal:
    """`kind` and `name`, of which the name may contain anything, colons too."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Who connects where nobody is asked."""


def parse_principal(text: str) -> Principal:
    """The principal of a text such as `User:alice`. Raises InvalidConfig when a part is missing."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise InvalidConfig(f"{text!r} is no principal: it must be KIND:NAME, for example User:alice")
    return Principal(kind, name)
