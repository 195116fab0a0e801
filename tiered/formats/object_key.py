"""The names of objects in the bucket, relative to the store's prefix.

Owns every key that is ever written, and what a key says. Must never be the authority on what exists: SQL and
the checkpoints are; a key found by listing is a hint that must be looked up there.

    segments/<h4>/<topic>_<topic_id>/<partition>/<base:020>-<end:020>-e<epoch>-<uuid>.seg
    checkpoints/cluster.json
    checkpoints/alive/<cluster id>/<broker id>
    checkpoints/groups/<slot>.json
    checkpoints/partitions/<topic_id>/<partition>/head.json
    checkpoints/partitions/<topic_id>/<partition>/pages/<first base:020>-<16 digits of its hash>.json

`h4` is the first four hexadecimal digits of SHA-256 over the topic id's 16 bytes and the partition as four
big-endian bytes: it spreads partitions over the store's own partitions, and still keeps all segments of one
partition under one prefix, so that they can be listed together. The uuid is new for every upload, so a key
is never written twice. Decision 0004.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tiered.errors import CorruptObject
from tiered.ids import is_legal_topic_name

SEGMENTS_PREFIX: Final = "segments/"
CHECKPOINTS_PREFIX: Final = "checkpoints/"
PARTITION_CHECKPOINTS_PREFIX: Final = "checkpoints/partitions/"
GROUP_CHECKPOINTS_PREFIX: Final = "checkpoints/groups/"
_SIGNS_PREFIX: Final = "checkpoints/alive/"

_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SEGMENT = re.compile(
    rf"segments/([0-9a-f]{{4}})/([a-zA-Z0-9._-]{{1,249}})_({_UUID})/(0|[1-9][0-9]{{0,9}})"
    rf"/([0-9]{{20}})-([0-9]{{20}})-e(0|[1-9][0-9]{{0,9}})-({_UUID})\.seg\Z"
)
_HEAD = re.compile(rf"checkpoints/partitions/({_UUID})/(0|[1-9][0-9]{{0,9}})/head\.json\Z")
_GROUPS = re.compile(r"checkpoints/groups/(0|[1-9][0-9]{0,9})\.json\Z")
_SIGN = re.compile(r"checkpoints/alive/[^/]+/(0|[1-9][0-9]{0,9})\Z")
_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentKey:
    """The facts in a segment's key. `end_offset` is exclusive."""

    topic: str
    topic_id: UUID
    partition: int
    base_offset: int
    end_offset: int
    leader_epoch: int
    object_id: UUID


def segment_key(
    topic: str,
    topic_id: UUID,
    partition: int,
    base_offset: int,
    end_offset: int,
    leader_epoch: int,
    object_id: UUID,
) -> str:
    """The key of one upload of the offsets `base_offset` to `end_offset` (exclusive). At most 440 characters."""
    assert 0 <= base_offset < end_offset, f"{base_offset} to {end_offset}"
    assert leader_epoch >= 0, leader_epoch
    prefix = partition_segments_prefix(topic, topic_id, partition)
    return f"{prefix}{base_offset:020}-{end_offset:020}-e{leader_epoch}-{object_id}.seg"


def partition_segments_prefix(topic: str, topic_id: UUID, partition: int) -> str:
    """The prefix of the keys of all segments of one partition. A listing gives them in order of offsets."""
    assert is_legal_topic_name(topic), topic
    assert partition >= 0, partition
    return f"{SEGMENTS_PREFIX}{_spread(topic_id, partition)}/{topic}_{topic_id}/{partition}/"


def parse_segment_key(key: str) -> SegmentKey:
    """The facts in `key`. Raises CorruptObject when `segment_key` cannot have made it."""
    match = _SEGMENT.match(key)
    if match is None:
        raise CorruptObject(
            f"{key!r} is not the key of a segment; it is nothing of ours, leave it or remove it by hand"
        )
    spread, topic, topic_id, partition, base, end, epoch, object_id = match.groups()
    found = SegmentKey(
        topic=topic,
        topic_id=UUID(topic_id),
        partition=int(partition),
        base_offset=int(base),
        end_offset=int(end),
        leader_epoch=int(epoch),
        object_id=UUID(object_id),
    )
    if (
        not is_legal_topic_name(topic)
        or max(found.partition, found.leader_epoch) > _MAX_INT32
        or not found.base_offset < found.end_offset <= _MAX_INT64
        or spread != _spread(found.topic_id, found.partition)
    ):
        raise CorruptObject(f"{key!r} looks like the key of a segment and contradicts itself")
    return found


def cluster_checkpoint_key() -> str:
    """The key of the one checkpoint that names every topic."""
    return f"{CHECKPOINTS_PREFIX}cluster.json"


def signs_of_life_prefix(cluster_id: str) -> str:
    """The prefix of the keys of all signs of life of a cluster's brokers."""
    return f"{_SIGNS_PREFIX}{cluster_id}/"


def sign_of_life_key(cluster_id: str, broker_id: int) -> str:
    """The key of the object whose age says that the broker lives."""
    return f"{signs_of_life_prefix(cluster_id)}{broker_id}"


def parse_sign_of_life_key(key: str) -> int | None:
    """The broker's id; None for the key of anything else."""
    match = _SIGN.match(key)
    return None if match is None else int(match[1])


def group_checkpoint_key(slot: int) -> str:
    """The key of the committed offsets of all groups of one coordinator slot."""
    assert slot >= 0, slot
    return f"{GROUP_CHECKPOINTS_PREFIX}{slot}.json"


def parse_group_checkpoint_key(key: str) -> int | None:
    """The slot; None for the key of anything else."""
    match = _GROUPS.match(key)
    return None if match is None else int(match[1])


def partition_checkpoint_key(topic_id: UUID, partition: int) -> str:
    """The key of a partition's head checkpoint, which is replaced after commits."""
    return f"{partition_checkpoint_prefix(topic_id, partition)}head.json"


def partition_page_key(topic_id: UUID, partition: int, first_base_offset: int, page_sha256_hex: str) -> str:
    """The key of a sealed page: its content decides it, so writing it twice writes the same bytes.

    `page_sha256_hex` is the page's whole hash or at least its first 16 digits.
    """
    assert len(page_sha256_hex) >= 16, page_sha256_hex
    prefix = partition_checkpoint_prefix(topic_id, partition)
    return f"{prefix}pages/{first_base_offset:020}-{page_sha256_hex[:16]}.json"


def partition_checkpoint_prefix(topic_id: UUID, partition: int) -> str:
    """The prefix of the keys of a partition's head and pages."""
    assert partition >= 0, partition
    return f"{PARTITION_CHECKPOINTS_PREFIX}{topic_id}/{partition}/"


def parse_partition_checkpoint_key(key: str) -> tuple[UUID, int] | None:
    """(topic_id, partition) of a head's key; None for the key of a page or of anything else."""
    match = _HEAD.match(key)
    return None if match is None else (UUID(match[1]), int(match[2]))


def _spread(topic_id: UUID, partition: int) -> str:
    return hashlib.sha256(topic_id.bytes + partition.to_bytes(4, "big")).hexdigest()[:4]
