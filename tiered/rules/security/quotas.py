"""Kafka's client quotas and their order of precedence (KIP-55, KIP-124, KIP-546, KIP-612).

Owns the names of the quotas, the values that each may have, and which clients share one. Must never count anything: a
`token_bucket` does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tiered.errors import InvalidRequest

DEFAULT = ""
"""As a name: the default of its kind, for all that have no quota under their own name."""
MAX_INT = 2**31 - 1
MAX_VALUE = 2.0**63
"""As large as Kafka's quotas of bytes can be. Far above it, what is reckoned with a rate is infinite."""


class QuotaKey(StrEnum):
    """The limited quantities, by Kafka's names."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


OF_ADDRESSES = frozenset({QuotaKey.CONNECTION_CREATION_RATE})
_WHOLE = frozenset({QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.CONNECTION_CREATION_RATE})


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class QuotaEntity:
    """The entity of a quota: a user, a client id, both, or an address. None: it has no such part."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveQuota:
    """The quota of one client, and which part of its name those that share it have in common; None: any."""

    value: float
    user: str | None
    client_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """One quota of one entity gets this value; None takes it away."""

    entity: QuotaEntity
    quota: str
    value: float | None


class QuotaTable:
    """All quotas of a cluster, by what they limit. Looking one up takes eight steps, however many there are."""

    __slots__ = ("_of_addresses", "_of_clients")

    def __init__(self, quotas: Iterable[tuple[QuotaEntity, str, float]] = ()) -> None:
        """A quota with an unknown name, from another version of this program, is left out. One beyond `MAX_VALUE`, as
        earlier versions took it, counts as that."""
        self._of_clients: dict[QuotaKey, dict[tuple[str | None, str | None], float]] = {}
        self._of_addresses: dict[str, float] = {}
        known = {str(key): key for key in QuotaKey}
        for entity, name, value in quotas:
            key = known.get(name)
            if key is None:
                continue
            if key not in OF_ADDRESSES and entity.ip is None:
                self._of_clients.setdefault(key, {})[entity.user, entity.client_id] = min(value, MAX_VALUE)
            elif key in OF_ADDRESSES and entity.ip is not None:
                self._of_addresses[entity.ip] = min(value, MAX_VALUE)

    def limits(self, key: QuotaKey) -> bool:
        """Whether anybody at all has a quota of this kind."""
        return bool(self._of_addresses) if key in OF_ADDRESSES else key in self._of_clients

    def of_client(self, key: QuotaKey, user: str, client_id: str) -> EffectiveQuota | None:
        """The quota that counts for this client, or None: the most specific one, as Kafka ranks them."""
        values = self._of_clients.get(key)
        if values is None:
            return None
        for named_user, named_client, shares_user, shares_client in (
            (user, client_id, user, client_id),
            (user, DEFAULT, user, client_id),
            (user, None, user, None),
            (DEFAULT, client_id, user, client_id),
            (DEFAULT, DEFAULT, user, client_id),
            (DEFAULT, None, user, None),
            (None, client_id, None, client_id),
            (None, DEFAULT, None, client_id),
        ):
            value = values.get((named_user, named_client))
            if value is not None:
                return EffectiveQuota(value=value, user=shares_user, client_id=shares_client)
        return None

    def of_address(self, ip: str) -> float | None:
        """Connections a second that this address may open, or None."""
        value = self._of_addresses.get(ip)
        return self._of_addresses.get(DEFAULT) if value is None else value


def check_value(entity: QuotaEntity, name: str, value: float) -> None:
    """Raises InvalidRequest for a quota that this entity cannot have, or not with this value."""
    possible = sorted(str(key) for key in QuotaKey if (key in OF_ADDRESSES) == (entity.ip is not None))
    if name not in possible:
        of_whom = "an address" if entity.ip is not None else "a user or client id"
        raise InvalidRequest(f"{name[:80]!r} is no quota of {of_whom}; {', '.join(possible)} are")
    if not 0 < value <= MAX_VALUE:
        raise InvalidRequest(
            f"{name} is {value}; a quota is greater than 0, and {MAX_VALUE:.0f} at the most; remove it to have none"
        )
    if name in _WHOLE and value != int(value):
        raise InvalidRequest(f"{name} is {value}; give a whole number")
    if name == QuotaKey.CONNECTION_CREATION_RATE and value > MAX_INT:
        raise InvalidRequest(f"{name} is {value:.0f}; {MAX_INT} is the largest")


# What a description of quotas asks for


class MatchType(StrEnum):
    """How one component of a filter chooses: by name, the default alone, or any that has such a part."""

    EXACT = "exact"
    DEFAULT = "default"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFilter:
    """Which entities are meant: by part (`user`, `client_id`, `ip`), how and under which name. With `strict` they may
    have no other part."""

    parts: Mapping[str, tuple[MatchType, str]]
    strict: bool = False

    def matches(self, entity: QuotaEntity) -> bool:
        """Whether this entity is meant."""
        for part, (match_type, name) in self.parts.items():
            held: str | None = getattr(entity, part)
            if held is None:
                return False
            if match_type is not MatchType.ANY and held != (name if match_type is MatchType.EXACT else DEFAULT):
                return False
        held_parts = sum(each is not None for each in (entity.user, entity.client_id, entity.ip))
        return not self.strict or held_parts == len(self.parts)
