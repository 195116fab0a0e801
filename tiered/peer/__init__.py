"""A client of Kafka brokers: one connection (`Peer`), and a cluster found through it (`Cluster`).

Followers, the command line and Spark's tail share it. Owns no state of its own; must never import a store or a
broker's room.
"""

from tiered.peer.answers import (
    BrokerError,
    ConnectionLost,
    CorruptAnswer,
    CorruptBrokerError,
    FencedBrokerError,
    InvalidBrokerError,
    OutcomeUnknown,
    OutOfRangeBrokerError,
    RetriableBrokerError,
    broker_error,
)
from tiered.peer.cluster import (
    ACKS_ALL,
    EARLIEST,
    LATEST,
    NEWEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Cluster,
    FetchedRecords,
)
from tiered.peer.connection import TIMEOUT_MS, Peer
from tiered.peer.topology import (
    BrokerAddress,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
    TopicPartition,
    parse_bootstrap,
)

__all__ = [
    "ACKS_ALL", "EARLIEST", "LATEST", "NEWEST", "READ_COMMITTED", "READ_UNCOMMITTED",
    "TIMEOUT_MS", "BrokerAddress", "BrokerError", "Cluster", "ClusterMetadata", "ConnectionLost", "CorruptAnswer",
    "CorruptBrokerError", "FencedBrokerError", "FetchedRecords", "InvalidBrokerError",
    "OutOfRangeBrokerError", "OutcomeUnknown", "PartitionMetadata", "Peer", "RetriableBrokerError",
    "TopicMetadata", "TopicPartition", "broker_error", "parse_bootstrap",
]  # fmt: skip
