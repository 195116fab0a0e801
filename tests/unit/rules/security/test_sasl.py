"""The mechanisms of SASL: what the RFCs show, what is refused, and what cannot be told from outside."""

import hmac
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.security.sasl import scram
from tiered.rules.security.sasl.bearer import bearer_message, read_bearer
from tiered.rules.security.sasl.failures import AuthenticationFailed
from tiered.rules.security.sasl.mechanism import MAX_MESSAGE_BYTES, MAX_TOKEN_MESSAGE_BYTES, ScramMechanism
from tiered.rules.security.sasl.plain import plain_message, read_plain
from tiered.rules.security.sasl.scram_client import check_server, client_final, client_first

FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = scram.decode_base64("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_FIRST = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
SHA_256 = ScramMechanism.SHA_256

mechanisms = st.sampled_from(ScramMechanism)
names = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1, max_size=60)


def credential(password: str = "pencil", mechanism: ScramMechanism = SHA_256) -> scram.ScramCredential:
    return scram.credential_of(mechanism, scram.salted_password(mechanism, password, SALT, 4096), SALT, 4096)


def asked() -> scram.Challenge:
    return scram.challenge(SHA_256, scram.read_client_first(FIRST), credential(), SERVER_NONCE)


def test_the_exchange_of_rfc_7677_comes_out_byte_for_byte_on_both_sides() -> None:
    assert client_first("user", NONCE) == FIRST
    assert asked().message == SERVER_FIRST
    proof = client_final(SHA_256, "user", "pencil", NONCE, SERVER_FIRST.encode())
    assert proof.message == FINAL
    assert scram.server_final(asked(), FINAL) == SERVER_FINAL
    check_server(proof, SERVER_FINAL)


@given(mechanism=mechanisms, name=names, password=names)
def test_whoever_knows_the_password_gets_in_with_any_name(mechanism: ScramMechanism, name: str, password: str) -> None:
    first = scram.read_client_first(client_first(name, "abc"))
    assert first.user_name == name
    challenge = scram.challenge(mechanism, first, credential(password, mechanism), "def")
    proof = client_final(mechanism, name, password, "abc", challenge.message.encode())
    check_server(proof, scram.server_final(challenge, proof.message))
    with pytest.raises(AuthenticationFailed):
        scram.server_final(
            challenge, client_final(mechanism, name, password + "x", "abc", challenge.message.encode()).message
        )


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"x,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,user,n=user,r=abc",
        b"n,,m=ext,n=user,r=abc",
        b"n,,n=user,r=abc,tokenauth=true",
        b"n,,n=us=er,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=us\x00er,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=" + b"u" * 256 + b",r=abc",
        b"n,,n=user,r=" + b"a" * 513,
        b"n,,n=user,r=abc," + b"e" * MAX_MESSAGE_BYTES,
    ],
)
def test_a_first_message_that_is_none_or_asks_for_too_much_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        scram.read_client_first(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        FINAL.replace(b"biws", b"eSws"),
        FINAL.replace(b"r=rOpr", b"r=rOps"),
        FINAL.replace(b"hNlF$k0", b"hNlF$k1"),
        FINAL[:-8] + b"AAAAAAA=",
        FINAL.partition(b",p=")[0] + b",p=",
        FINAL.partition(b",p=")[0] + b",p=AAAA",
        FINAL.partition(b",p=")[0] + b",p=\xc3\xa4",
        b"r=x,c=biws,p=AAAA",
        FINAL.partition(b",r=")[0],
    ],
)
def test_a_last_message_of_another_exchange_or_without_the_proof_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        scram.server_final(asked(), message)


@given(st.binary(max_size=200))
def test_bytes_of_no_mechanism_are_refused_and_nothing_else_happens(message: bytes) -> None:
    for read in (scram.read_client_first, read_plain, read_bearer):
        with pytest.raises(AuthenticationFailed):
            read(b"\x02" + message)
    with pytest.raises(AuthenticationFailed):
        scram.server_final(asked(), message)
    with pytest.raises(AuthenticationFailed):
        client_final(SHA_256, "user", "pencil", NONCE, message)
    with pytest.raises(AuthenticationFailed):
        check_server(client_final(SHA_256, "user", "pencil", NONCE, SERVER_FIRST.encode()), message)


