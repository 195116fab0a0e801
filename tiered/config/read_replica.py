"""The settings of a broker that only reads its bucket (`--read-only`).

Owns their names, defaults and bounds; `BrokerSettings` has them along with all others. Never decides anything.
"""

from dataclasses import dataclass

from tiered.config.limits import LimitSettings
from tiered.config.setting import ConfigType, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReplicaSettings(LimitSettings):
    """How a read replica keeps up with its bucket."""

    # fmt: off
    tiered_read_replica_refresh_interval_ms: int = setting(
        ConfigType.LONG, 10_000, "How often a broker with --read-only looks at the bucket's checkpoints.",
        minimum=10, read_only=True,
    )
    # fmt: on
