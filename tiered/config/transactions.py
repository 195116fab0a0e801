"""The settings of transactions: how long one may be open, and how long its transactional id is remembered.

Owns the names, defaults and bounds. Never decides anything.
"""

from dataclasses import dataclass

from tiered.config.setting import ConfigType, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Transactions: docs/transactions.md."""

    # fmt: off
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        ConfigType.INT, 100, "How long a produced batch waits for the end of its producer's last transaction.",
        minimum=0, read_only=True,
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        ConfigType.INT, 20, "How often that end is looked for.", minimum=1, read_only=True,
    )
    transaction_partition_verification_enable: bool = setting(
        ConfigType.BOOLEAN, True,
        "Whether the first batch of each transaction on a partition waits for its coordinator's word.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        ConfigType.INT, 10_000, "How often transactions that are open for too long are looked for.", minimum=1,
        read_only=True,
    )
    transaction_max_timeout_ms: int = setting(
        ConfigType.INT, 900_000, "The longest transaction time-out that a producer may ask for.", minimum=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        ConfigType.INT, 3_600_000, "How often expired transactional ids are looked for.", minimum=1, read_only=True,
    )
    transactional_id_expiration_ms: int = setting(
        ConfigType.INT, 604_800_000, "How long a transactional id that nobody uses is remembered.", minimum=1,
    )
    tiered_max_new_transactional_ids_per_day: int = setting(
        ConfigType.INT, 500_000,
        "Transactional ids that nobody knows yet which one user (an address, where nobody is asked who they are) may "
        "bring to this broker in a day. Flink makes some at each checkpoint.",
        minimum=1,
    )
    # fmt: on
