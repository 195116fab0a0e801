"""The configs of a subscription to clients' metrics, under Kafka's names (KIP-714).

Owns the registry and `ClientMetricsConfig`, the parsed values. Never knows where a config is stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tiered.config.setting import ConfigType, Setting, field_name, parse_all, registry_of, setting
from tiered.errors import InvalidConfig

KIND = "client metrics config"
DEFAULT_INTERVAL_MS = 300_000
ALL = "*"
"""As a prefix of names: every metric."""
FACTS = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What `match` may look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsConfig:
    """One subscription."""

    # fmt: off
    interval_ms: int = setting(
        ConfigType.INT, DEFAULT_INTERVAL_MS, "How often clients push their metrics.", minimum=100, maximum=3_600_000,
    )
    match: tuple[str, ...] = setting(
        ConfigType.LIST, (), "Which clients are meant: name=pattern, each in RE2's syntax; none means all.",
    )
    metrics: tuple[str, ...] = setting(
        ConfigType.LIST, (), "What names of metrics begin with; * is every metric, none is no metric.",
    )
    # fmt: on

    @staticmethod
    def of(overrides: Mapping[str, str]) -> "ClientMetricsConfig":
        """The values. Raises InvalidConfig."""
        values = parse_all(CLIENT_METRICS_SETTINGS, overrides, kind=KIND)
        config = ClientMetricsConfig(**{field_name(name): value for name, value in values.items()})  # type: ignore[arg-type]
        for each in config.match:
            name, equals, pattern = each.partition("=")
            if not equals or name.strip() not in FACTS or not pattern.strip():
                raise InvalidConfig(
                    f"match={each[:200]!r} is not allowed: it must be one of {', '.join(FACTS)}; then = and a pattern"
                )
        return config

    @property
    def patterns(self) -> tuple[tuple[str, str], ...]:
        """(name of a fact, pattern that it must match as a whole)"""
        parts = (each.partition("=") for each in self.match)
        return tuple((name.strip(), pattern.strip()) for name, _, pattern in parts)


CLIENT_METRICS_SETTINGS: dict[str, Setting] = registry_of(ClientMetricsConfig)
