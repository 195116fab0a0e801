"""How a client of brokers makes itself known and whom it believes: Kafka's client properties, as one value.

Owns their names, checks and defaults, for brokers among themselves, for the commands and for Spark. Must never open a
certificate, and never put the value of a secret into an error.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiered.config.listeners import ListenerOptions, SecurityProtocol
from tiered.config.secret import Secret
from tiered.config.tls import MATERIAL_NAMES, TlsMaterial, tls_material
from tiered.errors import InvalidConfig

CLIENT_NAMES = MATERIAL_NAMES | {
    "security.protocol",
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
}
"""Every property of security that clients of ours take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """What a client needs to reach a listener. Without anything, a plaintext one that asks nobody who they are."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsMaterial = field(default_factory=TlsMaterial)
    checks_host_name: bool = True
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: Secret | None = None


def client_security(given: Mapping[str, str], *, where: str = "") -> ClientSecurity:
    """What these properties say. Raises InvalidConfig that names the property, after `where`, and never a secret."""
    for name in sorted(given):
        if name not in CLIENT_NAMES:
            close = difflib.get_close_matches(name, CLIENT_NAMES, n=1)
            raise InvalidConfig(
                f"unknown property {where}{name}: "
                + (f"did you mean {where}{close[0]}?" if close else "docs/security.md lists those that are known")
            )
    protocol = given.get("security.protocol", SecurityProtocol.PLAINTEXT).strip().upper()
    if protocol not in list(SecurityProtocol):
        # What was given is not shown: it may be something else that slipped in here.
        raise InvalidConfig(f"{where}security.protocol must be one of {', '.join(SecurityProtocol)}")
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", "", "none"):
        raise InvalidConfig(
            f"{where}ssl.endpoint.identification.algorithm must be https, by which the certificate has to name the "
            "host, or empty"
        )
    password = given.get("sasl.password")
    return ClientSecurity(
        protocol=SecurityProtocol(protocol),
        tls=tls_material(given, where=where),
        checks_host_name=algorithm == "https",
        sasl_mechanism=(given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "").strip().upper(),
        sasl_username=given.get("sasl.username", ""),
        sasl_password=None if not password else Secret(password, name=f"{where}sasl.password"),
    )


def inter_broker_security(listener: ListenerOptions, settings: Mapping[str, str]) -> ClientSecurity:
    """How a broker connects to the same listener of others: with the certificate and the trust of its own."""
    if not listener.protocol.uses_tls:
        return ClientSecurity(protocol=listener.protocol)
    assert listener.tls is not None
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    return ClientSecurity(protocol=listener.protocol, tls=listener.tls.material, checks_host_name=algorithm == "https")
