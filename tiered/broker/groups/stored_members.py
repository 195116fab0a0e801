"""What SQL keeps of a stable group's members, and the way back.

Owns the bound on its size, and what a group is worth whose bytes cannot be read: it is empty, and its members join
anew. Must never keep or change a group: the two kinds of groups do. Bytes are made and read on a thread, because it
takes long; what they are made of cannot change meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import starmap

from tiered.broker.groups.classic_member import ClassicMember
from tiered.broker.groups.patterns import compiled
from tiered.broker.groups.values import GroupKind, JoinRequest, MemberProtocol
from tiered.errors import CorruptObject, InvalidRegularExpression
from tiered.formats.group_members import (
    KeptClassicFacts,
    KeptClassicGroup,
    KeptClassicMember,
    KeptConsumerGroup,
    KeptConsumerMember,
    KeptPartitions,
    KeptPattern,
    KeptProtocol,
    decode_classic_group,
    decode_consumer_group,
    encode_classic_group,
    encode_consumer_group,
)
from tiered.ids import TopicId
from tiered.meta.groups import GroupRow
from tiered.rules.groups.assignors import NO_PARTITIONS
from tiered.rules.groups.consumer_group import ConsumerGroupState, hash_of
from tiered.rules.groups.consumer_member import NO_PATTERN, ClassicFacts, Member, Pattern
from tiered.rules.security.principal import Principal

log = logging.getLogger(__name__)

KeptGroup = KeptClassicGroup | KeptConsumerGroup

MAX_BYTES = 2 << 20
"""Before packing. Of a thousand consumers each may have twenty topics."""
_MEMBER_BYTES, _TOPIC_BYTES, _PARTITION_BYTES, _TEXT_BYTES = 400, 70, 8, 3
_ESCAPED_BYTES = 12
"""JSON's longest form of a character that ASCII has not, or does not print."""


Encode = Callable[[], bytes | None]
"""Makes the bytes of a group's members as they were at one moment; None (which is logged) where they are too many."""


async def read(stored: GroupRow) -> KeptGroup | None:
    """The group's members; None where it has none that are stored, or (which is logged) none that can be read."""
    if stored.members is None:
        return None
    try:
        decode = decode_consumer_group if stored.kind == GroupKind.CONSUMER else decode_classic_group
        found: KeptGroup = await asyncio.to_thread(decode, stored.members)
        number = found.epoch if isinstance(found, KeptConsumerGroup) else found.generation
        if number != stored.generation:
            # An older version of this program, which knows nothing of members, has gone on with the group.
            raise CorruptObject(f"they are of generation {number}, and the group is at {stored.generation}")
        for pattern in patterns(found):
            compiled(pattern.text)
        return found
    except (CorruptObject, InvalidRegularExpression) as error:
        log.warning("group %s: its stored members cannot be read, so all join anew: %s", stored.group_id, error)
        return None


def patterns(kept: KeptGroup | None) -> frozenset[Pattern]:
    """Every pattern that a member subscribes to."""
    if not isinstance(kept, KeptConsumerGroup):
        return frozenset()
    return frozenset(_pattern(member.pattern) for member in kept.members if member.pattern is not None)


# Classic groups


def of_classic(
    group_id: str, *, generation: int, protocol_name: str, leader: str, members: Iterable[ClassicMember]
) -> Encode:
    """What SQL is to get."""
    now = [(member.member_id, member.request, member.assignment) for member in members]

    def encode() -> bytes | None:
        if not _are_within_bound(group_id, starmap(_classic_bytes, now)):
            return None
        kept = tuple(starmap(_kept_classic, now))
        return encode_classic_group(
            KeptClassicGroup(generation=generation, protocol_name=protocol_name, leader=leader, members=kept)
        )

    return encode


def _classic_bytes(member_id: str, request: JoinRequest, assignment: bytes) -> int:
    return (
        _MEMBER_BYTES
        + sum(map(_text_bytes, (member_id, request.instance_id, request.client_id, request.client_host)))
        + _binary_bytes(assignment)
        + _protocols_bytes((each.name, each.metadata) for each in request.protocols)
    )


def _kept_classic(member_id: str, request: JoinRequest, assignment: bytes) -> KeptClassicMember:
    return KeptClassicMember(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=_kept_protocols((each.name, each.metadata) for each in request.protocols),
        assignment=assignment,
    )


def join_request(stored: GroupRow, member: KeptClassicMember) -> JoinRequest:
    """The member as it had joined."""
    return JoinRequest(
        group_id=stored.group_id,
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocol_type=stored.protocol_type,
        protocols=tuple(MemberProtocol(name=each.name, metadata=each.metadata) for each in member.protocols),
        requires_known_member_id=True,
        supports_skipping_assignment=True,
    )


# KIP-848 groups


