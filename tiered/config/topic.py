"""The configs of a topic: Kafka's names, types, defaults and bounds, and our own `tiered.*`.

Owns the registry and `TopicConfig`, the parsed values that everything else reads. Never knows where a
config is stored, and never does what it asks for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiered.config.setting import (
    LONG_MAX,
    ConfigType,
    ConfigValue,
    Setting,
    Synonym,
    field_name,
    parse_all,
    registry_of,
    setting,
)
from tiered.errors import InvalidConfig

if TYPE_CHECKING:
    from tiered.config.broker import BrokerSettings

KIND = "topic config"
AS_RETENTION = -2  # local.retention.*: the same as the total retention
UNLIMITED = -1
SMALL_SHARE = 64  # a segment is small below this share of segment.bytes
_HOUR_MS = 3_600_000
_WEEK_MS = 7 * 24 * _HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The effective configs of one topic. `TopicConfig()` holds Kafka's defaults."""

    # fmt: off
    cleanup_policy: tuple[str, ...] = setting(
        ConfigType.LIST, ("delete",),
        "What becomes of old records: delete drops segments by retention, compact keeps the newest of each key. Empty: "
        "all stay.",
        allowed=("delete", "compact"), synonyms=["log.cleanup.policy"],
    )
    compression_type: str = setting(
        ConfigType.STRING, "producer",
        "The codec of stored batches. The leader recompresses a batch with another one. producer: each keeps its own.",
        allowed=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), synonyms=["compression.type"],
    )
    compression_gzip_level: int = setting(
        ConfigType.INT, -1, "Accepted for Kafka's sake: batches are recompressed at the codec's default level.",
        minimum=-1, maximum=9, synonyms=["compression.gzip.level"], has_effect=False,
    )
    compression_lz4_level: int = setting(
        ConfigType.INT, 9, "Accepted for Kafka's sake: batches are recompressed at the codec's default level.",
        minimum=1, maximum=17, synonyms=["compression.lz4.level"], has_effect=False,
    )
    compression_zstd_level: int = setting(
        ConfigType.INT, 3, "Accepted for Kafka's sake: batches are recompressed at the codec's default level.",
        minimum=-131072, maximum=22, synonyms=["compression.zstd.level"], has_effect=False,
    )
    delete_retention_ms: int = setting(
        ConfigType.LONG, 24 * _HOUR_MS, "How long compaction keeps the mark of a deleted key.",
        minimum=0, synonyms=["log.cleaner.delete.retention.ms"],
    )
    file_delete_delay_ms: int = setting(
        ConfigType.LONG, 60_000, "Accepted for Kafka's sake: a deleted file lives on while somebody reads it.",
        minimum=0, synonyms=["log.segment.delete.delay.ms"], has_effect=False,
    )
    flush_messages: int = setting(
        ConfigType.LONG, LONG_MAX, "fsync after this many records; 1 means before each acknowledgement.",
        minimum=1, synonyms=["log.flush.interval.messages"],
    )
    flush_ms: int = setting(
        ConfigType.LONG, LONG_MAX, "fsync when records have waited this long.",
        minimum=0, synonyms=[Synonym(name="log.flush.interval.ms", default=None), "log.flush.scheduler.interval.ms"],
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        ConfigType.LIST, (), "Accepted for Kafka's sake: replicas whose followers are throttled.", has_effect=False,
    )
    index_interval_bytes: int = setting(
        ConfigType.INT, 4096, "A position is indexed at least every so many bytes.",
        minimum=0, synonyms=["log.index.interval.bytes"],
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        ConfigType.LIST, (), "Accepted for Kafka's sake: replicas whose leaders are throttled.", has_effect=False,
    )
    local_retention_bytes: int = setting(
        ConfigType.LONG, AS_RETENTION,
        "Uploaded segments leave the local disk when a partition has more than this; -2 means retention.bytes.",
        minimum=AS_RETENTION, synonyms=["log.local.retention.bytes"],
    )
    local_retention_ms: int = setting(
        ConfigType.LONG, AS_RETENTION,
        "Uploaded segments leave the local disk when they are older than this; -2 means retention.ms.",
        minimum=AS_RETENTION, synonyms=["log.local.retention.ms"],
    )
    max_compaction_lag_ms: int = setting(
        ConfigType.LONG, LONG_MAX, "A record is compacted at the latest after this long.",
        minimum=1, synonyms=["log.cleaner.max.compaction.lag.ms"],
    )
    max_decompressed_message_bytes: int = setting(
        ConfigType.INT, 2**31 - 9,
        "The largest record of a compressed batch that is accepted, once it is decompressed.",
        # Kafka has it since 4.4. MirrorMaker would copy it to older ones, which refuse a topic for it.
        minimum=1, maximum=2**31 - 9, synonyms=["max.decompressed.message.bytes"], is_kafkas=False,
    )
    max_message_bytes: int = setting(
        ConfigType.INT, 1_048_588, "The largest batch that is accepted, as sent.",
        minimum=0, synonyms=["message.max.bytes"],
    )
    message_timestamp_after_max_ms: int = setting(
        ConfigType.LONG, _HOUR_MS, "How far ahead of the broker's clock a record's CreateTime may be.",
        minimum=0, synonyms=["log.message.timestamp.after.max.ms"],
    )
    message_timestamp_before_max_ms: int = setting(
        ConfigType.LONG, LONG_MAX, "How far behind the broker's clock a record's CreateTime may be.",
        minimum=0, synonyms=["log.message.timestamp.before.max.ms"],
    )
    message_timestamp_type: str = setting(
        ConfigType.STRING, "CreateTime", "Whose clock stamps records: the producer's or, on append, the broker's.",
        allowed=("CreateTime", "LogAppendTime"), synonyms=["log.message.timestamp.type"],
    )
    min_cleanable_dirty_ratio: float = setting(
        ConfigType.DOUBLE, 0.5, "Compaction begins when this share of a partition is not compacted.",
        minimum=0, maximum=1, synonyms=["log.cleaner.min.cleanable.ratio"],
    )
    min_compaction_lag_ms: int = setting(
        ConfigType.LONG, 0, "A record is not compacted before this long.",
        minimum=0, synonyms=["log.cleaner.min.compaction.lag.ms"],
    )
    min_insync_replicas: int = setting(
        ConfigType.INT, 1, "acks=all needs this many replicas in sync.",
        minimum=1, synonyms=["min.insync.replicas"],
    )
    preallocate: bool = setting(
        ConfigType.BOOLEAN, False, "Accepted for Kafka's sake: files grow as they are written.",
        synonyms=["log.preallocate"], has_effect=False,
    )
    remote_copy_lag_bytes: int = setting(
        ConfigType.LONG, -1,
        "A closed segment is uploaded when its partition holds this many newer bytes, or its age asks for it: "
        "0 is at once, -1 means local.retention.bytes (KIP-1241).",
        minimum=-1, synonyms=["log.remote.copy.lag.bytes"], is_kafkas=False,
    )
    remote_copy_lag_ms: int = setting(
        ConfigType.LONG, 0,
        "A closed segment is uploaded when its newest record is this old, or its size asks for it: "
        "0 is at once, -1 means local.retention.ms (KIP-1241).",
        minimum=-1, synonyms=["log.remote.copy.lag.ms"], is_kafkas=False,
    )
    remote_log_copy_disable: bool = setting(
        ConfigType.BOOLEAN, False,
        "Uploads nothing more; what is in the store stays readable and leaves the disk by local retention.",
    )
    remote_log_delete_on_disable: bool = setting(
        ConfigType.BOOLEAN, False, "Accepted for Kafka's sake: what was uploaded stays until retention takes it.",
        has_effect=False,
    )
    remote_storage_enable: bool = setting(
        ConfigType.BOOLEAN, True,
        "Closed segments go to the object store. On, unlike in Kafka. Off and on again at run time loses nothing.",
        synonyms=["log.remote.storage.enable"],
    )
    retention_bytes: int = setting(
        ConfigType.LONG, UNLIMITED, "The oldest segments of a partition go when both tiers hold more; -1 is no limit.",
        minimum=UNLIMITED, synonyms=["log.retention.bytes"],
    )
    retention_ms: int = setting(
        ConfigType.LONG, _WEEK_MS, "Segments go, from both tiers, when all their records are older; -1 is no limit.",
        minimum=UNLIMITED,
        synonyms=[
            Synonym(name="log.retention.ms", default=None, note="; wins over minutes and hours"),
            Synonym(
                name="log.retention.minutes", multiplier=60_000, default=None, note=", in minutes; wins over hours",
            ),
            Synonym(name="log.retention.hours", multiplier=_HOUR_MS, default=168, note=", in hours"),
        ],
    )
    segment_bytes: int = setting(
        ConfigType.INT, 1 << 30, "A segment is closed before it grows larger than this.",
        minimum=14, synonyms=["log.segment.bytes"],
    )
    segment_index_bytes: int = setting(
        ConfigType.INT, 10 << 20, "A segment is closed when its index would grow larger than this.",
        minimum=4, synonyms=["log.index.size.max.bytes"],
    )
    segment_jitter_ms: int = setting(
        ConfigType.LONG, 0, "Accepted for Kafka's sake: uploads are bounded, so partitions may roll together.",
        minimum=0,
        synonyms=[
            Synonym(name="log.roll.jitter.ms", default=None, note="; wins over hours"),
            Synonym(name="log.roll.jitter.hours", multiplier=_HOUR_MS, default=0, note=", in hours"),
        ],
        has_effect=False,
    )
    segment_ms: int = setting(
        ConfigType.LONG, _WEEK_MS, "A segment with records is closed at this age.",
        minimum=1,
        synonyms=[
            Synonym(name="log.roll.ms", default=None, note="; wins over hours"),
            Synonym(name="log.roll.hours", multiplier=_HOUR_MS, default=168, note=", in hours"),
        ],
    )
    tiered_chunk_bytes: int = setting(
        ConfigType.INT, 1 << 20, "The size of the pieces in which an uploaded segment is read, cut between batches.",
        minimum=4096, maximum=64 << 20, synonyms=["tiered.chunk.bytes"], is_kafkas=False,
    )
    tiered_disk_only_max_ms: int = setting(
        ConfigType.LONG, _HOUR_MS,
        "A record is on brokers' disks alone for this long at the most: then its segment is closed and uploaded, "
        "however small it is; -1 is no limit.",
        minimum=UNLIMITED, synonyms=["tiered.disk.only.max.ms"], is_kafkas=False,
    )
    tiered_purge_grace_ms: int = setting(
        ConfigType.LONG, _HOUR_MS, "How long an object outlives its retention, for readers that planned with it.",
        minimum=0, synonyms=["tiered.purge.grace.ms"], is_kafkas=False,
    )
    unclean_leader_election_enable: bool = setting(
        ConfigType.BOOLEAN, False, "Whether a replica that is not in sync may lead, and lose records, when none is.",
        synonyms=["unclean.leader.election.enable"],
    )
    # fmt: on

    @staticmethod
    def of(overrides: Mapping[str, str], broker: "BrokerSettings") -> "TopicConfig":
        """The effective values: `overrides` over the broker's settings over Kafka's defaults.

        Raises InvalidConfig for an unknown name, a value that is not allowed, or values that contradict
        each other (only if `overrides` holds one of them: a broker's defaults never make a topic unusable).
        """
        explicit = parse_all(TOPIC_SETTINGS, overrides, kind=KIND)
        values = {name: broker_default(entry, broker) for name, entry in TOPIC_SETTINGS.items()} | explicit
        config = TopicConfig(**{field_name(name): value for name, value in values.items()})  # type: ignore[arg-type]
        _refuse_contradictions(config, overrides)
        return config

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes_old_segments(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def uploads(self) -> bool:
        """Whether closed segments go to the object store now; what is there already stays readable in any case."""
        return self.remote_storage_enable and not self.remote_log_copy_disable

    @property
    def effective_local_retention_ms(self) -> int:
        """`local.retention.ms`, or `retention.ms` where it says so; -1 is no limit."""
        return self.retention_ms if self.local_retention_ms == AS_RETENTION else self.local_retention_ms

    @property
    def effective_local_retention_bytes(self) -> int:
        """`local.retention.bytes`, or `retention.bytes` where it says so; -1 is no limit."""
        return self.retention_bytes if self.local_retention_bytes == AS_RETENTION else self.local_retention_bytes

    @property
    def small_segment_bytes(self) -> int:
        """Below this a local segment counts as small; 0 where all stay for as long as local retention says: it was set,
        nothing is closed early, or compaction needs the segments (decision 0033)."""
        if self.tiered_disk_only_max_ms == -1 or self.is_compacted:
            return 0
        if (self.local_retention_ms, self.local_retention_bytes) != (AS_RETENTION, AS_RETENTION):
            return 0
        return self.segment_bytes // SMALL_SHARE

    @property
    def effective_remote_copy_lag_ms(self) -> int:
        """`remote.copy.lag.ms`, or the local retention where it says so; 0 is at once, -1 is never by age."""
        return self.effective_local_retention_ms if self.remote_copy_lag_ms == -1 else self.remote_copy_lag_ms

    @property
    def effective_remote_copy_lag_bytes(self) -> int:
        """`remote.copy.lag.bytes`, or the local retention where it says so; 0 is at once, -1 is never by size."""
        return self.effective_local_retention_bytes if self.remote_copy_lag_bytes == -1 else self.remote_copy_lag_bytes


TOPIC_SETTINGS: dict[str, Setting] = registry_of(TopicConfig)


def _default_of(config: Setting, synonym: Synonym) -> Setting:
    return replace(
        config,
        name=synonym.name,
        type=config.type if synonym.multiplier == 1 else ConfigType.INT,
        default=config.default if synonym.default is ... else synonym.default,
        documentation=f"Default of {config.name}{synonym.note}.",
        synonyms=(),
    )


DEFAULTS_OF_TOPICS: dict[str, Setting] = {
    synonym.name: _default_of(config, synonym) for config in TOPIC_SETTINGS.values() for synonym in config.synonyms
}
"""The settings of a broker by which it gives topics their defaults."""


def broker_default(entry: Setting, broker: "BrokerSettings") -> ConfigValue:
    """The default of a topic: the first synonym in the broker's settings, or Kafka's default."""
    for synonym in entry.synonyms:
        layers = broker.explicit(synonym.name)
        if layers:
            value = layers[0].value
            return (
                value * synonym.multiplier
                if isinstance(value, int) and synonym.multiplier > 1 and value >= 0
                else value
            )
    return entry.default


def _refuse_contradictions(config: TopicConfig, overrides: Mapping[str, str]) -> None:
    def told(*names: str) -> bool:
        return any(name in overrides for name in names)

    for unit in ("ms", "bytes"):
        total = getattr(config, f"retention_{unit}")
        local = getattr(config, f"local_retention_{unit}")
        too_much = total != UNLIMITED and (local == UNLIMITED or local > total)
        if too_much and told(f"local.retention.{unit}", f"retention.{unit}"):
            raise InvalidConfig(
                f"local.retention.{unit}={local} is not allowed: it must be -2 or at most retention.{unit}={total}"
            )
        lag = getattr(config, f"remote_copy_lag_{unit}")
        kept = getattr(config, f"effective_local_retention_{unit}")
        if lag > 0 and kept != UNLIMITED and lag > kept and told(f"remote.copy.lag.{unit}", f"local.retention.{unit}"):
            raise InvalidConfig(
                f"remote.copy.lag.{unit}={lag} is not allowed: it must be at most the local retention, {kept}"
            )
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms and told(
        "min.compaction.lag.ms", "max.compaction.lag.ms"
    ):
        raise InvalidConfig(
            f"min.compaction.lag.ms={config.min_compaction_lag_ms} is not allowed: it must be at most "
            f"max.compaction.lag.ms={config.max_compaction_lag_ms}"
        )
