"""What somebody speaks who does not speak Kafka, by the first bytes: the usual mistakes, told apart for the log.

Owns nothing but the words.
"""

_METHODS = frozenset({b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"PATC", b"OPTI", b"CONN"})
_TLS_HANDSHAKE = b"\x16\x03"


def foreign_protocol(beginning: bytes) -> str | None:
    """In words, what begins with these four bytes, which are no frame's length; None where they are nothing known."""
    if beginning in _METHODS:
        return "this is an HTTP request, and the port speaks Kafka: HTTP is at the address of --http"
    if beginning.startswith(_TLS_HANDSHAKE):
        return "the client speaks TLS, which is not supported here: it needs security.protocol=PLAINTEXT"
    return None
