"""Addresses in words: that of a client, as access control lists and quotas name it, and HOST:PORT.

Owns these texts, one for each. An IPv4 client of a listener on `::` comes as `::ffff:10.0.0.1`, and one of this link as
`fe80::1%eth0`: a rule for `10.0.0.1` or `fe80::1` holds for these too, and the long form means the same client. Must
never resolve a name.
"""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

_MAPPED_IPV4 = "::ffff:"


def client_address(host: str) -> str:
    """Of a connection, whose host is as the kernel writes it."""
    return host.removeprefix(_MAPPED_IPV4).partition("%")[0]


def named_address(text: str) -> str:
    """Of what somebody wrote. Raises ValueError for what is no address, or one on a link alone: no other machine
    calls its links the same."""
    found: IPv4Address | IPv6Address = ip_address(text)
    if isinstance(found, IPv6Address):
        if found.scope_id is not None:
            raise ValueError(f"{text!r} is an address on one link of one machine")
        found = found.ipv4_mapped or found
    return str(found)


def is_address(text: str) -> bool:
    """Whether a client can come from there, as `named_address` takes it."""
    try:
        named_address(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1024)
def address_or_word(text: str) -> str:
    """As `named_address`; a text that is no address, such as `*`, stays unchanged."""
    try:
        return named_address(text)
    except ValueError:
        return text


def host_and_port(host: str, port: int) -> str:
    """HOST:PORT, with brackets around IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
