"""How a client of brokers makes itself known and whom it believes: Kafka's client properties, as one value.

Owns their names, checks and defaults, for brokers among themselves, for the commands and for Spark. Must never open a
certificate, and never put the value of a secret into an error.
"""

import dataclasses
import difflib
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult

from tiered.config.listeners import ListenerOptions, SecurityProtocol, is_loopback
from tiered.config.secret import Secret
from tiered.config.security import BY_PASSWORD, MECHANISMS, AuthenticationSettings
from tiered.config.tls import MATERIAL_NAMES, TlsMaterial, tls_material
from tiered.errors import InvalidConfig

CLIENT_NAMES = MATERIAL_NAMES | {
    "security.protocol",
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
    "sasl.oauthbearer.token.endpoint.url",
}
"""Every property of security that clients of ours take."""

_JAAS = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(?:plain\.Plain|scram\.Scram|oauthbearer\.OAuthBearer)LoginModule"
    r'\s+required(?P<options>(?:\s+\w+="(?:[^"\\]|\\.)*")*)\s*;?\s*\Z'
)
_JAAS_OPTION = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """What a client needs to reach a listener. Empty: plaintext, without a login."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsMaterial = field(default_factory=TlsMaterial)
    checks_host_name: bool = True
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: Secret | None = None
    sasl_token: Secret | None = None
    """Where the token of OAUTHBEARER stands; read anew for each login."""


def client_security(given: Mapping[str, str], *, where: str = "") -> ClientSecurity:
    """What these properties say. Raises InvalidConfig that names the property, after `where`, and never a secret."""
    for name in sorted(given):
        if name not in CLIENT_NAMES:
            close = difflib.get_close_matches(name, CLIENT_NAMES, n=1)
            raise InvalidConfig(
                f"unknown property {where}{name}: "
                + (f"did you mean {where}{close[0]}?" if close else "docs/security-tls.md lists those that are known")
            )
    protocol = given.get("security.protocol", SecurityProtocol.PLAINTEXT).strip().upper()
    if protocol not in list(SecurityProtocol):
        # The value is not shown: a secret may have slipped in here.
        raise InvalidConfig(f"{where}security.protocol must be one of {', '.join(SecurityProtocol)}")
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", "", "none"):
        raise InvalidConfig(
            f"{where}ssl.endpoint.identification.algorithm must be https, by which the certificate has to name the "
            "host, or empty"
        )
    name, password = _name_and_password(given, where)
    found = ClientSecurity(
        protocol=SecurityProtocol(protocol),
        tls=tls_material(given, where=where),
        checks_host_name=algorithm == "https",
        sasl_mechanism=(given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "").strip().upper(),
        sasl_username=name,
        sasl_password=password,
        sasl_token=_token(given, where),
    )
    if found.protocol.uses_sasl:
        _check_login(found, where)
    return found


def _name_and_password(given: Mapping[str, str], where: str) -> tuple[str, Secret | None]:
    name, password, source = given.get("sasl.username", ""), given.get("sasl.password"), "sasl.password"
    jaas = given.get("sasl.jaas.config")
    if jaas:
        match = _JAAS.match(jaas)
        if match is None:
            raise InvalidConfig(
                f"{where}sasl.jaas.config must be one login module of Kafka, such as org.apache.kafka.common.security."
                'scram.ScramLoginModule required username="…" password="…";'
            )
        options = {key: re.sub(r"\\(.)", r"\1", value) for key, value in _JAAS_OPTION.findall(match["options"])}
        name, password, source = options.get("username", name), options.get("password", password), "sasl.jaas.config"
    return name, Secret(password, name=f"{where}{source}") if password else None


def _token(given: Mapping[str, str], where: str) -> Secret | None:
    url = given.get("sasl.oauthbearer.token.endpoint.url", "").strip()
    if not url:
        return None
    if not url.startswith("file:///"):
        raise InvalidConfig(f"{where}sasl.oauthbearer.token.endpoint.url must be file:///…: put the token there")
    name = f"{where}sasl.oauthbearer.token.endpoint.url"
    return Secret(f"file:{url.removeprefix('file://')}", name=name)


def _check_login(found: ClientSecurity, where: str) -> None:
    if found.sasl_mechanism not in MECHANISMS:
        raise InvalidConfig(f"{where}sasl.mechanism must be one of {', '.join(MECHANISMS)}")
    if found.sasl_mechanism in BY_PASSWORD:
        if not found.sasl_username or found.sasl_password is None:
            raise InvalidConfig(
                f"{where}sasl.mechanism={found.sasl_mechanism} needs {where}sasl.username and {where}sasl.password "
                "(file:PATH and env:NAME too), or sasl.jaas.config"
            )
    elif found.sasl_token is None:
        raise InvalidConfig(f"{where}sasl.mechanism=OAUTHBEARER needs {where}sasl.oauthbearer.token.endpoint.url")


def with_login(security: ClientSecurity, settings: AuthenticationSettings) -> ClientSecurity:
    """The same, for a broker that logs in to others. `check_authentication` has seen to what is needed."""
    if not security.protocol.uses_sasl:
        return security
    return dataclasses.replace(
        security,
        sasl_mechanism=settings.sasl_mechanism_inter_broker_protocol,
        sasl_username=settings.tiered_sasl_inter_broker_username,
        sasl_password=settings.inter_broker_password(),
    )


def inter_broker_security(listener: ListenerOptions, settings: Mapping[str, str]) -> ClientSecurity:
    """How a broker connects to the same listener of others: with the certificate and the trust of its own."""
    if not listener.protocol.uses_tls:
        return ClientSecurity(protocol=listener.protocol)
    assert listener.tls is not None
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    return ClientSecurity(protocol=listener.protocol, tls=listener.tls.material, checks_host_name=algorithm == "https")


def http_login(security: ClientSecurity, url: SplitResult) -> dict[str, str]:
    """The header by which the client logs in at this HTTP door; none where the properties name nobody, or where the
    password would cross a network in the clear. Raises InvalidConfig for a password or token that cannot be had."""
    if url.scheme != "https" and not is_loopback(url.hostname or ""):
        return {}
    if security.sasl_mechanism == "OAUTHBEARER" and security.sasl_token is not None:
        return {"Authorization": f"Bearer {security.sasl_token.reveal().strip()}"}
    if security.sasl_username and security.sasl_password is not None:
        login = f"{security.sasl_username}:{security.sasl_password.reveal()}"
        return {"Authorization": f"Basic {b64encode(login.encode()).decode()}"}
    return {}
