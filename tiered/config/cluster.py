"""The settings that brokers of a cluster need for each other and for creating topics, under Kafka's names.

Owns their names, defaults and bounds. Never decides anything.
"""

from dataclasses import dataclass

from tiered.config.setting import LONG_MAX, ConfigType, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """Creating and deleting topics. The defaults of their configs are made of `TOPIC_SETTINGS`."""

    # fmt: off
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
    # fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Liveness, elections and replication."""

    # fmt: off
    # The cluster
    auto_leader_rebalance_enable: bool = setting(
        ConfigType.BOOLEAN, True, "Whether partitions go back to their preferred leader.",
    )
    broker_heartbeat_interval_ms: int = setting(
        ConfigType.INT, 400, "How often a broker says that it lives, and looks who else does.",
        minimum=50, maximum=60_000, read_only=True,
    )
    broker_session_timeout_ms: int = setting(
        ConfigType.INT, 2000, "A broker that was silent for this long is fenced: others lead its partitions.",
        minimum=200, maximum=600_000, read_only=True,
    )
    controlled_shutdown_enable: bool = setting(
        ConfigType.BOOLEAN, True, "Whether a broker that stops hands its partitions over first.",
    )
    leader_imbalance_check_interval_seconds: int = setting(
        ConfigType.LONG, 300, "How often partitions are given back to their preferred leaders.", minimum=1,
    )
    leader_imbalance_per_broker_percentage: int = setting(
        ConfigType.INT, 10, "More of a broker's partitions than this, led by others, are given back.",
        minimum=0, maximum=100,
    )

    # Replication
    follower_replication_throttled_rate: int = setting(
        ConfigType.LONG, LONG_MAX, "Bytes a second that this broker fetches for replicas that are being added.",
        minimum=1,
    )
    num_replica_fetchers: int = setting(
        ConfigType.INT, 1, "Connections to each leader that this broker fetches from.",
        minimum=1, maximum=64,
    )
    replica_fetch_backoff_ms: int = setting(
        ConfigType.INT, 200, "How long a follower waits after a leader could not be asked.", minimum=0,
    )
    replica_fetch_max_bytes: int = setting(
        ConfigType.INT, 1 << 20, "What a follower asks of one partition at a time.", minimum=0,
    )
    replica_fetch_response_max_bytes: int = setting(
        ConfigType.INT, 10 << 20, "What a follower asks of one leader at a time.", minimum=0,
    )
    replica_fetch_wait_max_ms: int = setting(
        ConfigType.INT, 500, "How long a leader may keep a follower waiting that has everything.", minimum=0,
    )
    replica_lag_time_max_ms: int = setting(
        ConfigType.LONG, 30_000, "A follower that lags longer leaves the in-sync replicas.", minimum=1,
    )
    replica_selector_class: str = setting(
        ConfigType.STRING, "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "Whether consumers that name their rack are sent to a follower in it (KIP-392).",
        allowed=(
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "org.apache.kafka.common.replica.LeaderSelector",
        ),
    )
    # fmt: on
