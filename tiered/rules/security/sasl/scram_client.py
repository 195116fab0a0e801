"""SCRAM (RFC 5802, RFC 7677), the client's side.

Owns the three messages that a client sends or checks. The server proves that it knows the password as well: an answer
without that proof is refused.
"""

import hashlib
import hmac
from base64 import b64encode
from dataclasses import dataclass, field

from tiered.rules.security.sasl.failures import AuthenticationFailed
from tiered.rules.security.sasl.mechanism import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism
from tiered.rules.security.sasl.scram import MAX_NONCE, decode_base64, salted_password, xor

_MOST_ITERATIONS = 64 * MAX_ITERATIONS
"""A server that asks for more wants to keep us busy."""
_MOST_DIGITS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProof:
    """The client's last message, and what the server must answer."""

    message: bytes
    server_signature: bytes = field(repr=False)


def client_first(user_name: str, nonce: str) -> bytes:
    """The client's first message."""
    return f"n,,{_bare(user_name, nonce)}".encode()


def client_final(
    mechanism: ScramMechanism, user_name: str, password: str, nonce: str, server_first: bytes
) -> ClientProof:
    """The client's final message. Takes milliseconds. Raises AuthenticationFailed for a server that it cannot trust."""
    try:
        text = server_first.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("the broker's message of SCRAM is no UTF-8") from None
    attributes = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    server_nonce, iterations_text = attributes.get("r", ""), attributes.get("i", "")
    if not server_nonce.startswith(nonce) or not len(nonce) < len(server_nonce) <= MAX_NONCE + len(nonce):
        raise AuthenticationFailed("the broker's message of SCRAM does not belong to ours: something stands between")
    is_number = iterations_text.isascii() and iterations_text.isdigit() and len(iterations_text) <= _MOST_DIGITS
    iterations = int(iterations_text) if is_number else 0
    if not MIN_ITERATIONS <= iterations <= _MOST_ITERATIONS:
        raise AuthenticationFailed(
            f"the broker asks for {iterations_text[:20]} iterations; {MIN_ITERATIONS} to {_MOST_ITERATIONS} are given: "
            "fewer would make the password easy to guess"
        )
    salted = salted_password(mechanism, password, decode_base64(attributes.get("s", "")), iterations)
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    server_key = hmac.digest(salted, b"Server Key", mechanism.hash_name)
    without_proof = f"c={b64encode(b'n,,').decode()},r={server_nonce}"
    auth_message = f"{_bare(user_name, nonce)},{text},{without_proof}".encode()
    proof = xor(client_key, hmac.digest(stored_key, auth_message, mechanism.hash_name))
    return ClientProof(
        message=f"{without_proof},p={b64encode(proof).decode()}".encode(),
        server_signature=hmac.digest(server_key, auth_message, mechanism.hash_name),
    )


def check_server(proof: ClientProof, server_final: bytes) -> None:
    """Returns when the server knows the password too. Raises AuthenticationFailed."""
    head, _, signature = server_final.decode(errors="replace").partition("v=")
    if head or not hmac.compare_digest(decode_base64(signature.partition(",")[0]), proof.server_signature):
        raise AuthenticationFailed("the broker did not prove that it knows the password: it may be somebody else")


def _bare(user_name: str, nonce: str) -> str:
    saslname = user_name.replace("=", "=3D").replace(",", "=2C")
    return f"n={saslname},r={nonce}"
