"""The settings of the group coordinator: how long members may be silent, how many there may be, and what offsets cost.

Owns the names, defaults and bounds. Never decides anything.
"""

from dataclasses import dataclass

from tiered.config.setting import INT_MAX, ConfigType, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Groups and their offsets: docs/groups.md."""

    # fmt: off
    group_initial_rebalance_delay_ms: int = setting(
        ConfigType.INT, 3000, "How long an empty group waits for more members.", minimum=0,
    )
    group_max_session_timeout_ms: int = setting(
        ConfigType.INT, 1_800_000, "The longest session timeout that a member may ask for.", minimum=1,
    )
    group_max_size: int = setting(ConfigType.INT, INT_MAX, "Members of one group.", minimum=1)
    group_min_session_timeout_ms: int = setting(
        ConfigType.INT, 6000, "The shortest session timeout that a member may ask for.", minimum=1,
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        ConfigType.INT, 5000, "How often members of KIP-848 groups are told to send a heartbeat.", minimum=1,
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        ConfigType.INT, 15_000, "The longest heartbeat interval that a group's config may ask for.", minimum=1,
    )
    group_consumer_max_session_timeout_ms: int = setting(
        ConfigType.INT, 60_000, "The longest session timeout that a group's config may ask for.", minimum=1,
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        ConfigType.INT, 5000, "The shortest heartbeat interval that a group's config may ask for.", minimum=1,
    )
    group_consumer_min_session_timeout_ms: int = setting(
        ConfigType.INT, 45_000, "The shortest session timeout that a group's config may ask for.", minimum=1,
    )
    group_consumer_max_size: int = setting(ConfigType.INT, INT_MAX, "Members of one KIP-848 group.", minimum=1)
    group_consumer_session_timeout_ms: int = setting(
        ConfigType.INT, 45_000, "A member of a KIP-848 group that is silent for this long has left.", minimum=1,
    )
    offset_metadata_max_bytes: int = setting(
        ConfigType.INT, 4096, "The longest note that a committed offset may carry.", minimum=0,
    )
    offsets_retention_check_interval_ms: int = setting(
        ConfigType.LONG, 600_000, "How often expired offsets are looked for.", minimum=1,
    )
    offsets_retention_minutes: int = setting(
        ConfigType.INT, 10_080, "How long the offsets of an empty group are kept.", minimum=1,
    )
    offsets_topic_num_partitions: int = setting(
        ConfigType.INT, 50, "Slots that groups are spread over.", minimum=1, read_only=True,
    )

    tiered_group_balance_delay_ms: int = setting(
        ConfigType.INT, 60_000,
        "How long the brokers in service must have been the same before groups with members move to another one.",
        minimum=0,
    )
    tiered_group_memory_bytes: int = setting(
        ConfigType.LONG, 256 << 20, "What all groups and their members may take of this broker's memory.",
        minimum=1 << 20,
    )
    tiered_max_new_groups_per_day: int = setting(
        ConfigType.INT, 50_000,
        "Groups that nobody knows yet which one user (an address, where nobody is asked who they are) may bring to "
        "this broker in a day.",
        minimum=1,
    )
    tiered_offset_commit_linger_ms: int = setting(
        ConfigType.INT, -1,
        "How long offset commits of many groups are gathered for one SQL transaction. -1: not at all while they come "
        "one at a time, else 2 ms.",
        minimum=-1, maximum=1000,
    )
    # fmt: on
