"""How quotas are measured, and how many of anything may come from outside.

Owns the names, defaults and bounds; `BrokerSettings` has them along with all others. Never decides anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tiered.config.addresses import named_address
from tiered.config.setting import INT_MAX, ConfigType, setting
from tiered.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """Quotas and caps, under Kafka's names where it has them: docs/security-limits.md."""

    # fmt: off
    controller_quota_window_num: int = setting(
        ConfigType.INT, 11, "Windows that changes of topics are measured over; what fits into all may come at once.",
        minimum=1, maximum=1000, read_only=True,
    )
    controller_quota_window_size_seconds: int = setting(
        ConfigType.INT, 1, "The length of such a window.", minimum=1, maximum=3600, read_only=True,
    )
    max_connection_creation_rate: int = setting(
        ConfigType.INT, INT_MAX, "Connections a second that are accepted; more of them wait.", minimum=1,
    )
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        ConfigType.LIST, (), "Addresses with a max.connections.per.ip of their own, as ADDRESS:NUMBER.",
    )
    quota_window_num: int = setting(
        ConfigType.INT, 11, "Windows that quotas are measured over: what fits into all of them may come at once.",
        minimum=1, maximum=1000, read_only=True,
    )
    quota_window_size_seconds: int = setting(
        ConfigType.INT, 1, "The length of such a window. Nobody is throttled for longer than all of them.",
        minimum=1, maximum=3600, read_only=True,
    )
    tiered_max_connections_per_user: int = setting(
        ConfigType.INT, INT_MAX, "Connections of one user who has authenticated.", minimum=1,
    )
    tiered_max_producers: int = setting(
        ConfigType.INT, 500_000,
        "Idempotent producers that are remembered, of all partitions; those go first that were silent longest.",
        minimum=1,
    )
    tiered_max_topics: int = setting(
        ConfigType.INT, 50_000, "Topics of the cluster; no more are created beyond them.", minimum=1,
    )
    # fmt: on

    def __post_init__(self) -> None:
        connections_by_address(self.max_connections_per_ip_overrides)


def connections_by_address(texts: Sequence[str]) -> Mapping[str, int]:
    """What `max.connections.per.ip.overrides` says. Raises InvalidConfig."""
    found: dict[str, int] = {}
    for text in texts:
        host, _, number = text.strip().rpartition(":")
        try:
            host = named_address(host.strip("[]"))
        except ValueError:
            host = ""
        if not host or not (number.isascii() and number.isdigit()) or int(number) > INT_MAX:
            raise InvalidConfig(
                f"max.connections.per.ip.overrides: {text!r} is no ADDRESS:NUMBER such as 127.0.0.1:100 or [::1]:5"
            )
        found[host] = int(number)
    return found
