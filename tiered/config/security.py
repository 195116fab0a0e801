"""How clients prove who they are by SASL, who the brokers are among them, and whether access control lists bind them.

Owns the names, defaults and bounds, and what must be said together. Never decides about anybody.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tiered.config.listeners import ListenerOptions
from tiered.config.secret import Secret
from tiered.config.setting import ConfigType, setting
from tiered.errors import InvalidConfig

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
BY_PASSWORD = MECHANISMS[:3]
STANDARD_AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationSettings:
    """SASL on listeners, and logins over HTTP: docs/security-logins.md."""

    # fmt: off
    connection_failed_authentication_delay_ms: int = setting(
        ConfigType.INT, 100, "How long a client waits for the news that its login failed.", minimum=0, maximum=10_000,
    )
    connections_max_reauth_ms: int = setting(
        ConfigType.LONG, 0, "Clients must log in anew after this long (KIP-368); 0 is never, but for tokens that end.",
        minimum=0, gives_rights=True,
    )
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        ConfigType.LIST, (), "What listeners with SASL take: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. For one "
        "listener: listener.name.NAME.sasl.enabled.mechanisms.", read_only=True,
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        ConfigType.STRING, "SCRAM-SHA-512", "The mechanism by which brokers log in to each other.",
        allowed=BY_PASSWORD, read_only=True,
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        ConfigType.INT, 30, "How far the clock of who gives out tokens may be from ours.",
        minimum=0, maximum=600, read_only=True,
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        ConfigType.LIST, (), "For whom a token must be, one of these; needed with OAUTHBEARER.", read_only=True,
    )
    sasl_oauthbearer_expected_issuer: str = setting(
        ConfigType.STRING, "", "Who must have given out a token; empty is whoever has a key.", read_only=True,
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        ConfigType.LONG, 3_600_000, "The keys of tokens are asked for anew after this long.",
        minimum=1000, read_only=True,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        ConfigType.LONG, 10_000, "They are not asked for twice within this long, whatever tokens name.",
        minimum=0, read_only=True,
    )
    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        ConfigType.STRING, "", "Where the keys of tokens are: https://… or file:///…; nothing else is ever asked.",
        read_only=True,
    )
    sasl_oauthbearer_scope_claim_name: str = setting(
        ConfigType.STRING, "scope", "The claim of a token that has its scopes.", read_only=True,
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        ConfigType.STRING, "sub", "The claim of a token that has its owner's name.", read_only=True,
    )
    sasl_server_max_receive_size: int = setting(
        ConfigType.INT, 64 << 10, "The largest request of who has not logged in yet.",
        minimum=1024, maximum=512 << 10, read_only=True,
    )
    tiered_authentication_timeout_ms: int = setting(
        ConfigType.INT, 10_000, "A connection that has not logged in after this long is closed.", minimum=50,
    )
    tiered_broker_principals: str = setting(
        ConfigType.STRING, "", "Who the brokers are besides super.users, as there. One * in a name stands for "
        "letters, digits, - and _: User:CN=broker-*.example.com.", read_only=True,
    )
    tiered_http_authentication: str = setting(
        ConfigType.STRING, "none", "Whether HTTP asks for a login: basic takes names and passwords, and tokens where "
        "OAUTHBEARER is enabled.", allowed=("none", "basic"), read_only=True,
    )
    tiered_sasl_inter_broker_password: str = setting(
        ConfigType.PASSWORD, "", "The password of that name: file:PATH or env:NAME, never the password itself.",
        read_only=True,
    )
    tiered_sasl_inter_broker_username: str = setting(
        ConfigType.STRING, "", "The name by which this broker logs in to others.", read_only=True,
    )
    tiered_sasl_oauthbearer_jwks_ca_location: str = setting(
        ConfigType.STRING, "", "Certificates that https of the keys is checked with; empty is those of the system.",
        read_only=True,
    )
    tiered_sasl_oauthbearer_required_scopes: tuple[str, ...] = setting(
        ConfigType.LIST, (), "Scopes that a token must have, all of them.", read_only=True,
    )
    tiered_sasl_plain_without_tls: bool = setting(
        ConfigType.BOOLEAN, False, "Whether passwords may cross the network in the clear.", read_only=True,
    )
    # fmt: on

    def mechanisms_of(self, listener: ListenerOptions) -> tuple[str, ...]:
        """The mechanisms of one listener."""
        if not listener.protocol.uses_sasl:
            return ()
        may_be_plain = listener.protocol.uses_tls or self.tiered_sasl_plain_without_tls
        enabled = self.sasl_enabled_mechanisms if listener.mechanisms is None else listener.mechanisms
        return tuple(each for each in enabled if each != "PLAIN" or may_be_plain)

    def inter_broker_password(self) -> Secret | None:
        """Where the password stands; None when there is none."""
        text = self.tiered_sasl_inter_broker_password
        return Secret(text, name="tiered.sasl.inter.broker.password") if text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationSettings:
    """Access control lists and the audit log: docs/security-rights.md."""

    # fmt: off
    allow_everyone_if_no_acl_found: bool = setting(
        ConfigType.BOOLEAN, False, "Whether everybody may do everything to what no access control list names.",
        read_only=True,
    )
    authorizer_class_name: str = setting(
        ConfigType.STRING, "", "Kafka's way to say tiered.authorizer=acl; its own two authorizers are accepted.",
        allowed=("", *STANDARD_AUTHORIZERS), read_only=True,
    )
    super_users: str = setting(
        ConfigType.STRING, "", "Principals that may do everything, between semicolons: User:admin;User:broker.",
        read_only=True,
    )
    tiered_audit_log: str = setting(
        ConfigType.STRING, "none", "Where admin actions are written as JSON lines: none, stderr, or a file's path.",
        read_only=True,
    )
    tiered_authorizer: str = setting(
        ConfigType.STRING, "none", "Who may do what: acl is what access control lists say, none is no restriction.",
        allowed=("none", "acl"), read_only=True,
    )
    # fmt: on

    @property
    def is_on(self) -> bool:
        return self.tiered_authorizer == "acl" or self.authorizer_class_name != ""


def check_authentication(
    settings: AuthenticationSettings,
    listeners: Iterable[ListenerOptions],
    inter_broker: ListenerOptions,
    *,
    is_alone: bool = False,
) -> None:
    """Returns when nobody who should get in would be kept out by what is missing. A broker that `is_alone` has nobody
    to log in to. Raises InvalidConfig."""
    listeners = tuple(listeners)
    enabled = {*settings.sasl_enabled_mechanisms, *(each for one in listeners for each in one.mechanisms or ())}
    for each in sorted(enabled):
        if each not in MECHANISMS:
            raise InvalidConfig(
                f"sasl.enabled.mechanisms={each[:40]} is not allowed: some of {','.join(MECHANISMS)} are"
            )
    for listener in listeners:
        if listener.protocol.uses_sasl and not settings.mechanisms_of(listener):
            raise InvalidConfig(
                f"the listener {listener.name} has SASL and no mechanism: set sasl.enabled.mechanisms to some of "
                f"{','.join(MECHANISMS)}; PLAIN needs TLS, or tiered.sasl.plain.without.tls=true"
            )
    if "OAUTHBEARER" in enabled:
        url = settings.sasl_oauthbearer_jwks_endpoint_url
        if not url.startswith(("https://", "file:///")):
            raise InvalidConfig("OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url: an https or a file:/// URL")
        if not settings.sasl_oauthbearer_expected_audience:
            raise InvalidConfig(
                "OAUTHBEARER needs sasl.oauthbearer.expected.audience: without it, tokens for any other service count"
            )
    password = settings.inter_broker_password()
    if password is not None and not password.is_reference:
        raise InvalidConfig(
            "tiered.sasl.inter.broker.password must be file:PATH or env:NAME: what stands here is seen by others"
        )
    if inter_broker.protocol.uses_sasl and not is_alone:
        if not settings.tiered_sasl_inter_broker_username or password is None:
            raise InvalidConfig(
                f"brokers log in to each other on the listener {inter_broker.name}: set "
                "tiered.sasl.inter.broker.username, and tiered.sasl.inter.broker.password to file:PATH or env:NAME"
            )
        if settings.sasl_mechanism_inter_broker_protocol not in settings.mechanisms_of(inter_broker):
            raise InvalidConfig(
                f"sasl.mechanism.inter.broker.protocol={settings.sasl_mechanism_inter_broker_protocol} is not among "
                f"the mechanisms of the listener {inter_broker.name}: add it to sasl.enabled.mechanisms"
            )
