"""Settings of TLS, by Kafka's names (`ssl.…`): certificates, keys, trust, versions and ciphers.

Owns names, checks and defaults. PEM is the one format taken. Must never read a certificate: `tiered.tls` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tiered.config.secret import Secret
from tiered.config.setting import INT_MAX
from tiered.errors import InvalidConfig

PEM_BEGINS = "-----BEGIN"
PROTOCOLS = ("TLSv1.2", "TLSv1.3")
DEFAULT_HANDSHAKE_TIMEOUT_MS = 10_000

MATERIAL_NAMES = frozenset(
    {
        "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.certificate.chain", "ssl.keystore.key",
        "ssl.key.password", "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.certificates",
        "ssl.enabled.protocols", "ssl.cipher.suites",
        # The names that librdkafka and kcat have for the same.
        "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
    }
)  # fmt: skip
LISTENER_NAMES = MATERIAL_NAMES | {
    "ssl.client.auth",
    "ssl.principal.mapping.rules",
    "ssl.endpoint.identification.algorithm",
    "tiered.ssl.handshake.timeout.ms",
}


class ClientAuth(StrEnum):
    """Whether clients must show a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """The certificate and the trust of one side. Each PEM is a file's path, `file:PATH`, or the text itself."""

    certificate_chain: str | None = None
    key: Secret | None = None
    """None where it stands in the file of the chain."""
    key_password: Secret | None = None
    truststore: str | None = None
    """None for the certificate authorities of the system."""
    protocols: tuple[str, ...] = PROTOCOLS
    cipher_suites: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it stands in: what is looked at for a change."""
        texts = [each for each in (self.certificate_chain, self.truststore) if each and not is_pem(each)]
        found = [path_of(each) for each in texts]
        found += [path for secret in (self.key, self.key_password) if secret and (path := secret.path) is not None]
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerTls:
    """TLS at one listener."""

    material: TlsMaterial
    client_auth: ClientAuth = ClientAuth.NONE
    principal_mapping_rules: str = field(default="DEFAULT")
    handshake_timeout_ms: int = DEFAULT_HANDSHAKE_TIMEOUT_MS


def is_pem(text: str) -> bool:
    """Certificates or keys themselves, not where they are."""
    return text.lstrip().startswith(PEM_BEGINS)


def path_of(text: str) -> Path:
    """The file that is meant by a path or `file:PATH`."""
    return Path(text.removeprefix("file:")).expanduser()


def tls_material(given: Mapping[str, str], *, where: str = "") -> TlsMaterial:
    """The material that these settings name. Raises InvalidConfig; `where` stands before the names in its words."""
    for name in ("ssl.keystore.type", "ssl.truststore.type"):
        if given.get(name, "PEM").strip().upper() != "PEM":
            raise InvalidConfig(
                f"{where}{name} must be PEM: give PEM files, such as `openssl pkcs12 -in FILE -nodes` "
                "makes from PKCS12 and `keytool -importkeystore -deststoretype PKCS12` makes from JKS"
            )
    chain = _first(given, "ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.certificate.location")
    key = _first(given, "ssl.keystore.key", "ssl.key.location")
    if key is not None and chain is None:
        raise InvalidConfig(f"{where}ssl.keystore.key is a key without ssl.keystore.certificate.chain: give both")
    password = _first(given, "ssl.key.password")
    protocols = _words(given, "ssl.enabled.protocols", PROTOCOLS)
    for word in protocols:
        if word not in PROTOCOLS:
            raise InvalidConfig(f"{where}ssl.enabled.protocols must be of {', '.join(PROTOCOLS)}")
    return TlsMaterial(
        certificate_chain=chain,
        key=None if key is None else Secret(_as_reference(key), name=f"{where}ssl.keystore.key"),
        key_password=None if password is None else Secret(password, name=f"{where}ssl.key.password"),
        truststore=_first(given, "ssl.truststore.location", "ssl.truststore.certificates", "ssl.ca.location"),
        protocols=protocols,
        cipher_suites=_words(given, "ssl.cipher.suites", ()),
    )


def listener_tls(given: Mapping[str, str], *, where: str) -> ListenerTls:
    """TLS of a listener from its settings, without their prefix. Raises InvalidConfig."""
    material = tls_material(given, where=where)
    if material.certificate_chain is None:
        raise InvalidConfig(
            f"{where}ssl.keystore.location is missing: a listener with TLS needs its certificate and key, as PEM"
        )
    auth = given.get("ssl.client.auth", ClientAuth.NONE).strip().lower()
    if auth not in list(ClientAuth):
        raise InvalidConfig(f"{where}ssl.client.auth={auth} is not allowed: one of {', '.join(ClientAuth)} is")
    if auth != ClientAuth.NONE and material.truststore is None:
        raise InvalidConfig(
            f"{where}ssl.client.auth={auth} needs ssl.truststore.location: who signs the certificates of clients. The "
            "system's list would let in whoever has a certificate of any of those"
        )
    timeout = given.get("tiered.ssl.handshake.timeout.ms", str(DEFAULT_HANDSHAKE_TIMEOUT_MS)).strip()
    if not (timeout.isascii() and timeout.isdigit() and 1 <= int(timeout[:11]) <= INT_MAX):
        raise InvalidConfig(f"{where}tiered.ssl.handshake.timeout.ms={timeout} is not allowed: it is a number of ms")
    return ListenerTls(
        material=material,
        client_auth=ClientAuth(auth),
        principal_mapping_rules=given.get("ssl.principal.mapping.rules", "DEFAULT").strip() or "DEFAULT",
        handshake_timeout_ms=int(timeout),
    )


def _first(given: Mapping[str, str], *names: str) -> str | None:
    return next((given[name].strip() for name in names if given.get(name, "").strip()), None)


def _as_reference(key: str) -> str:
    """A key that is given as a path is read from there each time, as one behind `file:` is."""
    return key if is_pem(key) or key.startswith(("file:", "env:")) else f"file:{key}"


def _words(given: Mapping[str, str], name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    words = tuple(word.strip() for word in given.get(name, "").replace(":", ",").split(",") if word.strip())
    return words or default
