"""Whether this broker compacts its logs, how often it looks, and what of memory and disk that may take.

Owns the names, defaults and bounds; `BrokerSettings` has them along with all others. Never decides anything.
"""

from dataclasses import dataclass

from tiered.config.reconcile import ReconcileSettings
from tiered.config.setting import ConfigType, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings(ReconcileSettings):
    """The log cleaner, under Kafka's names: docs/compaction.md."""

    # fmt: off
    log_cleaner_backoff_ms: int = setting(
        ConfigType.LONG, 15_000, "How long the cleaner rests when no log is due for compaction.",
        minimum=1,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        ConfigType.LONG, 128 << 20, "Memory for the keys of one pass: about 192 bytes a key.", minimum=64 << 10,
    )
    log_cleaner_enable: bool = setting(
        ConfigType.BOOLEAN, True, "Whether this broker compacts its replicas of compacted topics.",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        ConfigType.DOUBLE, float(8 << 20),
        "What compaction may read from this broker's disk; less than in Kafka, for it takes the broker's own core.",
        minimum=1,
    )
    # fmt: on
