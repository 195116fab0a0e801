"""How a client of ours enters a listener: its TLS context, made once and made anew when certificates change.

Owns that context, and the words for what goes wrong before a broker can be spoken to. Must never open a connection.
"""

import ssl

from tiered.config.client_security import CLIENT_NAMES, ClientSecurity, client_security, http_login
from tiered.peer.answers import ConnectionLost
from tiered.tls import Reloaded, client_context

__all__ = [
    "CLIENT_NAMES",
    "PLAINTEXT",
    "ClientSecurity",
    "PeerSecurity",
    "TlsFailed",
    "client_security",
    "http_login",
    "tls_failed",
]

PLAINTEXT = ClientSecurity()

_ADVICE = {
    "WRONG_VERSION_NUMBER": "what listens there speaks no TLS: name a listener whose protocol is SSL or SASL_SSL, or "
    "leave security.protocol away",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker asks for a certificate: give one with ssl.keystore.location",
    "TLSV1_ALERT_UNKNOWN_CA": "the broker does not know who signed our certificate (ssl.keystore.location)",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the broker refuses our certificate (ssl.keystore.location)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired (ssl.keystore.location)",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the broker speaks no version of TLS that ssl.enabled.protocols allows here",
}


class NotLetIn(ConnectionLost):
    """The broker is there and does not let us in: trying again helps only once something else was changed."""


class TlsFailed(NotLetIn):
    """TLS was refused by one side, for a certificate or a setting."""


class LoginFailed(NotLetIn):
    """The broker does not believe who we are, for a name, a password, a token or a mechanism."""


class PeerSecurity:
    """The security of every connection of one client. Cheap where TLS is not spoken."""

    def __init__(self, security: ClientSecurity = PLAINTEXT) -> None:
        self.security = security
        self._tls: Reloaded | None = None

    def context(self) -> ssl.SSLContext | None:
        """For a connection that begins now; None for a plaintext one. Raises InvalidConfig for the first that does."""
        if not self.security.protocol.uses_tls:
            return None
        if self._tls is None:
            self._tls = Reloaded(lambda: client_context(self.security), self.security.tls, what="the client of brokers")
        else:
            self._tls.refresh()
        return self._tls.current


def tls_failed(address: str, error: OSError) -> ConnectionLost | None:
    """The error with advice; None when it is not one of TLS. A connection that just ended may be one

    of a broker that stops: that is no TlsFailed, and is worth another try.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsFailed(
            f"the certificate of {address} is refused: {error.verify_message}; see ssl.truststore.location, and "
            "whether the certificate names the host"
        )
    is_ended = isinstance(error, ssl.SSLEOFError | ConnectionResetError | ConnectionAbortedError)
    name = getattr(error, "reason", None) or "it ended"
    if is_ended or "EOF" in name:
        return ConnectionLost(f"{address} ended the connection without a word: does that port speak TLS?")
    if not isinstance(error, ssl.SSLError):
        return None
    return TlsFailed(f"TLS with {address} failed: {_ADVICE.get(name, name)}")
