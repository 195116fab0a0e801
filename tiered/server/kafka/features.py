"""The features of KIP-584 that this broker tells of: those whose behaviour it has, at the one level at which it has it.

Owns the list. None can be raised, lowered or taken away, so the lowest and the highest level are one. Left out is what
is not served: transactions of the second kind (transaction.version 2), share groups, streams groups, KRaft itself.
"""

from typing import Final, NamedTuple


class Feature(NamedTuple):
    name: str
    level: int


METADATA_VERSION: Final = Feature("metadata.version", 29)
"""That of Kafka 4.2 (4.2-IV1): what tools take for the version of the cluster."""
GROUP_VERSION: Final = Feature("group.version", 1)
"""The consumer groups of KIP-848."""

FEATURES: Final = (GROUP_VERSION, METADATA_VERSION)
EPOCH: Final = 1
"""Of this list; another list has a higher one, for clients keep what came with the highest."""
