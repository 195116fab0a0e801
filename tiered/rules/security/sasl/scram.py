"""SCRAM (RFC 5802, RFC 7677), the server's side, and the stored credentials.

Owns the keys, the messages and their checks. As in Kafka there is no channel binding, and names and passwords are taken
as UTF-8 without SASLprep. Must never tell an unknown user from a wrong password: `imitation` gives somebody unknown a
credential that nobody can prove, and everything goes its usual way.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass, field

from tiered.rules.security.sasl.failures import AuthenticationFailed, UnacceptableCredential
from tiered.rules.security.sasl.mechanism import (
    MAX_ITERATIONS,
    MAX_MESSAGE_BYTES,
    MAX_PASSWORD_BYTES,
    MAX_USER_NAME,
    MIN_ITERATIONS,
    ScramMechanism,
)

MAX_NONCE = 512
REFUSED = "the user is unknown, or the password is wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """The stored credential of one password for one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialChange:
    """One user's password for one mechanism is now this one; None when there is none any more."""

    user_name: str
    mechanism: ScramMechanism
    credential: ScramCredential | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFirst:
    """The client's first message; `gs2_header` and `bare` are its two parts as they came."""

    gs2_header: str
    bare: str
    user_name: str
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The server's answer to it, and all that is needed to check what comes back."""

    mechanism: ScramMechanism
    client_first: ClientFirst
    credential: ScramCredential
    nonce: str
    message: str


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """SaltedPassword of RFC 5802. Takes milliseconds: not for the event loop."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    return ScramCredential(
        salt=salt,
        stored_key=_hash(mechanism, client_key),
        server_key=_hmac(mechanism, salted, b"Server Key"),
        iterations=iterations,
    )


def new_credential(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a new password. Takes milliseconds: not for the event loop."""
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def check_user_name(name: str) -> None:
    """Raises UnacceptableCredential for a name that no user can have."""
    if not 0 < len(name) <= MAX_USER_NAME or "\x00" in name:
        raise UnacceptableCredential(f"a user name has 1 to {MAX_USER_NAME} characters, none of them zero")


def check_iterations(iterations: int) -> None:
    """Raises UnacceptableCredential outside of Kafka's bounds."""
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise UnacceptableCredential(f"{iterations} iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are possible")


def check_new_password(password: str) -> None:
    """Raises UnacceptableCredential, which shows nothing of the password, for one that no client could log in by."""
    if not 0 < len(password.encode()) <= MAX_PASSWORD_BYTES or "\x00" in password:
        raise UnacceptableCredential(f"a password has 1 to {MAX_PASSWORD_BYTES} bytes of UTF-8, none of them zero")


def imitation(
    mechanism: ScramMechanism, user_name: str, *, secret: bytes, iterations: int, salt_bytes: int
) -> ScramCredential:
    """The credential shown to an unknown user: the same each time, and made of nothing that others know."""

    def derived(purpose: str, size: int) -> bytes:
        key = hmac.digest(secret, f"{purpose}\x00{mechanism}\x00{user_name}".encode(), "sha256")
        return hashlib.shake_256(key).digest(size)

    return ScramCredential(
        salt=derived("salt", salt_bytes),
        stored_key=derived("stored key", mechanism.digest_bytes),
        server_key=derived("server key", mechanism.digest_bytes),
        iterations=iterations,
    )


