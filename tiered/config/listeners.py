"""Where clients connect, by name, and what is spoken there: Kafka's four security protocols.

Owns the words, and which settings belong to which listener. Must never bind an address or read a certificate.
"""

import dataclasses
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tiered.config.addresses import host_and_port
from tiered.config.tls import ClientAuth, ListenerTls, listener_tls
from tiered.errors import InvalidConfig

PREFIX = "listener.name."
HTTP_PREFIX = "http."
HTTPS = "https://"
MECHANISMS_NAME = "sasl.enabled.mechanisms"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,255}\Z")


class SecurityProtocol(StrEnum):
    """The protocols of a listener, by Kafka's names."""

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
    """One listener. `advertise_*` are None where the address bound is meant, `tls` where the protocol has none."""

    name: str = "PLAINTEXT"
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    host: str = "127.0.0.1"
    port: int = 9092
    advertise_host: str | None = None
    advertise_port: int | None = None
    tls: ListenerTls | None = None
    mechanisms: tuple[str, ...] | None = None
    """Of SASL; None is what `sasl.enabled.mechanisms` says for all listeners."""
    option: str = "--kafka"
    """What names it, for errors."""

    @property
    def advertised(self) -> tuple[str, int]:
        """The address that clients are told, once the listener is bound."""
        return self.advertise_host or self.host, self.advertise_port or self.port

    @property
    def authenticates(self) -> bool:
        """A client is let in only after a login."""
        shows_certificate = self.tls is not None and self.tls.client_auth is ClientAuth.REQUIRED
        return self.protocol.uses_sasl or shows_certificate


def parse_listener(text: str, where: str) -> ListenerOptions:
    """The listener of `NAME=PROTOCOL://HOST:PORT`, or `PROTOCOL://HOST:PORT`. Raises InvalidConfig."""
    head, separator, address = text.strip().partition("://")
    name, equals, protocol = head.rpartition("=")
    protocol = protocol.strip().upper()
    name = name.strip() if equals else protocol
    if not separator or protocol not in list(SecurityProtocol) or _NAME.match(name) is None:
        raise InvalidConfig(
            f"{where} {text!r} is not allowed: it must be NAME=PROTOCOL://HOST:PORT, where PROTOCOL is one of "
            f"{', '.join(SecurityProtocol)}"
        )
    host, port = parse_address(address, f"{where} {text}")
    return ListenerOptions(name=name.upper(), protocol=SecurityProtocol(protocol), host=host, port=port, option=where)


def advertised(listeners: Sequence[ListenerOptions], texts: Iterable[str], where: str) -> tuple[ListenerOptions, ...]:
    """The listeners with the addresses that `NAME=HOST:PORT` gives them; without a name the first one is meant."""
    found = {each.name: each for each in listeners}
    for text in texts:
        name, equals, address = text.strip().rpartition("=")
        name = name.strip().upper() if equals else listeners[0].name
        if name not in found:
            raise InvalidConfig(f"{where} {text!r} names no listener: there is {', '.join(found)}")
        host, port = parse_address(address, where, port_0_is_fine=False)
        found[name] = dataclasses.replace(found[name], advertise_host=host, advertise_port=port)
    return tuple(found.values())


def parse_address(text: str, name: str, *, port_0_is_fine: bool = True) -> tuple[str, int]:
    """(host, port) of `HOST:PORT`. Raises InvalidConfig."""
    host, colon, port_text = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # An IPv6 address without brackets: its last group would be taken for the port.
    port = int(port_text) if port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 else -1
    first = 0 if port_0_is_fine else 1
    if not colon or not host or not first <= port <= 65_535:
        raise InvalidConfig(
            f"{name}={text} is not allowed: it must be HOST:PORT with a port from {first} to 65535 ([…] around IPv6)"
        )
    return host, port


def is_security_setting(name: str) -> bool:
    """It belongs to listeners, not to `BrokerSettings`."""
    return name.startswith((PREFIX, "ssl.", "tiered.ssl.", f"{HTTP_PREFIX}ssl."))


def settings_of(settings: Mapping[str, str], listener: str) -> dict[str, str]:
    """The settings of one listener, without prefix: `listener.name.<listener>.ssl.…` over `ssl.…`."""
    return _over(settings, f"{PREFIX}{listener.lower()}.")


def http_tls(settings: Mapping[str, str]) -> ListenerTls:
    """TLS of the HTTP door: `http.ssl.…` over `ssl.…`. Raises InvalidConfig."""
    return listener_tls(_over(settings, HTTP_PREFIX), where=HTTP_PREFIX)


def _over(settings: Mapping[str, str], own: str) -> dict[str, str]:
    shared = {name: value for name, value in settings.items() if not name.startswith((PREFIX, HTTP_PREFIX))}
    return shared | {name.removeprefix(own): value for name, value in settings.items() if name.startswith(own)}


def with_security(listeners: Iterable[ListenerOptions], settings: Mapping[str, str]) -> tuple[ListenerOptions, ...]:
    """The listeners with what their protocols need of `settings`. Raises InvalidConfig."""
    return tuple(
        dataclasses.replace(each, tls=_tls(each, settings), mechanisms=_mechanisms(each, settings))
        for each in listeners
    )


def _tls(listener: ListenerOptions, settings: Mapping[str, str]) -> ListenerTls | None:
    if not listener.protocol.uses_tls:
        return None
    return listener_tls(settings_of(settings, listener.name), where=f"{PREFIX}{listener.name.lower()}.")


def _mechanisms(listener: ListenerOptions, settings: Mapping[str, str]) -> tuple[str, ...] | None:
    name = f"{PREFIX}{listener.name.lower()}.{MECHANISMS_NAME}"
    if name not in settings:
        return None
    if not listener.protocol.uses_sasl:
        raise InvalidConfig(f"{name}: the listener {listener.name} has no SASL, its protocol is {listener.protocol}")
    return tuple(each.strip() for each in settings[name].split(",") if each.strip())


def is_loopback(host: str) -> bool:
    """Only this machine can connect to an address of this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")


def require_authentication(
    listeners: Iterable[ListenerOptions],
    http: tuple[str, int],
    http_security: ListenerTls | None,
    http_option: str,
    *,
    http_asks_login: bool = False,
) -> None:
    """Nothing when whoever is not on this machine must say who they are. Raises InvalidConfig."""
    host, port = http
    asks = http_asks_login or (http_security is not None and http_security.client_auth is ClientAuth.REQUIRED)
    if not is_loopback(host) and not asks:
        raise InvalidConfig(
            f"{http_option} would let in everybody who reaches {host_and_port(host, port)}: ask for a login "
            f"(https://{host_and_port(host, port)} with tiered.http.authentication=basic) or for certificates "
            "(http.ssl.client.auth=required), use 127.0.0.1, or say --insecure where the network itself is closed; see "
            "docs/security.md"
        )
    for each in listeners:
        if not is_loopback(each.host) and not each.authenticates:
            where = host_and_port(each.host, each.port)
            raise InvalidConfig(
                f"{each.option} would let in everybody who reaches {where}: ask who they are "
                f"(--listener {each.name}=SASL_SSL://{where}, or SSL with ssl.client.auth=required), "
                "use 127.0.0.1, or say --insecure where the network itself is closed; see docs/security.md"
            )
