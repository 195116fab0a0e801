"""Members of the classic protocol in a KIP-848 group, while applications are upgraded (or back).

Owns what JoinGroup, SyncGroup, Heartbeat and LeaveGroup mean there. The broker assigns, for them as for the others:
their subscription says what they want and still own, their SyncGroup brings what they may use, and a Heartbeat
tells them to join again when that changes. Must never await anything.
"""

from dataclasses import replace

from tiered.broker.groups import stored_members
from tiered.broker.groups.classic_member import new_member_id
from tiered.broker.groups.consumer_group import ConsumerGroup
from tiered.broker.groups.surroundings import Surroundings
from tiered.broker.groups.values import JoinRequest, JoinResult, LeavingMember, SyncRequest, SyncResult
from tiered.errors import (
    FencedInstance,
    IllegalGeneration,
    InconsistentProtocol,
    MalformedRequest,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from tiered.rules.groups.consumer_member import NO_PATTERN, ClassicFacts, Member, MemberState
from tiered.wire import consumer_protocol
from tiered.wire.consumer_protocol import Assignment, Subscription


def join(coordinator: Surroundings, group: ConsumerGroup, request: JoinRequest) -> JoinResult | None:
    """The answer, at once: no member waits for others here. None when the group has turned classic on the way.

    Raises InconsistentProtocol, MemberIdRequired, FencedInstance, GroupFull, CoordinatorNotAvailable.
    """
    subscription = _subscription(group, request)
    group.look_at_topics()
    epoch = group.state.epoch
    member = _joining(group, request)
    others = [each for each in group.state if each.member_id != member.member_id]
    if len(others) < len(group.state) and all(each.classic is not None for each in others):
        # With a static member that comes back the last one of the new protocol has gone.
        group.state.put(replace(member, classic=_facts(request)))
        coordinator.consumer.turn_classic(group, generation=epoch)
        return None
    group.subscribe(
        replace(
            member,
            rack=subscription.rack,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=frozenset(subscription.topics),
            pattern=NO_PATTERN,
            assignor=None,
            classic=_facts(request),
        )
    )
    after = group.state.reconcile(member.member_id, coordinator.consumer.by_id(subscription.owned_partitions))
    group.timers.touch(after.member_id, request.session_timeout_ms)
    # It has to fetch its assignment within its rebalance time-out.
    group.timers.met(after.member_id)
    group.timers.expect(after.member_id, after.epoch, request.rebalance_timeout_ms)
    group.note(has_changed=stored_members.is_other(member, after))
    return JoinResult(
        generation=after.epoch,
        protocol_type=consumer_protocol.PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        leader="",
        member_id=after.member_id,
    )


def sync(coordinator: Surroundings, group: ConsumerGroup, request: SyncRequest) -> SyncResult:
    """The member's own assignment. Raises UnknownMember, FencedInstance, IllegalGeneration, InconsistentProtocol,
    RebalanceInProgress."""
    member, facts = _known(group, request.member_id, request.instance_id, request.generation)
    protocol_name = facts.protocols[0][0]
    if request.protocol_type not in (None, consumer_protocol.PROTOCOL_TYPE) or request.protocol_name not in (
        None,
        protocol_name,
    ):
        raise InconsistentProtocol(f"the member runs {protocol_name!r} in group {group.group_id}; join it again")
    group.timers.touch(member.member_id, facts.session_timeout_ms)
    if member.epoch < group.state.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        raise RebalanceInProgress("the group is rebalancing; join again")
    group.timers.met(member.member_id)
    if facts.must_sync:
        group.state.put(replace(member, classic=replace(facts, must_sync=False)))
    return SyncResult(
        protocol_type=consumer_protocol.PROTOCOL_TYPE,
        protocol_name=protocol_name,
        assignment=consumer_protocol.encode_assignment(
            Assignment(partitions=coordinator.consumer.named(member.assigned), version=_version(facts))
        ),
    )


def heartbeat(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> None:
    """Raises UnknownMember, FencedInstance, IllegalGeneration, and RebalanceInProgress when it has to join again."""
    member, facts = _known(group, member_id, instance_id, generation)
    group.timers.touch(member_id, facts.session_timeout_ms)
    group.look_at_topics()
    group.make_due_target()
    group.note(has_changed=False)
    if group.state.must_rejoin(group.state.member(member_id)):
        group.timers.expect(member_id, member.epoch, member.rebalance_timeout_ms)
        raise RebalanceInProgress("the member's partitions change; join again")


def leave(group: ConsumerGroup, leaving: LeavingMember) -> None:
    """Of a member of either protocol: tools send LeaveGroup for both. Raises UnknownMember, FencedInstance."""
    if leaving.instance_id is None or leaving.member_id:
        member = group.state.known(leaving.member_id, leaving.instance_id)
    else:
        found = group.state.instance(leaving.instance_id)
        if found is None:
            raise UnknownMember(f"group {group.group_id} has no static member {leaving.instance_id}")
        member = found
    group.remove(member.member_id)


def _joining(group: ConsumerGroup, request: JoinRequest) -> Member:
    """The joining member: a known one, a static one that is back, or a new one. Raises as `join` does."""
    state, instance_id = group.state, request.instance_id
    known = None if instance_id is None else state.instance(instance_id)
    if known is not None and instance_id is not None:
        if request.member_id == known.member_id:
            return known
        if request.member_id:
            raise FencedInstance(f"another process has taken over the instance id {instance_id!r}; stop this one")
        return group.take_over_static(known, new_member_id(instance_id), request.session_timeout_ms)
    if not request.member_id:
        member_id = new_member_id(instance_id or request.client_id)
        if request.requires_known_member_id and instance_id is None:
            raise MemberIdRequired("join again with the member id that you were given", member_id=member_id)
    else:
        member_id = request.member_id
        found = state.find(member_id)
        if found is not None:
            if found.classic is None or found.instance_id != instance_id:
                raise UnknownMember(f"member id {member_id} is in use otherwise; join again without one")
            return found
    group.check_room()
    return Member(member_id=member_id, instance_id=instance_id)


def _known(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[Member, ClassicFacts]:
    member = group.state.known(member_id, instance_id)
    if member.classic is None:
        raise UnknownMember(f"member {member_id} has changed to the consumer protocol; send it ConsumerGroupHeartbeat")
    if member.epoch != generation:
        raise IllegalGeneration(f"member {member_id} is at generation {member.epoch}, not {generation}; join again")
    return member, member.classic


def _subscription(group: ConsumerGroup, request: JoinRequest) -> Subscription:
    if request.protocol_type != consumer_protocol.PROTOCOL_TYPE:
        raise InconsistentProtocol(
            f"group {group.group_id} has protocol type {consumer_protocol.PROTOCOL_TYPE!r}, not "
            f"{request.protocol_type!r}; join another group"
        )
    offered = frozenset(protocol.name for protocol in request.protocols)
    others = [
        frozenset(name for name, _ in member.classic.protocols)
        for member in group.state
        if member.classic is not None and member.member_id != request.member_id
    ]
    if others and not offered.intersection(*others):
        raise InconsistentProtocol(
            f"none of the protocols {', '.join(sorted(offered))[:200]!r} is supported by all classic members of group "
            f"{group.group_id}; give the member one that they have (partition.assignment.strategy)"
        )
    try:
        return consumer_protocol.decode_subscription(request.protocols[0].metadata)
    except MalformedRequest as error:
        raise InconsistentProtocol(f"the member's subscription: {error}") from error


def _facts(request: JoinRequest) -> ClassicFacts:
    return ClassicFacts(
        session_timeout_ms=request.session_timeout_ms,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        must_sync=True,
    )


def _version(facts: ClassicFacts) -> int:
    """Of the consumer protocol, as the member speaks it."""
    return min(consumer_protocol.decode_subscription(facts.protocols[0][1]).version, consumer_protocol.HIGHEST_VERSION)
