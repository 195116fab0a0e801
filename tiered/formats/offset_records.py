"""Committed offsets as records of `__consumer_offsets`, in Kafka's key and value schemas.

Owns these bytes: OffsetCommitKey version 1 and OffsetCommitValue version 3, which every lag exporter knows. Nothing is
stored in this form: SQL has the offsets, and readers of the topic get them so.
"""

import struct
from typing import Final

_KEY_VERSION: Final = 1
_VALUE_VERSION: Final = 3
_MAX_STRING_BYTES: Final = 0x7FFF


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """int16 version | string group | string topic | int32 partition"""
    return b"".join((struct.pack(">h", _KEY_VERSION), _string(group_id), _string(topic), struct.pack(">i", partition)))


def encode_offset_value(offset: int, leader_epoch: int, metadata: str, committed_at_ms: int) -> bytes:
    """int16 version | int64 offset | int32 leader epoch | string metadata | int64 commit timestamp

    Metadata beyond 32,767 bytes, which only a larger `offset.metadata.max.bytes` lets in, is cut: the schema has no
    room for it.
    """
    head = struct.pack(">hqi", _VALUE_VERSION, offset, leader_epoch)
    return head + _string(metadata) + struct.pack(">q", committed_at_ms)


def _string(text: str) -> bytes:
    content = text.encode("utf-8", "surrogatepass")
    if len(content) > _MAX_STRING_BYTES:
        content = content[:_MAX_STRING_BYTES].decode("utf-8", "ignore").encode()
    return struct.pack(">h", len(content)) + content
