"""OAUTHBEARER (RFC 7628): a token, in one message.

Owns the message and the words of a refusal. Must never look into the token: `token` does.
"""

import json
import re
from dataclasses import dataclass, field

from tiered.rules.security.sasl.failures import AuthenticationFailed
from tiered.rules.security.sasl.mechanism import MAX_TOKEN_MESSAGE_BYTES

KICK = b"\x01"
"""What a client says to a refusal, before it is told the end."""
_SEPARATOR = "\x01"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,32768}\Z")
_KEY = re.compile(r"[A-Za-z]{1,64}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerLogin:
    """A token, and the identity that its bearer claims: `''` when that is left to the token."""

    authorization_id: str
    token: str = field(repr=False)


def read_bearer(message: bytes) -> BearerLogin:
    """The login of `n,a=USER,^Aauth=Bearer TOKEN^A^A`. Raises AuthenticationFailed."""
    if len(message) > MAX_TOKEN_MESSAGE_BYTES:
        raise AuthenticationFailed(
            f"a message of OAUTHBEARER has {len(message)} bytes; {MAX_TOKEN_MESSAGE_BYTES} are allowed"
        )
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("a message of OAUTHBEARER is UTF-8; this one is not") from None
    header, *pairs = text.split(_SEPARATOR)
    flag, _, rest = header.partition(",")
    if flag not in ("n", "y") or not rest.endswith(",") or pairs[-2:] != ["", ""]:
        raise AuthenticationFailed("a message of OAUTHBEARER begins with n,, and ends with two bytes 0x01")
    who = rest[:-1]
    if who and not who.startswith("a="):
        raise AuthenticationFailed("the authorization id of OAUTHBEARER is written a=NAME")
    token = ""
    for pair in pairs[:-2]:
        key, equals, value = pair.partition("=")
        if not equals or _KEY.match(key) is None:
            raise AuthenticationFailed("a message of OAUTHBEARER has pairs KEY=VALUE; this one has others")
        if key == "auth":
            scheme, _, given = value.partition(" ")
            if token or scheme.lower() != "bearer":
                raise AuthenticationFailed("a message of OAUTHBEARER has one auth=Bearer TOKEN")
            token = given.strip()
    if _TOKEN.match(token) is None:
        raise AuthenticationFailed("a message of OAUTHBEARER has no token, or one that is none")
    return BearerLogin(authorization_id=who[2:].replace("=2C", ",").replace("=3D", "="), token=token)


def refusal() -> bytes:
    """A server's answer to a token that it refuses; the client's `KICK` follows."""
    return json.dumps({"status": "invalid_token"}).encode()


def bearer_message(token: str) -> bytes:
    """The client's message."""
    return f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{_SEPARATOR}".encode()
