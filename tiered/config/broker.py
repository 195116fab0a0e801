"""The settings of a broker: Kafka's names and defaults, and our own `tiered.*`.

Owns the registry and `BrokerSettings`, the parsed values with the layers that they come from. Never reads
a file or the environment: `serve` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tiered.config.groups import GroupSettings
from tiered.config.kafka_names import KAFKA_SETTINGS, OF_ALL_LISTENERS, WITHOUT_EFFECT
from tiered.config.listeners import HTTP_PREFIX, MECHANISMS_NAME, PREFIX
from tiered.config.setting import (
    INT_MAX,
    LONG_MAX,
    ConfigSource,
    ConfigType,
    ConfigValue,
    Setting,
    field_name,
    registry_of,
    setting,
)
from tiered.config.tls import LISTENER_NAMES

KIND = "broker setting"
_NOTHING: Mapping[str, str] = MappingProxyType({})
_HOUR_MS = 3_600_000
_WEEK_MS = 7 * 24 * _HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One explicit value of one broker setting."""

    source: ConfigSource
    value: ConfigValue


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings(GroupSettings):
    """The effective settings of one broker. `BrokerSettings()` holds the defaults.

    The three mappings keep the explicit texts by source; the fields hold what comes out of them. Settings
    that are not read-only may change while the broker runs: read the field where it is used.
    """

    static: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    dynamic: Mapping[str, str] = field(default_factory=dict)

    # fmt: off
    # Topics
    auto_create_topics_enable: bool = setting(
        ConfigType.BOOLEAN, True, "Whether asking for an unknown topic creates it.",
    )
    default_replication_factor: int = setting(
        ConfigType.INT, 1, "Replicas of a topic that does not say.", minimum=1, maximum=2**15 - 1,
    )
    delete_topic_enable: bool = setting(ConfigType.BOOLEAN, True, "Whether topics can be deleted.")
    num_partitions: int = setting(
        ConfigType.INT, 1, "Partitions of a topic that does not say.", minimum=1, maximum=100_000,
    )
    min_insync_replicas: int = setting(ConfigType.INT, 1, "Default of min.insync.replicas.", minimum=1)
    unclean_leader_election_enable: bool = setting(
        ConfigType.BOOLEAN, False, "Default of unclean.leader.election.enable.",
    )

    # Requests and connections
    connections_max_idle_ms: int = setting(
        ConfigType.LONG, 600_000, "A connection without requests is closed after this long.",
    )
    fetch_max_bytes: int = setting(
        ConfigType.INT, 55 << 20, "The most bytes that one Fetch is answered with.", minimum=1024,
    )
    max_connections: int = setting(ConfigType.INT, INT_MAX, "Connections in all.", minimum=0)
    max_connections_per_ip: int = setting(ConfigType.INT, INT_MAX, "Connections from one address.", minimum=0)
    message_max_bytes: int = setting(ConfigType.INT, 1_048_588, "Default of max.message.bytes.", minimum=0)
    num_io_threads: int = setting(
        ConfigType.INT, 8, "Threads that wait for the disk.", minimum=1, maximum=256,
    )
    queued_max_request_bytes: int = setting(
        ConfigType.LONG, 512 << 20,
        "Bytes of requests in memory before connections are no longer read; -1 is no limit, Kafka's default.",
        minimum=-1, read_only=True,
    )
    request_timeout_ms: int = setting(
        ConfigType.INT, 30_000, "How long a record that came over HTTP waits for all replicas in sync.", minimum=1,
    )
    socket_request_max_bytes: int = setting(
        ConfigType.INT, 100 << 20, "The largest request that is read.", minimum=1024, read_only=True,
    )

    # Defaults of topic configs, under the names that Kafka gives them
    compression_type: str = setting(
        ConfigType.STRING, "producer", "Default of compression.type.",
        allowed=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    )
    compression_gzip_level: int = setting(
        ConfigType.INT, -1, "Default of compression.gzip.level.", minimum=-1, maximum=9, has_effect=False,
    )
    compression_lz4_level: int = setting(
        ConfigType.INT, 9, "Default of compression.lz4.level.", minimum=1, maximum=17, has_effect=False,
    )
    compression_zstd_level: int = setting(
        ConfigType.INT, 3, "Default of compression.zstd.level.", minimum=-131072, maximum=22, has_effect=False,
    )
    log_cleaner_delete_retention_ms: int = setting(
        ConfigType.LONG, 24 * _HOUR_MS, "Default of delete.retention.ms.", minimum=0,
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        ConfigType.LONG, LONG_MAX, "Default of max.compaction.lag.ms.", minimum=1,
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        ConfigType.DOUBLE, 0.5, "Default of min.cleanable.dirty.ratio.", minimum=0, maximum=1,
    )
    log_cleaner_min_compaction_lag_ms: int = setting(ConfigType.LONG, 0, "Default of min.compaction.lag.ms.", minimum=0)
    log_cleanup_policy: tuple[str, ...] = setting(
        ConfigType.LIST, ("delete",), "Default of cleanup.policy.", allowed=("delete", "compact"),
    )
    log_flush_interval_messages: int = setting(ConfigType.LONG, LONG_MAX, "Default of flush.messages.", minimum=1)
    log_flush_interval_ms: int | None = setting(ConfigType.LONG, None, "Default of flush.ms.", minimum=0)
    log_index_interval_bytes: int = setting(ConfigType.INT, 4096, "Default of index.interval.bytes.", minimum=0)
    log_index_size_max_bytes: int = setting(ConfigType.INT, 10 << 20, "Default of segment.index.bytes.", minimum=4)
    log_local_retention_bytes: int = setting(ConfigType.LONG, -2, "Default of local.retention.bytes.", minimum=-2)
    log_local_retention_ms: int = setting(ConfigType.LONG, -2, "Default of local.retention.ms.", minimum=-2)
    log_message_timestamp_after_max_ms: int = setting(
        ConfigType.LONG, _HOUR_MS, "Default of message.timestamp.after.max.ms.", minimum=0,
    )
    log_message_timestamp_before_max_ms: int = setting(
        ConfigType.LONG, LONG_MAX, "Default of message.timestamp.before.max.ms.", minimum=0,
    )
    log_message_timestamp_type: str = setting(
        ConfigType.STRING, "CreateTime", "Default of message.timestamp.type.", allowed=("CreateTime", "LogAppendTime"),
    )
    log_preallocate: bool = setting(
        ConfigType.BOOLEAN, False, "Default of preallocate.", has_effect=False,
    )
    log_remote_copy_lag_bytes: int = setting(ConfigType.LONG, -1, "Default of remote.copy.lag.bytes.", minimum=-1)
    log_remote_copy_lag_ms: int = setting(ConfigType.LONG, 0, "Default of remote.copy.lag.ms.", minimum=-1)
    log_remote_storage_enable: bool = setting(ConfigType.BOOLEAN, True, "Default of remote.storage.enable.")
    log_retention_bytes: int = setting(ConfigType.LONG, -1, "Default of retention.bytes.", minimum=-1)
    log_retention_hours: int = setting(ConfigType.INT, 168, "Default of retention.ms, in hours.", minimum=-1)
    log_retention_minutes: int | None = setting(
        ConfigType.INT, None, "Default of retention.ms, in minutes; wins over hours.", minimum=-1,
    )
    log_retention_ms: int | None = setting(
        ConfigType.LONG, None, "Default of retention.ms; wins over minutes and hours.", minimum=-1,
    )
    log_roll_hours: int = setting(ConfigType.INT, 168, "Default of segment.ms, in hours.", minimum=1)
    log_roll_jitter_hours: int = setting(
        ConfigType.INT, 0, "Default of segment.jitter.ms, in hours.", minimum=0, has_effect=False,
    )
    log_roll_jitter_ms: int | None = setting(
        ConfigType.LONG, None, "Default of segment.jitter.ms; wins over hours.", minimum=0, has_effect=False,
    )
    log_roll_ms: int | None = setting(ConfigType.LONG, None, "Default of segment.ms; wins over hours.", minimum=1)
    log_segment_bytes: int = setting(ConfigType.INT, 1 << 30, "Default of segment.bytes.", minimum=14)
    log_segment_delete_delay_ms: int = setting(
        ConfigType.LONG, 60_000, "Default of file.delete.delay.ms.", minimum=0, has_effect=False,
    )
    tiered_chunk_bytes: int = setting(
        ConfigType.INT, 1 << 20, "Default of tiered.chunk.bytes.", minimum=4096, maximum=64 << 20,
    )
    tiered_purge_grace_ms: int = setting(ConfigType.LONG, _HOUR_MS, "Default of tiered.purge.grace.ms.", minimum=0)

    # Periodic work on the log
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

    # The cold tier
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

    # What one client may ask of the broker
    tiered_max_partitions: int = setting(
        ConfigType.INT, 50_000, "Partitions in all; no topic is created, and none grows, beyond them.", minimum=1,
    )
    tiered_request_max_bytes: int = setting(
        ConfigType.INT, 8 << 20, "The largest request but Produce, which socket.request.max.bytes bounds.",
        minimum=1024, read_only=True,
    )
    tiered_request_receive_timeout_ms: int = setting(
        ConfigType.LONG, 60_000,
        "A request must have arrived within this long, and a second more for every 16 KiB of it.",
        minimum=100, read_only=True,
    )

    # What HTTP clients may ask of the broker
    tiered_http_allowed_hosts: tuple[str, ...] = setting(
        ConfigType.LIST, (), "Names besides the advertised one that browsers may reach the HTTP door by.",
    )
    tiered_http_max_connections: int = setting(ConfigType.INT, 500, "HTTP connections in all.", minimum=1)
    tiered_http_max_requests: int = setting(
        ConfigType.INT, 64, "HTTP requests in progress; the next one is answered with 429.", minimum=1,
    )
    tiered_http_max_streams: int = setting(
        ConfigType.INT, 100, "HTTP answers without an end (tails) that may be open.", minimum=0,
    )
    tiered_http_request_timeout_ms: int = setting(
        ConfigType.INT, 30_000, "An HTTP request must have arrived, and its answer be taken, within this long.",
        minimum=100,
    )
    tiered_lag_sample_interval_ms: int = setting(
        ConfigType.INT, 5000, "How often every group's lag is noted for its history of 1440 samples.",
        minimum=100, maximum=3_600_000, read_only=True,
    )
    tiered_tail_heartbeat_interval_ms: int = setting(
        ConfigType.INT, 15_000, "A tail over HTTP that has nothing to tell shows so often that it lives.", minimum=100,
    )
    tiered_tail_stall_timeout_ms: int = setting(
        ConfigType.INT, 30_000, "A listener that does not read its tail for this long is cut off.", minimum=100,
    )

    # Prices, for /api/v1/cost
    tiered_price_cold_usd_per_gib_month: float = setting(
        ConfigType.DOUBLE, 0.023, "What the object store costs, in USD for a GiB and month.", minimum=0, maximum=1e9,
    )
    tiered_price_local_usd_per_gib_month: float = setting(
        ConfigType.DOUBLE, 0.08, "What the brokers' disks cost, in USD for a GiB and month.", minimum=0, maximum=1e9,
    )
    tiered_price_upload_usd_per_1000: float = setting(
        ConfigType.DOUBLE, 0.005, "What 1000 PUT requests to the store cost, in USD.", minimum=0, maximum=1e9,
    )
    tiered_metrics_max_series: int = setting(
        ConfigType.INT, 1000, "Topics, and partitions of groups, that /metrics has lines of their own for.", minimum=0,
    )
    # fmt: on

    @staticmethod
    def of(
        static: Mapping[str, str] = _NOTHING,
        *,
        dynamic_default: Mapping[str, str] = _NOTHING,
        dynamic: Mapping[str, str] = _NOTHING,
    ) -> "BrokerSettings":
        """The effective settings: this broker's dynamic ones over the cluster's over the static over defaults.

        Raises InvalidConfig that names a setting whose value is not allowed.
        """
        values: dict[str, ConfigValue] = {}
        for texts in (static, dynamic_default, dynamic):
            values |= {name: broker_setting(name).parse(text) for name, text in texts.items()}
        return BrokerSettings(
            static=MappingProxyType(dict(static)),
            dynamic_default=MappingProxyType(dict(dynamic_default)),
            dynamic=MappingProxyType(dict(dynamic)),
            **{field_name(name): value for name, value in values.items() if name in _FIELDS},  # type: ignore[arg-type]
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


_FIELDS = registry_of(BrokerSettings)
BROKER_SETTINGS: dict[str, Setting] = dict(sorted((KAFKA_SETTINGS | _FIELDS).items()))
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


def _of_one_door(name: str) -> Setting | None:
    """What holds for one listener, or for HTTP alone."""
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
