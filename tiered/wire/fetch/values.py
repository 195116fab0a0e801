"""The values of a Fetch (key 1) and its answer, and the version that brought each field.

Owns no layout: that is in `request` and `response`. Values are NamedTuples because a broker builds one for every
partition of every request. Times are milliseconds, error codes are Kafka's numbers.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from tiered.wire.primitives import Buffer, CurrentLeader, NodeEndpoint, string_bytes

API_KEY = 1
MIN_VERSION = 4
MAX_VERSION = 18
FIRST_WITH_LOG_START_OFFSET = 5
FIRST_WITH_SESSIONS = 7
FIRST_WITH_LEADER_EPOCH = 9
FIRST_WITH_RACK = 11
FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_REPLICA_STATE = 15
FIRST_WITH_NODE_ENDPOINTS = 16
FIRST_WITH_DIRECTORY_ID = 17
FIRST_WITH_REPLICA_HIGH_WATERMARK = 18

HIGH_WATERMARK_NOT_SENT = (1 << 63) - 1
INCARNATION_TAG = 20_000
"""A tagged field of ours within ReplicaState, far above Kafka's: 16 bytes. Whoever does not know it passes it over."""

_NO_ID = UUID(int=0).bytes


class Payload(Protocol):
    """Records that are somewhere else, `length` bytes of them."""

    @property
    def length(self) -> int: ...


class FetchPartition(NamedTuple):
    """The request for one partition. The last two fields come from followers only (versions 17 and 18)."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: UUID | None = None
    high_watermark: int = HIGH_WATERMARK_NOT_SENT


class FetchTopic(NamedTuple):
    """`name` is None from version 13 on, `topic_id` None before it."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions that an incremental request of a fetch session takes out of it."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[int]


class FetchRequest(NamedTuple):
    """A decoded request. `replica_id` is -1 for consumers; `session_id` 0 and `session_epoch` -1 mean no session."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: Sequence[FetchTopic]
    forgotten_topics: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    cluster_id: str | None = None
    replica_incarnation: UUID | None = None
    """Brokers of this project show with it that they are who they say: see `INCARNATION_TAG`."""


class AbortedTransaction(NamedTuple):
    """Records of `producer_id` from `first_offset` to its next abort marker are not to be delivered."""

    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    """Where a follower's log diverges (version 12 and later)."""

    epoch: int = -1
    end_offset: int = -1


class FetchPartitionResult(NamedTuple):
    """The answer for one partition. `records` are whole batches, or None for none.

    `aborted_transactions` is None for read_uncommitted. Decoded answers carry a memoryview of the records.
    """

    partition_index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: "Payload | Buffer | None" = None
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: EpochEndOffset | None = None
    current_leader: CurrentLeader | None = None


class FetchTopicResult(NamedTuple):
    """The answers for one topic, by name (up to version 12) or by id."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[FetchPartitionResult]


class FetchResponse(NamedTuple):
    """A decoded response; its records are views of the buffer that was decoded."""

    throttle_ms: int
    error_code: int
    session_id: int
    topics: Sequence[FetchTopicResult]
    node_endpoints: tuple[NodeEndpoint, ...] = ()


def topic_key(name: str | None, topic_id: UUID | None, version: int) -> bytes:
    """A topic's name or id, whichever the version has."""
    if version >= FIRST_WITH_TOPIC_IDS:
        return topic_id.bytes if topic_id is not None else _NO_ID
    assert name is not None, "a topic's name is missing"
    return string_bytes(name, version >= FIRST_FLEXIBLE)
