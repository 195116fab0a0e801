"""A group changes its protocol while its members go on: classic to KIP-848 with the first new member, and back
with the last. Kafka calls it `group.consumer.migration.policy=bidirectional`.

Owns the two conversions. No member loses a partition by them: it keeps its partitions until a later rebalance takes
them away in the usual way. Must never await anything.
"""

from tiered.broker.groups.classic_group import ClassicGroup
from tiered.broker.groups.classic_member import ClassicMember
from tiered.broker.groups.consumer_group import ConsumerGroup
from tiered.broker.groups.surroundings import Surroundings
from tiered.broker.groups.values import JoinRequest, MemberProtocol
from tiered.errors import GroupNotFound, MalformedRequest, RebalanceInProgress, TieredError
from tiered.rules.groups.assignors import NO_PARTITIONS
from tiered.rules.groups.consumer_member import ClassicFacts, Member
from tiered.wire import consumer_protocol

WITH_HARMLESS_USER_DATA = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""Assignors that clients bring along. What some clients' sticky ones send as user data only says who had what; for
others (Kafka Streams, above all) an assignment without its user data means nothing."""


def to_consumer(coordinator: Surroundings, group: ClassicGroup) -> ConsumerGroup:
    """The same members with the same partitions in the same epoch. `group` is closed: waiting members join again.

    Raises GroupNotFound when the group is none of consumers, or one of its members cannot be understood;
    CoordinatorNotAvailable. `group` then stays as it is.
    """
    if group.protocol_type != consumer_protocol.PROTOCOL_TYPE:
        raise GroupNotFound(
            f"group {group.group_id} has classic members of type {group.protocol_type!r}, not consumers; "
            "use another group id"
        )
    members = [
        _to_consumer(coordinator, group, member)
        for member in group.members.values()
        # A member that was never answered does not know its id: it joins anew.
        if not member.is_new
    ]
    found = ConsumerGroup(coordinator, group.group_id, epoch=group.generation)
    try:
        found.continue_with(members)
    except TieredError:
        found.close()
        raise
    group.close(RebalanceInProgress("the group changes to the consumer protocol; join again"))
    return found


def _to_consumer(coordinator: Surroundings, group: ClassicGroup, member: ClassicMember) -> Member:
    subscription = member.subscription()
    try:
        held = consumer_protocol.decode_assignment(member.assignment) if member.assignment else None
    except MalformedRequest:
        held = None
    is_opaque = held is not None and held.user_data and group.protocol_name not in WITH_HARMLESS_USER_DATA
    if subscription is None or (held is None and member.assignment) or is_opaque:
        raise GroupNotFound(
            f"group {group.group_id}: member {member.member_id} uses an assignor of its own, which the consumer "
            "protocol does not know; give it one of Kafka's, or stop it first"
        )
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack=subscription.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=NO_PARTITIONS if held is None else coordinator.consumer.by_id(held.partitions),
        classic=ClassicFacts(
            session_timeout_ms=member.session_timeout_ms,
            protocols=tuple((protocol.name, protocol.metadata) for protocol in member.protocols),
        ),
    )


def to_classic(coordinator: Surroundings, group: ConsumerGroup, *, generation: int) -> ClassicGroup:
    """The classic members that are left, in a classic group that rebalances. `group` is closed."""
    found = ClassicGroup(
        coordinator, group.group_id, generation=generation, protocol_type=consumer_protocol.PROTOCOL_TYPE
    )
    members = []
    for member in group.state:
        assert member.classic is not None, "only classic members are left"
        request = JoinRequest(
            group_id=group.group_id,
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.classic.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            protocol_type=consumer_protocol.PROTOCOL_TYPE,
            protocols=tuple(
                MemberProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols
            ),
            requires_known_member_id=True,
            supports_skipping_assignment=True,
        )
        members.append(request)
    group.close()
    found.continue_with(members)
    return found
