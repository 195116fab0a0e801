"""TLS contexts: made from what the settings name, and made anew when the files of it change.

Owns every reading of a certificate or key. At least TLS 1.2, ciphers with forward secrecy, no compression, no
renegotiation. Must never touch a socket, and never put a key or its password into an error.
"""

import logging
import ssl
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiered.config.client_security import ClientSecurity
from tiered.config.tls import ClientAuth, ListenerTls, TlsMaterial, is_pem, path_of
from tiered.errors import InvalidConfig

log = logging.getLogger(__name__)

CIPHERS_OF_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20"
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_AUTH = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}

Stamp = tuple[tuple[int, int, int] | None, ...]


class UnreadableName(ssl.SSLError):
    """A certificate of the other side has a name that is no text."""


class _Connection(ssl.SSLObject):
    """One whose certificate fails as everything else of a handshake does: asyncio takes a ValueError for a fault of
    ours, and logs its stack."""

    def getpeercert(self, binary_form: bool = False) -> Any:
        try:
            return super().getpeercert(binary_form)
        except ValueError as error:
            text = f"the certificate has a name that is no text ({error})"
            raise UnreadableName(ssl.SSL_ERROR_SSL, text) from None


def server_context(tls: ListenerTls) -> ssl.SSLContext:
    """The TLS context of a listener. Raises InvalidConfig that names the file at fault."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Kafka's connections live long: a ticket to begin the next one sooner is worth less than the bytes it takes.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _prepare(context, tls.material)
    context.verify_mode = _AUTH[tls.client_auth]
    if tls.client_auth is not ClientAuth.NONE:
        _trust(context, tls.material)
    return context


def client_context(security: ClientSecurity) -> ssl.SSLContext:
    """The TLS context of a client. Raises InvalidConfig that names the file at fault."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.check_hostname = security.checks_host_name
    _prepare(context, security.tls)
    if security.tls.truststore is None:
        context.load_default_certs()
    else:
        _trust(context, security.tls)
    return context


def _prepare(context: ssl.SSLContext, material: TlsMaterial) -> None:
    context.sslobject_class = _Connection
    versions = sorted(_VERSIONS[name] for name in material.protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    names = [_openssl_name(each) for each in material.cipher_suites]
    older = [each for each in names if not each.startswith("TLS_")]  # All ciphers of TLS 1.3 are fine.
    try:
        context.set_ciphers(":".join(older) if older else CIPHERS_OF_1_2)
    except ssl.SSLError:
        raise InvalidConfig(
            f"ssl.cipher.suites={','.join(material.cipher_suites)[:200]} is not allowed: OpenSSL knows none of these"
        ) from None
    if material.certificate_chain is not None:
        _show(context, material, material.certificate_chain)


def _openssl_name(suite: str) -> str:
    """A cipher suite of TLS 1.2 by OpenSSL's name for it; Kafka has those of the standard."""
    if not suite.startswith("TLS_") or "_WITH_" not in suite:
        return suite
    name = suite.removeprefix("TLS_").replace("_WITH_", "-").replace("AES_", "AES").replace("_", "-")
    return name.removesuffix("-SHA256") if "CHACHA20" in name else name


def _show(context: ssl.SSLContext, material: TlsMaterial, chain: str) -> None:
    """Takes certificate and key. OpenSSL reads them from files alone: what is a text gets one for that moment."""
    texts: list[str] = []
    try:
        with tempfile.TemporaryDirectory(prefix="tiered-tls-") as folder:  # Its mode is 0700.

            def file_of(text: str) -> str:
                if not is_pem(text):
                    return str(path_of(text))
                path = Path(folder) / f"{len(texts)}.pem"
                texts.append(text)
                path.touch(mode=0o600)
                path.write_text(text)
                return str(path)

            key = None
            if material.key is not None:
                key = str(material.key.path or file_of(material.key.reveal()))
            context.load_cert_chain(file_of(chain), key, password=_password(material))
            _look_who_may_read(Path(key or file_of(chain)))
    except ssl.SSLError as error:
        raise InvalidConfig(
            f"{shown(chain)} is no certificate chain with its key in PEM ({error.reason or 'it does not parse'}): see "
            "that the key belongs to the certificate, is in the same file or in ssl.keystore.key, and that "
            "ssl.key.password is given where it is encrypted"
        ) from None
    except OSError as error:
        raise InvalidConfig(f"cannot read the certificate or key at {shown(chain)}: {error.strerror}") from None


def _look_who_may_read(key: Path) -> None:
    """A key that every user of the machine can read is no secret; where it is mounted so, it must work all the same."""
    if key.stat().st_mode & stat.S_IROTH:
        log.warning("the key in %s can be read by every user of this machine: chmod 600 it", key)


def _password(material: TlsMaterial) -> Callable[[], str]:
    # Without one OpenSSL would ask on the terminal and wait.
    return lambda: "" if material.key_password is None else material.key_password.reveal()


def _trust(context: ssl.SSLContext, material: TlsMaterial) -> None:
    assert material.truststore is not None
    trusted = material.truststore
    try:
        if is_pem(trusted):
            context.load_verify_locations(cadata=trusted)
        else:
            context.load_verify_locations(cafile=str(path_of(trusted)))
    except (ssl.SSLError, ValueError):
        raise InvalidConfig(
            f"{shown(trusted)} has no certificates in PEM: ssl.truststore.location needs some"
        ) from None
    except OSError as error:
        raise InvalidConfig(f"cannot read ssl.truststore.location {shown(trusted)}: {error.strerror}") from None


def shown(pem: str) -> str:
    """A file by its name, a text not at all."""
    return "the PEM text" if is_pem(pem) else str(path_of(pem))


class Reloaded:
    """A context that follows its files: `current` is what new connections use.

    Files that do not load leave the context as it is, and are tried again: they may be half written, or no descriptor
    was free. The log says so once for each change of them.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext], material: TlsMaterial, *, what: str) -> None:
        """Raises InvalidConfig when there is no context to begin with."""
        self._make = make
        self._files = material.files
        self._what = what
        self._loaded = self._refused = stamp_of(self._files)
        self.current = make()

    def refresh(self) -> bool:
        """Whether a changed file gave a new context. Reads files: to be called in a thread."""
        stamp = stamp_of(self._files)
        if stamp == self._loaded:
            return False
        try:
            self.current = self._make()
        except InvalidConfig as error:
            if stamp != self._refused:
                self._refused = stamp
                log.error(
                    "%s goes on with its certificates from before, for the new ones do not load: %s", self._what, error
                )
            return False
        self._loaded = stamp
        log.info("%s has new certificates", self._what)
        return True


def stamp_of(files: tuple[Path, ...]) -> Stamp:
    """A value that changes when a file is written or replaced, also where a link to its folder is, as in Kubernetes."""
    found: list[tuple[int, int, int] | None] = []
    for path in files:
        try:
            status = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)
