"""Whether access control lists are looked at, and whom they do not bind; where admin actions are written down.

Owns the names, defaults and bounds; `BrokerSettings` has them along with all others. Never decides anything.
"""

from dataclasses import dataclass

from tiered.config.authentication import AuthenticationSettings
from tiered.config.setting import ConfigType, setting

STANDARD_AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationSettings(AuthenticationSettings):
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
    def is_authorization_on(self) -> bool:
        return self.tiered_authorizer == "acl" or self.authorizer_class_name != ""
