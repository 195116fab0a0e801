"""The checkpoint of consumer groups: what the groups of one coordinator slot have committed.

Owns the values and their bytes (`checkpoint_bytes`, golden file `group_checkpoint.v1.json`). SQL is the authority
while it answers; this follows it some seconds later, and only a restore reads it.

Migration: a reader refuses formats that it does not know, and skips members that it does not know. Offsets below 0 are
new in format 1: readers before them call such a checkpoint corrupt.
"""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tiered.formats.checkpoint_bytes import encode_checkpoint, read_members
from tiered.formats.json_fields import MAX_EPOCH, MAX_INT, MAX_NUMBER

_FORMAT: Final = "tiered.group-checkpoint/1"
_MAX_TEXT_CHARS: Final = 64 * 1024
_MIN_OFFSET: Final = -(2**63)
MAX_SLOTS: Final = 100_000
"""A restore writes a row for each of them: one number must not keep it forever."""
GROUP_KINDS: Final = ("classic", "consumer")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOffset:
    """The next offset that a group reads of a partition, or what its client means by one below 0.

    `leader_epoch` is -1 while unknown.
    """

    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEntry:
    """A group as SQL knew it, with its offsets by topic id and partition."""

    group_id: str
    kind: str
    protocol_type: str
    generation: int
    offsets: tuple[StoredOffset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCheckpoint:
    """All groups of one of `slot_count` slots. A writer replaces one only under the same or a greater `slot_epoch`.

    Where not all of them fit, `left_out` says how many groups are missing.
    """

    cluster_id: str
    slot: int
    slot_count: int
    slot_epoch: int
    groups: tuple[GroupEntry, ...]
    left_out: int = 0


def encode_group_checkpoint(checkpoint: GroupCheckpoint) -> bytes:
    """The bytes of one; equal checkpoints give equal bytes."""
    return encode_checkpoint(_FORMAT, checkpoint)


def decode_group_checkpoint(data: bytes | bytearray | memoryview) -> GroupCheckpoint:
    """The checkpoint in an object's bytes. Raises CorruptObject: not one, altered or cut off."""
    fields = read_members(data, _FORMAT)
    return GroupCheckpoint(
        cluster_id=fields.text("cluster_id", max_chars=_MAX_TEXT_CHARS),
        slot=fields.integer("slot", maximum=MAX_SLOTS - 1),
        slot_count=fields.integer("slot_count", minimum=1, maximum=MAX_SLOTS),
        slot_epoch=fields.integer("slot_epoch", maximum=MAX_NUMBER),
        left_out=fields.integer("left_out"),
        groups=tuple(
            GroupEntry(
                group_id=group.text("group_id", max_chars=_MAX_TEXT_CHARS),
                kind=group.word("kind", GROUP_KINDS),
                protocol_type=group.text("protocol_type", max_chars=_MAX_TEXT_CHARS),
                generation=group.integer("generation", minimum=-1, maximum=MAX_EPOCH),
                offsets=tuple(
                    StoredOffset(
                        topic_id=each.uuid("topic_id"),
                        partition=each.integer("partition", maximum=MAX_INT),
                        offset=each.integer("offset", minimum=_MIN_OFFSET),
                        leader_epoch=each.integer("leader_epoch", minimum=-1, maximum=MAX_INT),
                        metadata=each.text("metadata", max_chars=_MAX_TEXT_CHARS),
                        committed_at_ms=each.integer("committed_at_ms"),
                    )
                    for each in group.objects("offsets")
                ),
            )
            for group in fields.objects("groups")
        ),
    )
