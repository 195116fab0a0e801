"""Settings of stored records: the log on disk, the objects in the store, and comparing the two.

Owns the names, defaults and bounds. Never decides anything. `topic` has the configs that a topic may override.
"""

from dataclasses import dataclass

from tiered.config.setting import LONG_MAX, ConfigType, setting

_HOUR_MS = 3_600_000
_WEEK_MS = 7 * 24 * _HOUR_MS
_MONTH_MS = 30 * 24 * _HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Compaction (docs/compaction.md) and other periodic work on logs."""

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
    log_flush_scheduler_interval_ms: int = setting(
        ConfigType.LONG, LONG_MAX, "Default of flush.ms where log.flush.interval.ms says nothing.", minimum=1,
    )
    log_retention_check_interval_ms: int = setting(
        ConfigType.LONG, 300_000, "How often both tiers are looked at for retention.", minimum=1, read_only=True,
    )
    producer_id_expiration_check_interval_ms: int = setting(
        ConfigType.INT, 600_000, "How often idle producers are looked for.", minimum=1, read_only=True,
    )
    producer_id_expiration_ms: int = setting(
        ConfigType.INT, 24 * _HOUR_MS, "How long an idle producer is remembered.", minimum=1,
    )
    # fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringSettings:
    """The object store: uploads, reads, pins, retention's bounds, and how a read replica keeps up."""

    # fmt: off
    tiered_cache_bytes: int = setting(
        ConfigType.LONG, 1 << 30, "Disk that cached chunks of cold segments may take.",
        minimum=16 << 20, read_only=True,
    )
    tiered_checkpoint_interval_ms: int = setting(
        ConfigType.LONG, 1000, "The bucket's checkpoint follows a commit within this long.", minimum=1, read_only=True,
    )
    tiered_cold_read_bytes_in_flight: int = setting(
        ConfigType.LONG, 64 << 20, "Bytes that all cold reads together may be fetching.",
        minimum=1 << 20, read_only=True,
    )
    tiered_cold_read_concurrency: int = setting(
        ConfigType.INT, 8, "Cold reads under way at once.", minimum=1, maximum=256, read_only=True,
    )
    tiered_disk_only_closes_per_hour: int = setting(
        ConfigType.INT, 3600,
        "So many segments an hour one broker closes at the most for tiered.disk.only.max.ms: each costs requests. "
        "Where more are due, records wait longer.",
        minimum=1, maximum=3_600_000,
    )
    tiered_group_checkpoint_interval_ms: int = setting(
        ConfigType.LONG, 60_000, "The bucket's copy of groups' offsets follows commits within this long.",
        minimum=10, read_only=True,
    )
    tiered_pin_max_lifetime_ms: int = setting(
        ConfigType.LONG, _WEEK_MS, "How long a pin may be held in all, renewals included.", minimum=1,
    )
    tiered_pin_max_ttl_ms: int = setting(
        ConfigType.LONG, _HOUR_MS, "How long a pin may hold without being renewed.", minimum=1,
    )
    tiered_pins_max: int = setting(ConfigType.INT, 1000, "Pins that readers may hold at once.", minimum=0)
    tiered_read_replica_refresh_interval_ms: int = setting(
        ConfigType.LONG, 10_000, "How often a broker with --read-only looks at the bucket's checkpoints.",
        minimum=10, read_only=True,
    )
    tiered_retention_max_clock_jump_ms: int = setting(
        ConfigType.LONG, _HOUR_MS,
        "Nothing is deleted for its age while the clock is further ahead than this of the time that has passed, or of "
        "the database's; -1 believes every clock.",
        minimum=-1,
    )
    tiered_retention_max_segments: int = setting(
        ConfigType.INT, 1000, "Segments of one partition that one round of retention takes at the most.",
        minimum=1, maximum=100_000,
    )
    tiered_snapshots_max: int = setting(ConfigType.INT, 100, "Snapshots that may exist at once.", minimum=0)
    tiered_store_timeout_ms: int = setting(
        ConfigType.INT, 30_000, "How long one request to the store may take.", minimum=100, read_only=True,
    )
    tiered_sweep_interval_ms: int = setting(
        ConfigType.LONG, 60_000, "How often failed uploads and retired objects are swept.",
        minimum=10, read_only=True,
    )
    tiered_upload_concurrency: int = setting(
        ConfigType.INT, 2, "Uploads under way at once.", minimum=1, maximum=64, read_only=True,
    )
    tiered_upload_interval_ms: int = setting(
        ConfigType.LONG, 200, "How often logs are looked at for rolling, flushing and uploading.",
        minimum=10, read_only=True,
    )
    tiered_upload_timeout_ms: int = setting(
        ConfigType.LONG, 600_000, "An upload that takes longer ends and is tried again.", minimum=1000,
    )
    # fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSettings:
    """Reconcile and scrub: docs/reconcile.md."""

    # fmt: off
    tiered_reconcile_interval_ms: int = setting(
        ConfigType.LONG, 60_000,
        "How often a part of disk, metadata store and object store is compared and scrubbed; -1 is never.",
        minimum=-1, read_only=True,
    )
    tiered_reconcile_max_requests: int = setting(
        ConfigType.INT, 60, "Requests to the store that one round of comparing may make.", minimum=3, maximum=100_000,
    )
    tiered_reconcile_period_ms: int = setting(
        ConfigType.LONG, _HOUR_MS,
        "Every object that the metadata store names is looked for once in this long, if the requests allow.", minimum=0,
    )
    tiered_scrub_max_bytes_per_second: int = setting(
        ConfigType.LONG, 4 << 20, "What scrubbing may read from the store; 0 switches it off.", minimum=0,
    )
    tiered_scrub_period_ms: int = setting(
        ConfigType.LONG, _MONTH_MS,
        "Every chunk in the store is read and checked once in this long, if the bytes allow.", minimum=1,
    )
    # fmt: on
