"""Where clients connect, by name, and what is spoken there: Kafka's four security protocols.

Owns the words. Must never bind an address or read a certificate.
"""

from dataclasses import dataclass
from enum import StrEnum


class SecurityProtocol(StrEnum):
    """What a listener speaks, by Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerOptions:
    """One listener. `advertise_*` are None where the address bound is meant."""

    name: str = "PLAINTEXT"
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    host: str = "127.0.0.1"
    port: int = 9092
    advertise_host: str | None = None
    advertise_port: int | None = None
