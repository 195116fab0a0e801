"""Whether who asks as a broker is the process that registered as it, and not merely somebody who may ask such things.

Owns that judgement, and the form of the ids that prove it. The id of a broker's process is random, and stands in the
metadata store and in the broker's own data folder, where its user alone may read it: it is known to whoever made it and
to the other brokers. Pure; must never be shown to a client.
"""

from hmac import compare_digest
from uuid import UUID

ID_BYTES = 16
PROVING_VERSION = 8
"""Of the id, as RFC 9562 numbers them: a process with such an id shows it with every question. Ids of version 4 are
those of earlier versions of Tiered, which show nothing and are believed, so that old and new ones run side by side."""
_VERSION_BITS, _VARIANT_BITS = 0xF << 76, 0x3 << 62
_RFC_VARIANT = 0x2 << 62


def proving_id(random: bytes) -> UUID:
    """The id of a process that will show it, of `ID_BYTES` that nobody can guess."""
    value = int.from_bytes(random, "big") & ~(_VERSION_BITS | _VARIANT_BITS)
    return UUID(int=value | PROVING_VERSION << 76 | _RFC_VARIANT)


def is_proved(registered: UUID | None, shown: UUID | None) -> bool:
    """Whether `shown` is the id under which the broker has registered, where that one has to be shown."""
    if registered is None or registered.version != PROVING_VERSION:
        return True
    return shown is not None and compare_digest(registered.bytes, shown.bytes)
