"""What SQL keeps of a stable group's members, and the way back.

Owns the bound on its size, and what a group is worth whose bytes cannot be read: it is empty, and its members join
anew. Must never keep or change a group: the two kinds of groups do.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

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
from tiered.rules.groups.consumer_group import ConsumerGroupState
from tiered.rules.groups.consumer_member import NO_PATTERN, ClassicFacts, Member, Pattern
from tiered.rules.security.principal import Principal

log = logging.getLogger(__name__)

KeptGroup = KeptClassicGroup | KeptConsumerGroup

MAX_BYTES = 4 << 20
"""Before packing, by what clients can make large: it is made and read in one go. A thousand consumers take a tenth."""
_MEMBER_BYTES, _NAME_BYTES, _PARTITION_BYTES = 500, 10, 8


def read(stored: GroupRow) -> KeptGroup | None:
    """The group's members; None where it has none that are stored, or (which is logged) none that can be read."""
    if stored.members is None:
        return None
    try:
        found = (
            decode_consumer_group(stored.members)
            if stored.kind == GroupKind.CONSUMER
            else decode_classic_group(stored.members)
        )
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
    group_id: str, *, generation: int, protocol_name: str, leader: str, members: Sequence[ClassicMember]
) -> bytes | None:
    """The bytes for SQL; None where they would be too many."""
    size_bytes = sum(
        _MEMBER_BYTES + len(member.assignment) + sum(len(each.metadata) + _MEMBER_BYTES for each in member.protocols)
        for member in members
    )
    return _encoded(
        group_id,
        size_bytes,
        lambda: encode_classic_group(
            KeptClassicGroup(
                generation=generation,
                protocol_name=protocol_name,
                leader=leader,
                members=tuple(_kept_classic(member) for member in members),
            )
        ),
    )


def _kept_classic(member: ClassicMember) -> KeptClassicMember:
    return KeptClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=_kept_protocols((each.name, each.metadata) for each in member.protocols),
        assignment=member.assignment,
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


def of_consumer(group_id: str, state: ConsumerGroupState) -> bytes | None:
    """The bytes for SQL; None where they would be too many."""
    size_bytes = 0
    for member in state:
        size_bytes += _MEMBER_BYTES + sum(len(name) + _NAME_BYTES for name in member.topics)
        size_bytes += sum(_PARTITION_BYTES * len(held) + _MEMBER_BYTES for held in member.assigned.values())
        if member.classic is not None:
            size_bytes += sum(len(metadata) + _MEMBER_BYTES for _, metadata in member.classic.protocols)
    return _encoded(
        group_id,
        size_bytes,
        lambda: encode_consumer_group(
            KeptConsumerGroup(
                epoch=state.epoch,
                assignor=state.assignor,
                topics_hash=state.topics_hash,
                members=tuple(_kept_member(member) for member in state),
            )
        ),
    )


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


def _encoded(group_id: str, size_bytes: int, encode: Callable[[], bytes]) -> bytes | None:
    try:
        if size_bytes <= MAX_BYTES:
            return encode()
    except CorruptObject:
        pass  # JSON writes a character in up to six.
    log.warning("group %s: its members are too large to be stored; with another coordinator they join anew", group_id)
    return None
