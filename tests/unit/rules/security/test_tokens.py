"""Whose a token is, and the ways in which it is nobody's."""

import base64
import json
from typing import Any

import pytest
from joserfc import jwk, jwt
from joserfc.jwk import ECKey, KeySet, OctKey, OKPKey, RSAKey

from tiered.errors import InvalidConfig
from tiered.rules.security.sasl.failures import AuthenticationFailed
from tiered.rules.security.sasl.token import TokenPolicy, key_id, read_keys, token_owner

NOW_S = 1_800_000_000.0
EC = ECKey.generate_key("P-256", {"kid": "ec"})
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})
POLICY = TokenPolicy(audiences=("tiered", "other"), issuer="https://id.example", scopes=("log",))
CLAIMS: dict[str, Any] = {
    "sub": "alice", "aud": ["x", "tiered"], "iss": "https://id.example", "scope": "read log", "iat": NOW_S - 5,
    "nbf": NOW_S - 5, "exp": NOW_S + 60,
}  # fmt: skip


def signed(key: jwk.Key = EC, algorithm: str = "ES256", *, header: dict[str, Any] | None = None, **claims: Any) -> str:
    full = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return jwt.encode({"alg": algorithm, "kid": key.kid or "", **(header or {})}, full, key, algorithms=[algorithm])


def published(*keys: jwk.Key) -> KeySet:
    return read_keys(json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode())


@pytest.mark.parametrize(("key", "algorithm"), [(EC, "ES256"), (RSA, "RS256"), (RSA, "PS512"), (ED, "Ed25519")])
def test_a_token_signed_by_a_published_key_is_its_subjects(key: jwk.Key, algorithm: str) -> None:
    token = signed(key, algorithm)
    assert key_id(token) == key.kid
    owner = token_owner(token, published(EC, RSA, ED), POLICY, now_s=NOW_S)
    assert (owner.name, owner.expires_at_s) == ("alice", NOW_S + 60)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None}, {"exp": NOW_S - 31}, {"exp": "tomorrow"}, {"exp": True}, {"exp": 1e300}, {"nbf": NOW_S + 31},
        {"iat": NOW_S + 31}, {"iss": "https://other.example"}, {"iss": None}, {"aud": "somebody"}, {"aud": None},
        {"aud": [["tiered"]]}, {"scope": "read"}, {"scope": None}, {"scope": 7}, {"sub": None}, {"sub": ""},
        {"sub": 7}, {"sub": "a" * 256}, {"sub": "a\nb"}, {"sub": "ANONYMOUS"},
    ],
)  # fmt: skip
def test_a_token_that_lacks_something_is_nobodys(claims: dict[str, Any]) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        token_owner(signed(**claims), published(EC), POLICY, now_s=NOW_S)
    assert "alice" not in str(refused.value)


def test_clocks_may_differ_a_little_and_other_claims_may_name_the_owner() -> None:
    policy = TokenPolicy(audiences=(), subject_claim="name", scope_claim="scp", scopes=("log",))
    token = signed(exp=NOW_S - 29, nbf=NOW_S + 29, iat=NOW_S + 29, name="bob", scp=["log", "x"], aud=None, iss=None)
    assert token_owner(token, published(EC), policy, now_s=NOW_S).name == "bob"


def test_no_signature_a_shared_secret_and_foreign_keys_do_not_count() -> None:
    parts = signed().split(".")
    none = "eyJhbGciOiJub25lIn0"  # {"alg":"none"}
    secret = OctKey.import_key(json.dumps(EC.as_dict(private=False)), {"kid": "ec"})
    other = ECKey.generate_key("P-256", {"kid": "ec"})
    told_where = signed(other, header={"jku": "https://attacker.example/keys", "jwk": other.as_dict(private=False)})
    for token in (
        f"{none}.{parts[1]}.", f"{none}.{parts[1]}.{parts[2]}", f"{parts[0]}.{parts[1]}.", "", ".", "a.b.c", "..",
        signed(secret, "HS256"), signed(other), told_where, ".".join((parts[0], parts[1] + "A", parts[2])),
        signed() + ".x", "é.é.é",
    ):  # fmt: skip
        with pytest.raises(AuthenticationFailed):
            token_owner(token, published(EC), POLICY, now_s=NOW_S)


def test_of_a_set_of_keys_only_public_ones_that_sign_are_taken() -> None:
    entries = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
        {"kty": "future", "kid": "unknown"},
        {**RSA.as_dict(private=False), "use": "enc"},
        {
            **RSA.as_dict(private=False),
            "n": base64.urlsafe_b64encode(b"\xff" * 2049).decode().rstrip("="),
            "kid": "long",
        },
        {**ED.as_dict(private=True), "use": "sig"},
        "no key",
    ]
    keys = read_keys(json.dumps({"keys": entries}).encode())
    assert [key.kid for key in keys] == ["ed"]
    assert not keys.keys[0].is_private


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"[]", b'{"keys": 1}', b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "AAAA"}]}', b"[" * 100_000,
        json.dumps({"keys": [{}] * 101}).encode(),
    ],
)  # fmt: skip
def test_a_set_of_keys_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidConfig):
        read_keys(text)
