"""The configs of a consumer group, under the names of Kafka 4.2 (KIP-848, KIP-932, KIP-1071).

Owns the registry and `GroupConfig`, the parsed values. Never knows where a config is stored. Configs of share and
streams groups are kept and described: there are no such groups here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tiered.config.broker import BrokerSettings
from tiered.config.setting import ConfigType, Setting, field_name, parse_all, registry_of, setting
from tiered.config.topic import broker_default
from tiered.errors import InvalidConfig

KIND = "group config"
_NO_SHARE = "Accepted for Kafka's sake: there are no share groups here."
_NO_STREAMS = "Accepted for Kafka's sake: there are no streams groups here."


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The effective configs of one group. `GroupConfig()` holds Kafka's defaults."""

    # fmt: off
    consumer_heartbeat_interval_ms: int = setting(
        ConfigType.INT, 5000, "How often members of this group are told to send a heartbeat (KIP-848).",
        minimum=1, synonyms=["group.consumer.heartbeat.interval.ms"],
    )
    consumer_session_timeout_ms: int = setting(
        ConfigType.INT, 45_000, "A member of this group that is silent for this long has left (KIP-848).",
        minimum=1, synonyms=["group.consumer.session.timeout.ms"],
    )
    share_auto_offset_reset: str = setting(ConfigType.STRING, "latest", _NO_SHARE, has_effect=False)
    share_heartbeat_interval_ms: int = setting(ConfigType.INT, 5000, _NO_SHARE, minimum=1, has_effect=False)
    share_isolation_level: str = setting(
        ConfigType.STRING, "read_uncommitted", _NO_SHARE, allowed=("read_committed", "read_uncommitted"),
        has_effect=False,
    )
    share_record_lock_duration_ms: int = setting(ConfigType.INT, 30_000, _NO_SHARE, minimum=1000, has_effect=False)
    share_session_timeout_ms: int = setting(ConfigType.INT, 45_000, _NO_SHARE, minimum=1, has_effect=False)
    streams_heartbeat_interval_ms: int = setting(ConfigType.INT, 5000, _NO_STREAMS, minimum=1, has_effect=False)
    streams_initial_rebalance_delay_ms: int = setting(ConfigType.INT, 3000, _NO_STREAMS, minimum=0, has_effect=False)
    streams_num_standby_replicas: int = setting(ConfigType.INT, 0, _NO_STREAMS, minimum=0, has_effect=False)
    streams_session_timeout_ms: int = setting(ConfigType.INT, 45_000, _NO_STREAMS, minimum=1, has_effect=False)
    # fmt: on

    @staticmethod
    def of(overrides: Mapping[str, str], broker: BrokerSettings) -> "GroupConfig":
        """The effective values: `overrides` over the broker's settings over Kafka's defaults. Raises InvalidConfig."""
        explicit = parse_all(GROUP_SETTINGS, overrides, kind=KIND)
        values = {name: broker_default(entry, broker) for name, entry in GROUP_SETTINGS.items()} | explicit
        return GroupConfig(**{field_name(name): value for name, value in values.items()})  # type: ignore[arg-type]


GROUP_SETTINGS: dict[str, Setting] = registry_of(GroupConfig)


def check_group_config(overrides: Mapping[str, str], broker: BrokerSettings) -> None:
    """Raises InvalidConfig for what no group may have: values beyond the broker's bounds, or that contradict each
    other."""
    config = GroupConfig.of(overrides, broker)
    for name in ("heartbeat.interval.ms", "session.timeout.ms"):
        bounds = [field_name(f"group.consumer.{end}.{name}") for end in ("min", "max")]
        low, high = (int(getattr(broker.groups, bound)) for bound in bounds)
        value = int(getattr(config, field_name(f"consumer.{name}")))
        if f"consumer.{name}" in overrides and not low <= value <= high:
            raise InvalidConfig(
                f"consumer.{name}={value} is not allowed: it must be from group.consumer.min.{name}={low} to "
                f"group.consumer.max.{name}={high}"
            )
    for kind in ("consumer", "share", "streams"):
        session_ms = getattr(config, f"{kind}_session_timeout_ms")
        if any(name.startswith(kind) for name in overrides) and session_ms <= getattr(
            config, f"{kind}_heartbeat_interval_ms"
        ):
            raise InvalidConfig(
                f"{kind}.session.timeout.ms={session_ms} is not allowed: it must be greater than "
                f"{kind}.heartbeat.interval.ms"
            )