def test_an_unknown_user_is_asked_the_same_thing_each_time_in_the_form_of_a_known_one() -> None:
    def imitated(name: str, secret: bytes = b"of this cluster") -> scram.ScramCredential:
        return scram.imitation(SHA_256, name, secret=secret, iterations=4096, salt_bytes=len(SALT))

    assert imitated("nobody") == imitated("nobody")
    assert imitated("nobody").salt != imitated("nobody2").salt
    assert imitated("nobody").salt != imitated("nobody", b"of another cluster").salt
    real, unreal = credential(), imitated("nobody")
    assert [len(each) for each in (unreal.salt, unreal.stored_key, unreal.server_key)] == [
        len(each) for each in (real.salt, real.stored_key, real.server_key)
    ]
    challenge = scram.challenge(SHA_256, scram.read_client_first(FIRST), unreal, SERVER_NONCE)
    with pytest.raises(AuthenticationFailed) as unknown:
        scram.server_final(challenge, client_final(SHA_256, "user", "x", NONCE, challenge.message.encode()).message)
    with pytest.raises(AuthenticationFailed) as wrong:
        scram.server_final(asked(), client_final(SHA_256, "user", "x", NONCE, SERVER_FIRST.encode()).message)
    assert str(unknown.value) == str(wrong.value)


@pytest.mark.parametrize(
    "iterations", ["1", "4095", "x", "", "99999999999999999999", "-4096", "4096²", "1234567890x", "1" * 5000]
)
def test_a_client_gives_no_proof_that_would_be_cheap_to_guess_from_or_too_dear(iterations: str) -> None:
    message = SERVER_FIRST.rpartition("i=")[0] + f"i={iterations}"
    with pytest.raises(AuthenticationFailed):
        client_final(SHA_256, "user", "pencil", NONCE, message.encode())


def test_a_plain_password_is_checked_by_what_scram_keeps() -> None:
    login = read_plain(plain_message("üser", "pencil"))
    assert (login.user_name, login.password) == ("üser", "pencil")
    assert scram.is_password(SHA_256, credential(), login.password)
    assert not scram.is_password(SHA_256, credential(), "pencil2")
    assert read_plain(b"user\x00user\x00x").user_name == "user"
    assert "pencil" not in repr(login)


@pytest.mark.parametrize(
    "message",
    [
        b"", b"user", b"\x00user", b"\x00\x00password", b"\x00user\x00", b"other\x00user\x00x", b"\x00u\x00p\x00",
        b"\x00\xff\x00x", b"\x00user\x00" + b"p" * 1025, b"\x00" + b"u" * 256 + b"\x00p", b"\x00u\x00" + b"p" * 5000,
    ],
)  # fmt: skip
def test_a_plain_message_that_is_none_or_for_somebody_else_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        read_plain(message)


def test_a_bearer_message_gives_its_token_and_no_repr_shows_it() -> None:
    login = read_bearer(bearer_message("a.b.c"))
    assert (login.authorization_id, login.token) == ("", "a.b.c")
    assert "a.b.c" not in repr(login)
    with_extensions = read_bearer(b"n,a=me,\x01host=h\x01auth=bearer a.b.c\x01port=1\x01\x01")
    assert (with_extensions.authorization_id, with_extensions.token) == ("me", "a.b.c")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01auth=Bearer a\x01",
        b"p=x,,\x01auth=Bearer a\x01\x01",
        b"n,me,\x01auth=Bearer a\x01\x01",
        b"n,,\x01au th=x\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * MAX_TOKEN_MESSAGE_BYTES + b"\x01\x01",
    ],
)
def test_a_bearer_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        read_bearer(message)


def test_a_client_that_repeats_its_nonce_as_old_librdkafka_does_gets_in() -> None:
    doubled = FINAL.partition(b",p=")[0].replace(b"r=", f"r={NONCE}".encode())
    auth_message = f"n=user,r={NONCE},{SERVER_FIRST},{doubled.decode()}".encode()
    kept = credential()
    client_key = hmac.digest(scram.salted_password(SHA_256, "pencil", SALT, 4096), b"Client Key", "sha256")
    proof = scram.xor(client_key, hmac.digest(kept.stored_key, auth_message, "sha256"))
    answer = scram.server_final(asked(), doubled + b",p=" + b64encode(proof))
    assert answer == b"v=" + b64encode(hmac.digest(kept.server_key, auth_message, "sha256"))
