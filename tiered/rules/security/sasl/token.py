"""The principal of a token: a signed JWT (RFC 7519), checked by its issuer's keys.

Owns what must hold of a token, and which algorithms count. Only signatures by a key pair do: a shared secret would let
a broker make tokens itself, and `none` would let anyone. Where keys come from is the caller's: what the token's header
says about that is ignored. Must never put a token or its claims into an error.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiered.errors import InvalidConfig
from tiered.rules.security.principal import ANONYMOUS
from tiered.rules.security.sasl.failures import AuthenticationFailed
from tiered.rules.security.sasl.mechanism import MAX_USER_NAME

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
MAX_KEYS = 100
MIN_RSA_BITS = 2048
MAX_RSA_BITS = 16_384
"""What OpenSSL takes for a signature. A longer one would take its seconds before that is seen."""
_MAX_RSA_CHARS = -(-MAX_RSA_BITS // 6)
_PUBLIC_TYPES = ("RSA", "EC", "OKP")
_PRIVATE_PARTS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPolicy:
    """The claims required of a token besides its signature. None and empty: not required."""

    audiences: tuple[str, ...]
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    """All of them must be there."""
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_s: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOwner:
    """The subject of the token, and when it ends: seconds since 1970."""

    name: str
    expires_at_s: float


def read_keys(text: bytes) -> "KeySet":
    """The public keys of a JWKS (RFC 7517) that can check a signature. Raises InvalidConfig when there is none."""
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry, KeySet, RSAKey

    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidConfig("the set of keys is no JSON") from None
    entries = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(entries, list) or len(entries) > MAX_KEYS:
        raise InvalidConfig(f'the set of keys is not {{"keys": […]}} with at most {MAX_KEYS} of them')
    keys = []
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("kty") not in _PUBLIC_TYPES or entry.get("use", "sig") != "sig":
            continue
        if isinstance(entry.get("n"), str) and len(entry["n"]) > _MAX_RSA_CHARS:
            continue
        try:
            key = JWKRegistry.import_key({name: entry[name] for name in entry.keys() - _PRIVATE_PARTS})
            if isinstance(key, RSAKey) and key.public_key.key_size < MIN_RSA_BITS:
                continue
        except (JoseError, ValueError, TypeError, KeyError):
            continue  # An unknown kind of key does not make the others useless.
        keys.append(key)
    if not keys:
        raise InvalidConfig("the set of keys has no public key that could check a token's signature")
    return KeySet(keys)


def key_id(token: str) -> str | None:
    """Which key the token names; None when it names none. Raises AuthenticationFailed."""
    from joserfc.errors import JoseError
    from joserfc.jws import extract_compact

    try:
        named = extract_compact(token.encode()).headers().get("kid")
    except (JoseError, ValueError, TypeError, RecursionError):
        raise AuthenticationFailed("the token is no signed JWT") from None
    return named if isinstance(named, str) else None


def token_owner(token: str, keys: "KeySet", policy: TokenPolicy, *, now_s: float) -> TokenOwner:
    """The subject of a token that these keys have signed and that the policy takes. Raises AuthenticationFailed."""
    from joserfc import jwt
    from joserfc.errors import JoseError

    try:
        claims: Mapping[str, Any] = jwt.decode(token, keys, algorithms=list(ALGORITHMS)).claims
    except (JoseError, ValueError, TypeError, KeyError, RecursionError):
        raise AuthenticationFailed(
            "the token is not signed by a key of sasl.oauthbearer.jwks.endpoint.url, or not in a way that counts"
        ) from None
    expires_at_s = _check_times(claims, policy.clock_skew_s, now_s)
    if policy.issuer is not None and claims.get("iss") != policy.issuer:
        raise AuthenticationFailed("the token comes from another issuer than sasl.oauthbearer.expected.issuer")
    if policy.audiences and not set(policy.audiences) & set(_texts(claims.get("aud"))):
        raise AuthenticationFailed("the token is for others than sasl.oauthbearer.expected.audience")
    scope = claims.get(policy.scope_claim)
    if not set(policy.scopes) <= set(scope.split() if isinstance(scope, str) else _texts(scope)):
        raise AuthenticationFailed("the token lacks a scope of tiered.sasl.oauthbearer.required.scopes")
    name = claims.get(policy.subject_claim)
    if not isinstance(name, str) or not 0 < len(name) <= MAX_USER_NAME or not name.isprintable():
        raise AuthenticationFailed("the token does not say who its owner is (sasl.oauthbearer.sub.claim.name)")
    if name == ANONYMOUS.name:
        raise AuthenticationFailed(f"no token's owner is called {name}: so is called who does not log in")
    return TokenOwner(name=name, expires_at_s=expires_at_s)


def _check_times(claims: Mapping[str, Any], skew_s: int, now_s: float) -> float:
    times = {name: claims.get(name) for name in ("exp", "nbf", "iat")}
    for name, value in times.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and -(2**53) < value < 2**53
        if value is not None and not is_number:
            raise AuthenticationFailed(f"the token's {name} is no time")
    expires_at, not_before, issued_at = times.values()
    if expires_at is None:
        raise AuthenticationFailed("the token has no end (exp): one that never ends is not taken")
    if now_s >= expires_at + skew_s:
        raise AuthenticationFailed("the token has expired")
    if (not_before is not None and now_s < not_before - skew_s) or (
        issued_at is not None and now_s < issued_at - skew_s
    ):
        raise AuthenticationFailed("the token is not valid yet: compare the clocks")
    return float(expires_at)


def _texts(value: object) -> Sequence[str]:
    if isinstance(value, str):
        return (value,)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else ()
