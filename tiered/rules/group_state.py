"""The states of a classic group. (The transitions follow.)"""

from enum import StrEnum


class GroupState(StrEnum):
    """Where a classic group is in its life. The values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