def is_password(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    """Whether the credential was made of this password. Takes milliseconds: not for the event loop."""
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    found = credential_of(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)


def read_client_first(message: bytes) -> ClientFirst:
    """The client's first message. Raises AuthenticationFailed for what is none, or asks for what is not served."""
    text = _text(message)
    flag, _, rest = text.partition(",")
    if flag.startswith("p="):
        raise AuthenticationFailed("channel binding is not served: use a mechanism without -PLUS")
    authorization_id, comma, bare = rest.partition(",")
    if flag not in ("n", "y") or not comma or (authorization_id and not authorization_id.startswith("a=")):
        raise AuthenticationFailed("the first message of SCRAM does not begin with n,,")
    attributes = bare.split(",")
    if attributes[0].startswith("m="):
        raise AuthenticationFailed("the client demands an extension of SCRAM, and none is served")
    if len(attributes) < 2 or not attributes[0].startswith("n=") or not attributes[1].startswith("r="):
        raise AuthenticationFailed("the first message of SCRAM has no name or no nonce")
    if "tokenauth=true" in attributes[2:]:
        raise AuthenticationFailed("delegation tokens are not served: log in with a name and a password")
    user_name = _name_of(attributes[0][2:])
    if authorization_id and _name_of(authorization_id[2:]) != user_name:
        raise AuthenticationFailed("nobody may log in for somebody else: leave the authorization id empty")
    return ClientFirst(
        gs2_header=text[: len(text) - len(bare)], bare=bare, user_name=user_name, nonce=_nonce(attributes[1][2:])
    )


def challenge(
    mechanism: ScramMechanism, client_first: ClientFirst, credential: ScramCredential, server_nonce: str
) -> Challenge:
    """The server's first message. `server_nonce` is printable, without commas, and new each time."""
    nonce = client_first.nonce + server_nonce
    salt = b64encode(credential.salt).decode()
    return Challenge(
        mechanism=mechanism,
        client_first=client_first,
        credential=credential,
        nonce=nonce,
        message=f"r={nonce},s={salt},i={credential.iterations}",
    )


def server_final(asked: Challenge, message: bytes) -> bytes:
    """The server's last message, when the client has proved to know the password. Raises AuthenticationFailed."""
    text = _text(message)
    without_proof, separator, proof_text = text.rpartition(",p=")
    attributes = without_proof.split(",")
    if not separator or len(attributes) < 2 or not attributes[0].startswith("c=") or not attributes[1].startswith("r="):
        raise AuthenticationFailed("the last message of SCRAM has no channel binding, nonce or proof")
    binding = decode_base64(attributes[0][2:])
    proof = decode_base64(proof_text)
    # Nothing of this is secret but the proof; it is compared in constant time all the same.
    is_bound = hmac.compare_digest(binding, asked.client_first.gs2_header.encode())
    # librdkafka before 2.6.1 repeats its own nonce in front of ours, which Kafka lets pass: ours is at the end all the
    # same, and the proof is made of it.
    nonce, whole = attributes[1][2:].encode(), asked.nonce.encode()
    is_fresh = hmac.compare_digest(nonce[-len(whole) :], whole)
    mechanism, credential = asked.mechanism, asked.credential
    if not (is_bound and is_fresh) or len(proof) != mechanism.digest_bytes:
        raise AuthenticationFailed("the last message of SCRAM does not belong to the first one")
    auth_message = f"{asked.client_first.bare},{asked.message},{without_proof}".encode()
    signature = _hmac(mechanism, credential.stored_key, auth_message)
    client_key = xor(proof, signature)
    if not hmac.compare_digest(_hash(mechanism, client_key), credential.stored_key):
        raise AuthenticationFailed(REFUSED)
    return b"v=" + b64encode(_hmac(mechanism, credential.server_key, auth_message))


def decode_base64(text: str) -> bytes:
    """The bytes. Raises AuthenticationFailed."""
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise AuthenticationFailed("a part of a message of SCRAM is no base64") from None


def xor(one: bytes, other: bytes) -> bytes:
    """Of two strings of the same length."""
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE_BYTES:
        raise AuthenticationFailed(f"a message of SCRAM has {len(message)} bytes; {MAX_MESSAGE_BYTES} are allowed")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("a message of SCRAM is UTF-8; this one is not") from None
    if "\x00" in text:
        raise AuthenticationFailed("a message of SCRAM has no zero bytes; this one has")
    return text


def _name_of(saslname: str) -> str:
    """RFC 5802 writes a comma as =2C and an equals sign as =3D."""
    name = saslname.replace("=2C", ",").replace("=3D", "=")
    if saslname.count("=") != saslname.count("=2C") + saslname.count("=3D") or not 0 < len(name) <= MAX_USER_NAME:
        raise AuthenticationFailed("a user name of SCRAM is empty, too long or written in a wrong way")
    return name


def _nonce(text: str) -> str:
    if not 0 < len(text) <= MAX_NONCE or not all("!" <= character <= "~" for character in text):
        raise AuthenticationFailed("a nonce of SCRAM is empty, too long or not printable")
    return text


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)


def _hash(mechanism: ScramMechanism, message: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, message).digest()
