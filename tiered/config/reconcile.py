"""How often and how much disk, SQL and bucket are compared, and chunks in the store read and checked.

Owns the names, defaults and bounds; `BrokerSettings` has them along with all others. Never decides anything.
"""

from dataclasses import dataclass

from tiered.config.cluster import ClusterSettings
from tiered.config.setting import ConfigType, setting

_HOUR_MS = 3_600_000
_MONTH_MS = 30 * 24 * _HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSettings(ClusterSettings):
    """Reconcile and scrub: docs/reconcile.md."""

    # fmt: off
    tiered_reconcile_interval_ms: int = setting(
        ConfigType.LONG, 60_000,
        "How often a part of disk, catalogue and object store is compared and scrubbed; -1 is never.",
        minimum=-1, read_only=True,
    )
    tiered_reconcile_max_requests: int = setting(
        ConfigType.INT, 60, "Requests to the store that one round of comparing may make.", minimum=3, maximum=100_000,
    )
    tiered_reconcile_period_ms: int = setting(
        ConfigType.LONG, _HOUR_MS,
        "Every object that the catalogue names is looked for once in this long, if the requests allow.", minimum=0,
    )
    tiered_scrub_max_bytes_per_second: int = setting(
        ConfigType.LONG, 4 << 20, "What scrubbing may read from the store; 0 switches it off.", minimum=0,
    )
    tiered_scrub_period_ms: int = setting(
        ConfigType.LONG, _MONTH_MS,
        "Every chunk in the store is read and checked once in this long, if the bytes allow.", minimum=1,
    )
    # fmt: on
