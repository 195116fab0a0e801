"""The members of a stable group as SQL keeps them (`consumer_group.members`): what the next coordinator goes on with.

Owns the values and their bytes: a checkpoint's JSON (`checkpoint_bytes`, golden files `classic_group.v1.bin` and
`consumer_group.v1.bin`), packed with zlib, because members are much alike. Never knows what an assignment means, nor
whether a member still lives.

Migration: a reader refuses formats that it does not know, and skips members that it does not know. Whoever cannot read
the bytes goes on with an empty group, whose members join anew.
"""

import zlib
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tiered.errors import CorruptObject
from tiered.formats.checkpoint_bytes import MAX_CHECKPOINT_BYTES, encode_checkpoint, read_members
from tiered.formats.json_fields import MAX_INT, Fields

CLASSIC_FORMAT: Final = "tiered.classic-group/1"
CONSUMER_FORMAT: Final = "tiered.consumer-group/1"
_MAX_TEXT_CHARS: Final = 64 * 1024
_FASTEST: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptProtocol:
    """A protocol that a classic member supports, best first."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptClassicMember:
    """A member of a classic group, with what the leader assigned to it."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[KeptProtocol, ...]
    assignment: bytes
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptClassicGroup:
    """A classic group of one generation, the oldest member first."""

    generation: int
    protocol_name: str
    leader: str
    members: tuple[KeptClassicMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPattern:
    """A member's regular expression of topics, and whose rights decide which of them it gets."""

    text: str
    host: str
    principal_kind: str | None = None
    principal_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPartitions:
    """Partitions of one topic."""

    topic_id: UUID
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptClassicFacts:
    """What is known besides of a member of a KIP-848 group that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[KeptProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptConsumerMember:
    """A member of a KIP-848 group that has what the target gives it."""

    member_id: str
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: tuple[str, ...]
    epoch: int
    previous_epoch: int
    assigned: tuple[KeptPartitions, ...]
    instance_id: str | None = None
    rack: str | None = None
    assignor: str | None = None
    pattern: KeptPattern | None = None
    classic: KeptClassicFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptConsumerGroup:
    """A KIP-848 group of one epoch. `topics_hash` says which topics, of how many partitions, its target is about."""

    epoch: int
    assignor: str
    topics_hash: str
    members: tuple[KeptConsumerMember, ...]


def encode_classic_group(group: KeptClassicGroup) -> bytes:
    """Raises CorruptObject for one that no reader would take, because it is too large."""
    return _packed(encode_checkpoint(CLASSIC_FORMAT, group))


def encode_consumer_group(group: KeptConsumerGroup) -> bytes:
    """Raises CorruptObject for one that no reader would take, because it is too large."""
    return _packed(encode_checkpoint(CONSUMER_FORMAT, group))


def _packed(document: bytes) -> bytes:
    if len(document) > MAX_CHECKPOINT_BYTES:
        raise CorruptObject(f"the group's members take {len(document)} bytes, more than {MAX_CHECKPOINT_BYTES}")
    return zlib.compress(document, _FASTEST)


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        document = unpacker.decompress(data, MAX_CHECKPOINT_BYTES + 1)
    except zlib.error as error:
        raise CorruptObject(f"a group's members cannot be unpacked: {error}") from None
    if not unpacker.eof or unpacker.unused_data:
        raise CorruptObject("a group's members are cut off, too many, or not all that there is")
    return document


def decode_classic_group(data: bytes) -> KeptClassicGroup:
    """Raises CorruptObject: not one, altered or cut off; UnknownFormat: of another version."""
    fields = read_members(_unpacked(data), CLASSIC_FORMAT)
    group = KeptClassicGroup(
        generation=fields.integer("generation", maximum=MAX_INT),
        protocol_name=fields.text("protocol_name", max_chars=_MAX_TEXT_CHARS),
        leader=fields.text("leader", max_chars=_MAX_TEXT_CHARS),
        members=tuple(
            KeptClassicMember(
                member_id=member.text("member_id", max_chars=_MAX_TEXT_CHARS),
                instance_id=_optional(member, "instance_id"),
                client_id=member.text("client_id", max_chars=_MAX_TEXT_CHARS),
                client_host=member.text("client_host", max_chars=_MAX_TEXT_CHARS),
                session_timeout_ms=member.integer("session_timeout_ms", maximum=MAX_INT),
                rebalance_timeout_ms=member.integer("rebalance_timeout_ms", minimum=-1, maximum=MAX_INT),
                protocols=_protocols(member),
                assignment=member.binary("assignment"),
            )
            for member in fields.objects("members")
        ),
    )
    ids = _different([member.member_id for member in group.members])
    _different([member.instance_id for member in group.members if member.instance_id is not None])
    names = [{protocol.name for protocol in member.protocols} for member in group.members]
    if group.leader not in ids or not set.intersection(*names) or group.protocol_name not in set.intersection(*names):
        raise CorruptObject("a group's members lack their leader, or what they have in common")
    return group


def decode_consumer_group(data: bytes) -> KeptConsumerGroup:
    """Raises CorruptObject: not one, altered or cut off; UnknownFormat: of another version."""
    fields = read_members(_unpacked(data), CONSUMER_FORMAT)
    group = KeptConsumerGroup(
        epoch=fields.integer("epoch", maximum=MAX_INT),
        assignor=fields.text("assignor", max_chars=_MAX_TEXT_CHARS),
        topics_hash=fields.hexadecimal("topics_hash"),
        members=tuple(
            KeptConsumerMember(
                member_id=member.text("member_id", max_chars=_MAX_TEXT_CHARS),
                instance_id=_optional(member, "instance_id"),
                rack=_optional(member, "rack"),
                client_id=member.text("client_id", max_chars=_MAX_TEXT_CHARS),
                client_host=member.text("client_host", max_chars=_MAX_TEXT_CHARS),
                rebalance_timeout_ms=member.integer("rebalance_timeout_ms", minimum=-1, maximum=MAX_INT),
                topics=member.list_of_texts("topics", max_chars=_MAX_TEXT_CHARS),
                pattern=_pattern(member.object("pattern")) if "pattern" in member else None,
                assignor=_optional(member, "assignor"),
                epoch=member.integer("epoch", minimum=-2, maximum=MAX_INT),
                previous_epoch=member.integer("previous_epoch", minimum=-2, maximum=MAX_INT),
                assigned=tuple(
                    KeptPartitions(topic_id=each.uuid("topic_id"), partitions=each.integers("partitions"))
                    for each in member.objects("assigned")
                ),
                classic=_classic_facts(member.object("classic")) if "classic" in member else None,
            )
            for member in fields.objects("members")
        ),
    )
    if not group.members:
        raise CorruptObject("a group without members has none to keep")
    _different([member.member_id for member in group.members])
    _different([member.instance_id for member in group.members if member.instance_id is not None])
    # A partition that two have would be taken from one of them behind its back.
    _different(
        [
            (each.topic_id, partition)
            for member in group.members
            for each in member.assigned
            for partition in each.partitions
        ]
    )
    return group


def _protocols(fields: Fields) -> tuple[KeptProtocol, ...]:
    found = tuple(
        KeptProtocol(name=each.text("name", max_chars=_MAX_TEXT_CHARS), metadata=each.binary("metadata"))
        for each in fields.objects("protocols")
    )
    if not found:
        raise CorruptObject("a classic member without a protocol")
    return found


def _pattern(fields: Fields) -> KeptPattern:
    return KeptPattern(
        text=fields.text("text", max_chars=_MAX_TEXT_CHARS),
        host=fields.text("host", max_chars=_MAX_TEXT_CHARS),
        principal_kind=_optional(fields, "principal_kind"),
        principal_name=_optional(fields, "principal_name"),
    )


def _classic_facts(fields: Fields) -> KeptClassicFacts:
    return KeptClassicFacts(
        session_timeout_ms=fields.integer("session_timeout_ms", maximum=MAX_INT), protocols=_protocols(fields)
    )


def _optional(fields: Fields, name: str) -> str | None:
    return fields.text(name, max_chars=_MAX_TEXT_CHARS) if name in fields else None


def _different(values: list[object]) -> set[object]:
    found = set(values)
    if len(found) < len(values):
        raise CorruptObject("a group's members have a name, or a partition, twice")
    return found