def of_consumer(group_id: str, state: ConsumerGroupState) -> Encode:
    """What SQL is to get."""
    epoch, assignor, subscribed, members = state.epoch, state.assignor, state.subscribed, tuple(state)

    def encode() -> bytes | None:
        if not _are_within_bound(group_id, map(_consumer_bytes, members)):
            return None
        return encode_consumer_group(
            KeptConsumerGroup(
                epoch=epoch,
                assignor=assignor,
                topics_hash=hash_of(subscribed),
                members=tuple(map(_kept_member, members)),
            )
        )

    return encode


def _consumer_bytes(member: Member) -> int:
    ids = (member.member_id, member.instance_id, member.rack, member.client_id, member.client_host, member.pattern.text)
    names = "".join(member.topics)  # in one go: there may be thousands
    classic = () if member.classic is None else member.classic.protocols
    return (
        _MEMBER_BYTES
        + sum(map(_text_bytes, ids))
        + _text_bytes(names)
        + _TEXT_BYTES * len(member.topics)
        + sum(_TOPIC_BYTES + _PARTITION_BYTES * len(held) for held in member.assigned.values())
        + _protocols_bytes(classic)
    )


def is_other(before: Member, after: Member) -> bool:
    """Whether the next coordinator would have to know: not for a mere sign of life."""
    return _stored_of(before) != _stored_of(after)


def _stored_of(member: Member) -> Member:
    classic = None if member.classic is None else replace(member.classic, must_sync=False)
    return replace(member, unconfirmed=NO_PARTITIONS, classic=classic)


def _kept_member(member: Member) -> KeptConsumerMember:
    pattern, principal = member.pattern, member.pattern.principal
    return KeptConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack=member.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=tuple(sorted(member.topics)),
        pattern=(
            KeptPattern(
                text=pattern.text,
                host=pattern.host,
                principal_kind=None if principal is None else principal.kind,
                principal_name=None if principal is None else principal.name,
            )
            if pattern
            else None
        ),
        assignor=member.assignor,
        epoch=member.epoch,
        previous_epoch=member.previous_epoch,
        assigned=tuple(
            KeptPartitions(topic_id=topic_id, partitions=tuple(sorted(held)))
            for topic_id, held in sorted(member.assigned.items())
        ),
        classic=(
            KeptClassicFacts(
                session_timeout_ms=member.classic.session_timeout_ms,
                protocols=_kept_protocols(member.classic.protocols),
            )
            if member.classic is not None
            else None
        ),
    )


def consumer_members(kept: KeptConsumerGroup) -> list[Member]:
    """The members as they were. Whether each has taken all that it was given is not known any more."""
    return [_member(each) for each in kept.members]


def _member(kept: KeptConsumerMember) -> Member:
    assigned = {TopicId(each.topic_id): frozenset(each.partitions) for each in kept.assigned if each.partitions}
    return Member(
        member_id=kept.member_id,
        instance_id=kept.instance_id,
        rack=kept.rack,
        client_id=kept.client_id,
        client_host=kept.client_host,
        rebalance_timeout_ms=kept.rebalance_timeout_ms,
        topics=frozenset(kept.topics),
        pattern=_pattern(kept.pattern),
        assignor=kept.assignor,
        epoch=kept.epoch,
        previous_epoch=kept.previous_epoch,
        assigned=assigned,
        unconfirmed=assigned,
        classic=(
            ClassicFacts(
                session_timeout_ms=kept.classic.session_timeout_ms,
                protocols=tuple((each.name, each.metadata) for each in kept.classic.protocols),
            )
            if kept.classic is not None
            else None
        ),
    )


def _pattern(kept: KeptPattern | None) -> Pattern:
    if kept is None:
        return NO_PATTERN
    is_named = kept.principal_kind is not None and kept.principal_name is not None
    principal = Principal(kept.principal_kind or "", kept.principal_name or "") if is_named else None
    return Pattern(kept.text, principal, kept.host)


def _kept_protocols(protocols: Iterable[tuple[str, bytes]]) -> tuple[KeptProtocol, ...]:
    return tuple(KeptProtocol(name=name, metadata=metadata) for name, metadata in protocols)


# Sizes: never much less than what JSON takes


def _are_within_bound(group_id: str, sizes_bytes: Iterable[int]) -> bool:
    left_bytes = MAX_BYTES
    for size_bytes in sizes_bytes:
        left_bytes -= size_bytes
        if left_bytes < 0:
            log.warning(
                "group %s: its members are too many to be stored; with another coordinator all join anew", group_id
            )
            return False
    return True


def _text_bytes(text: str | None) -> int:
    if text is None:
        return 0
    return _TEXT_BYTES + len(text) * (1 if text.isascii() and text.isprintable() else _ESCAPED_BYTES)


def _binary_bytes(data: bytes) -> int:
    return _TEXT_BYTES + len(data) * 4 // 3


def _protocols_bytes(protocols: Iterable[tuple[str, bytes]]) -> int:
    return sum(_TOPIC_BYTES + _text_bytes(name) + _binary_bytes(metadata) for name, metadata in protocols)
