"""The settings of a broker: Kafka's names and defaults, and our own `tiered.*`.

Owns the registry and `BrokerSettings`, the parsed values with the layers that they come from. Never reads
a file or the environment: `serve` does.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tiered.config.cluster import ClusterSettings, TopicSettings
from tiered.config.groups import GroupSettings
from tiered.config.kafka_names import KAFKA_SETTINGS, OF_ALL_LISTENERS, WITHOUT_EFFECT
from tiered.config.limits import HttpSettings, LimitSettings
from tiered.config.listeners import HTTP_PREFIX, MECHANISMS_NAME, PREFIX
from tiered.config.security import AuthenticationSettings, AuthorizationSettings
from tiered.config.setting import ConfigSource, ConfigType, ConfigValue, Setting, field_name, registry_of
from tiered.config.storage import LogSettings, ReconcileSettings, TieringSettings
from tiered.config.tls import LISTENER_NAMES
from tiered.config.topic import DEFAULTS_OF_TOPICS
from tiered.config.transactions import TransactionSettings

KIND = "broker setting"
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One explicit value of one broker setting."""

    source: ConfigSource
    value: ConfigValue


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The effective settings of one broker, in groups. `BrokerSettings()` holds the defaults.

    A field of a group has the whole name of its setting, so that a search for one finds the other. The three mappings
    keep the explicit texts by source; the groups hold what comes out of them. Settings that are not read-only may
    change while the broker runs: read the field where it is used.
    """

    static: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    dynamic: Mapping[str, str] = field(default_factory=dict)

    authentication: AuthenticationSettings = field(default_factory=AuthenticationSettings)
    authorization: AuthorizationSettings = field(default_factory=AuthorizationSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    groups: GroupSettings = field(default_factory=GroupSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    log: LogSettings = field(default_factory=LogSettings)
    reconcile: ReconcileSettings = field(default_factory=ReconcileSettings)
    tiering: TieringSettings = field(default_factory=TieringSettings)
    topics: TopicSettings = field(default_factory=TopicSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)

    @staticmethod
    def of(
        static: Mapping[str, str] = _NOTHING,
        *,
        dynamic_default: Mapping[str, str] = _NOTHING,
        dynamic: Mapping[str, str] = _NOTHING,
    ) -> "BrokerSettings":
        """The effective settings: this broker's dynamic ones over the cluster's over the static over defaults.

        A dynamic one that may not change at run time is left out: whoever wrote it there went past every check.
        Raises InvalidConfig that names a setting whose value is not allowed.
        """
        values: dict[str, ConfigValue] = {}
        dynamic_default = _allowed_at_run_time(dynamic_default, for_all=True)
        dynamic = _allowed_at_run_time(dynamic, for_all=False)
        for texts in (static, dynamic_default, dynamic):
            values |= {name: broker_setting(name).parse(text) for name, text in texts.items()}
        return BrokerSettings(
            static=MappingProxyType(dict(static)),
            dynamic_default=MappingProxyType(dynamic_default),
            dynamic=MappingProxyType(dynamic),
            **{
                group: kind(**{field_name(name): values[name] for name in names if name in values})
                for group, (kind, names) in _GROUPS.items()
            },
        )

    def with_dynamic(self, *, dynamic_default: Mapping[str, str], dynamic: Mapping[str, str]) -> "BrokerSettings":
        """The same static settings under other dynamic ones; raises InvalidConfig as `of` does."""
        return BrokerSettings.of(self.static, dynamic_default=dynamic_default, dynamic=dynamic)

    def explicit(self, name: str) -> tuple[Layer, ...]:
        """The values that this setting was given, the one that counts first; empty when it has its default."""
        entry = broker_setting(name)
        return tuple(
            Layer(source=source, value=entry.parse(texts[name]))
            for source, texts in (
                (ConfigSource.DYNAMIC_BROKER, self.dynamic),
                (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
                (ConfigSource.STATIC_BROKER, self.static),
            )
            if name in texts
        )


_GROUPS: dict[str, tuple[type, dict[str, Setting]]] = {
    each.name: (type(group), registry_of(type(group)))
    for each in dataclasses.fields(BrokerSettings)
    if dataclasses.is_dataclass(group := getattr(BrokerSettings(), each.name))
}
_FIELDS = {name: entry for _, names in _GROUPS.values() for name, entry in names.items()}
BROKER_SETTINGS: dict[str, Setting] = dict(sorted((KAFKA_SETTINGS | DEFAULTS_OF_TOPICS | _FIELDS).items()))
"""All that have a name of their own: ours, and Kafka's whether or not they do anything here."""


def broker_setting(name: str) -> Setting:
    """The setting of this name. `listener.name.NAME.…` is that of the rest of its name, for one listener; a name that
    nobody knows is a text that is kept and not shown, for it may be a secret (KIP-226)."""
    found = BROKER_SETTINGS.get(name) or _of_one_door(name)
    return found or Setting(
        name=name,
        type=ConfigType.UNKNOWN,
        default=None,
        documentation="Nobody knows this setting: accepted and kept, without effect.",
        has_effect=False,
        of_one_broker=name.startswith(PREFIX),
    )


def _allowed_at_run_time(texts: Mapping[str, str], *, for_all: bool) -> dict[str, str]:
    return {name: text for name, text in texts.items() if broker_setting(name).may_change_at_run_time(for_all=for_all)}


def _of_one_door(name: str) -> Setting | None:
    """Settings of one listener, or of HTTP alone."""
    of_listener = name.startswith(PREFIX)
    if not of_listener and not name.startswith(f"{HTTP_PREFIX}ssl."):
        return None
    plain = name.removeprefix(PREFIX).partition(".")[2] if of_listener else name.removeprefix(HTTP_PREFIX)
    # Logins have the mechanism in between: listener.name.NAME.plain.sasl.jaas.config.
    found = BROKER_SETTINGS.get(plain) or BROKER_SETTINGS.get(plain.partition(".")[2])
    if found is None:
        return None
    is_read = plain in LISTENER_NAMES or (of_listener and plain == MECHANISMS_NAME)
    return replace(
        found,
        name=name,
        default=None,
        documentation=found.documentation if is_read else WITHOUT_EFFECT,
        has_effect=is_read,
        read_only=is_read or found.type is ConfigType.PASSWORD or not of_listener,
        of_one_broker=plain not in OF_ALL_LISTENERS,
    )
