"""PLAIN (RFC 4616): a name and a password in the clear, so it belongs inside TLS.

Owns the one message. Must never check the password: the stored keys of SCRAM do.
"""

from dataclasses import dataclass, field

from tiered.rules.security.sasl.failures import AuthenticationFailed
from tiered.rules.security.sasl.mechanism import MAX_MESSAGE_BYTES, MAX_PASSWORD_BYTES, MAX_USER_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLogin:
    """A client's claimed identity, and its proof."""

    user_name: str
    password: str = field(repr=False)


def read_plain(message: bytes) -> PlainLogin:
    """The login of `[authzid] NUL user NUL password`. Raises AuthenticationFailed, also for another's authzid."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise AuthenticationFailed(f"a message of PLAIN has {len(message)} bytes; {MAX_MESSAGE_BYTES} are allowed")
    parts = message.split(b"\x00")
    if len(parts) != 3:
        raise AuthenticationFailed("a message of PLAIN has three parts between zero bytes; this one has not")
    try:
        authorization_id, user_name, password = (part.decode() for part in parts)
    except UnicodeDecodeError:
        raise AuthenticationFailed("a message of PLAIN is UTF-8; this one is not") from None
    if not 0 < len(user_name) <= MAX_USER_NAME or not 0 < len(parts[2]) <= MAX_PASSWORD_BYTES:
        raise AuthenticationFailed("a user name or a password is empty or too long")
    if authorization_id not in ("", user_name):
        raise AuthenticationFailed("nobody may log in for somebody else: leave the authorization id empty")
    return PlainLogin(user_name=user_name, password=password)


def plain_message(user_name: str, password: str) -> bytes:
    """The client's message."""
    return f"\x00{user_name}\x00{password}".encode()
