"""The protocol of a client that does not speak Kafka, by the first bytes: the usual mistakes, told apart for the log.

Owns nothing but the words.
"""

_METHODS = frozenset({b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"PATC", b"OPTI", b"CONN"})
_TLS_HANDSHAKE = b"\x16\x03"


def foreign_protocol(beginning: bytes) -> str | None:
    """In words, what begins with these four bytes, which are no frame's length; None where they are nothing known."""
    if beginning in _METHODS:
        return "this is an HTTP request, and the port speaks Kafka: HTTP is at the address of --http"
    if beginning.startswith(_TLS_HANDSHAKE):
        return (
            "the client speaks TLS, and this listener does not: it needs security.protocol=PLAINTEXT (SASL_PLAINTEXT "
            "with SASL), or a listener whose protocol is SSL or SASL_SSL"
        )
    return None


def is_http(beginning: bytes) -> bool:
    return beginning in _METHODS


def not_tls(beginning: bytes) -> str:
    """In words, what begins with these bytes where TLS was expected."""
    if beginning in _METHODS:
        return "this is an HTTP request, and the port speaks Kafka over TLS: HTTP is at the address of --http"
    return "the client speaks no TLS, and this listener does: it needs security.protocol=SSL (SASL_SSL with SASL)"
