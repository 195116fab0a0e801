"""Fetch (key 1), versions 4 to 18, by hand: its values, and their layout as requests and as responses.

Owns no layout of its own; must never look into records.
"""

from tiered.wire.fetch.request import decode_fetch_request, encode_fetch_request
from tiered.wire.fetch.response import INLINE_BYTES, decode_fetch_response, encode_fetch_response
from tiered.wire.fetch.values import (
    API_KEY,
    FIRST_FLEXIBLE,
    FIRST_WITH_DIRECTORY_ID,
    FIRST_WITH_LEADER_EPOCH,
    FIRST_WITH_LOG_START_OFFSET,
    FIRST_WITH_NODE_ENDPOINTS,
    FIRST_WITH_RACK,
    FIRST_WITH_REPLICA_HIGH_WATERMARK,
    FIRST_WITH_REPLICA_STATE,
    FIRST_WITH_SESSIONS,
    FIRST_WITH_TOPIC_IDS,
    HIGH_WATERMARK_NOT_SENT,
    MAX_VERSION,
    MIN_VERSION,
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResult,
    ForgottenTopic,
    Payload,
)

__all__ = [
    "API_KEY", "FIRST_FLEXIBLE", "FIRST_WITH_DIRECTORY_ID", "FIRST_WITH_LEADER_EPOCH", "FIRST_WITH_LOG_START_OFFSET",
    "FIRST_WITH_NODE_ENDPOINTS", "FIRST_WITH_RACK", "FIRST_WITH_REPLICA_HIGH_WATERMARK", "FIRST_WITH_REPLICA_STATE",
    "FIRST_WITH_SESSIONS", "FIRST_WITH_TOPIC_IDS", "HIGH_WATERMARK_NOT_SENT", "INLINE_BYTES", "MAX_VERSION",
    "MIN_VERSION", "AbortedTransaction", "EpochEndOffset", "FetchPartition", "FetchPartitionResult", "FetchRequest",
    "FetchResponse", "FetchTopic", "FetchTopicResult", "ForgottenTopic", "Payload", "decode_fetch_request",
    "decode_fetch_response", "encode_fetch_request", "encode_fetch_response",
]  # fmt: skip
