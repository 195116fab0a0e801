"""The settings of transactions.

Owns the names, defaults and bounds. Never decides anything.
"""

from dataclasses import dataclass

from tiered.config.setting import ConfigType, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Transactions: docs/adr/0023-a-transactions-end-is-one-row.md."""

    # fmt: off
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        ConfigType.INT, 100, "How long a produced batch waits for the end of its producer's last transaction.",
        minimum=0, read_only=True,
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        ConfigType.INT, 20, "How often that end is looked for.", minimum=1, read_only=True,
    )
    # fmt: on
