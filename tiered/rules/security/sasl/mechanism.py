"""The mechanisms by name, and the bounds of what they may say.

Owns names and numbers alone.
"""

from enum import StrEnum


class Mechanism(StrEnum):
    """The mechanisms that are served and spoken, by the names of the wire."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


class ScramMechanism(StrEnum):
    """The mechanisms of RFC 5802 and RFC 7677."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        """As `hashlib` calls it."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def digest_bytes(self) -> int:
        return 32 if self is ScramMechanism.SHA_256 else 64

    @property
    def code(self) -> int:
        """In the messages of KIP-554."""
        return 1 if self is ScramMechanism.SHA_256 else 2


MAX_MESSAGE_BYTES = 4 << 10
"""Of one message of PLAIN or SCRAM; only tokens are longer."""
MAX_TOKEN_MESSAGE_BYTES = 32 << 10
MAX_USER_NAME = 255
MAX_PASSWORD_BYTES = 1 << 10
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16_384
"""Kafka's bounds: below the first a stolen table is guessed too soon, above the second each login costs too much."""
DEFAULT_ITERATIONS = 8192
"""These and `SALT_BYTES` are of passwords that we salt ourselves."""
SALT_BYTES = 24
