"""Groups from outside: list, describe, read and move their offsets, delete them. For tools, not for members.

Owns what these requests mean across versions and kinds of group. Keeps nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tiered import errors
from tiered.peer.answers import require_success, the_only
from tiered.peer.cluster import Cluster
from tiered.peer.coordinator import Coordinator
from tiered.peer.topology import TopicPartition, numbers_by_topic
from tiered.wire import consumer_protocol
from tiered.wire.error_codes import GROUP_ID_NOT_FOUND

OFFSET_COMMIT, OFFSET_FETCH, DESCRIBE_GROUPS, LIST_GROUPS = 8, 9, 15, 16
DELETE_GROUPS, OFFSET_DELETE, CONSUMER_GROUP_DESCRIBE = 42, 47, 69
_LAST_BY_NAME = 9
"""Of OffsetCommit and OffsetFetch: later versions name topics by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """One group of a list. `kind` is `classic` or `consumer` (KIP-848), `state` Kafka's name of it; each is empty
    where the broker is too old to say it."""

    group_id: str
    kind: str
    state: str
    protocol_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member; `assignment` is empty where its protocol is not known here."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A group with its members. `assignor` is the one that it uses now, empty where it has none."""

    group_id: str
    kind: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[DescribedMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """The committed offset of a group in one partition."""

    offset: int
    metadata: str


async def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """The groups of all brokers, by id: each broker knows those that it coordinates."""
    described = await cluster.metadata([])
    found: dict[str, ListedGroup] = {}
    for broker_id in sorted(described.brokers):
        answer = await cluster.request(
            LIST_GROUPS, lambda make: make.ListGroupsRequest(states_filter=(), types_filter=()), broker_id=broker_id
        )
        require_success(answer, f"broker {broker_id} did not list its groups")
        for each in answer.groups:
            found[each.group_id] = ListedGroup(
                group_id=each.group_id,
                kind=getattr(each, "group_type", "").lower(),
                state=getattr(each, "group_state", ""),
                protocol_type=each.protocol_type,
            )
    return [found[group_id] for group_id in sorted(found)]


async def describe_group(cluster: Cluster, group_id: str) -> DescribedGroup:
    """The group, whichever protocol it runs. Raises GroupNotFound."""
    async with Coordinator(cluster, group_id) as coordinator:
        # As a KIP-848 group first: an old broker, and one that has a classic group, say so.
        try:
            found = await _describe_consumer(coordinator)
        except errors.UnsupportedVersion:
            found = None
        return found or await _describe_classic(coordinator)


async def _describe_consumer(coordinator: Coordinator) -> DescribedGroup | None:
    answer = await coordinator.ask(
        CONSUMER_GROUP_DESCRIBE,
        lambda make: make.ConsumerGroupDescribeRequest(
            group_ids=(coordinator.group_id,), include_authorized_operations=False
        ),
        _codes_of_groups,
    )
    found = the_only(answer.groups, "group")
    if found.error_code == GROUP_ID_NOT_FOUND:
        return None
    require_success(found, f"group {coordinator.group_id} was not described")
    return DescribedGroup(
        group_id=coordinator.group_id,
        kind="consumer",
        state=found.group_state,
        protocol_type=consumer_protocol.PROTOCOL_TYPE,
        assignor=found.assignor_name,
        members=tuple(
            _member(
                each, each.instance_id, {its.topic_name: its.partitions for its in each.assignment.topic_partitions}
            )
            for each in found.members
        ),
    )


async def _describe_classic(coordinator: Coordinator) -> DescribedGroup:
    answer = await coordinator.ask(
        DESCRIBE_GROUPS,
        lambda make: make.DescribeGroupsRequest(groups=(coordinator.group_id,), include_authorized_operations=False),
        _codes_of_groups,
    )
    found = the_only(answer.groups, "group")
    # Up to version 5 a group that does not exist is Dead.
    if found.error_code == GROUP_ID_NOT_FOUND or (not found.error_code and found.group_state == "Dead"):
        raise errors.GroupNotFound(f"there is no group {coordinator.group_id}")
    require_success(found, f"group {coordinator.group_id} was not described")
    return DescribedGroup(
        group_id=coordinator.group_id,
        kind="classic",
        state=found.group_state,
        protocol_type=found.protocol_type,
        assignor=found.protocol_data,
        members=tuple(
            _member(
                each, getattr(each, "group_instance_id", None), _assignment(found.protocol_type, each.member_assignment)
            )
            for each in found.members
        ),
    )


def _member(told: Any, instance_id: str | None, assignment: Mapping[str, Sequence[int]]) -> DescribedMember:
    return DescribedMember(
        member_id=told.member_id,
        instance_id=instance_id,
        client_id=told.client_id,
        client_host=told.client_host,
        assignment={topic: tuple(partitions) for topic, partitions in assignment.items()},
    )


def _assignment(protocol_type: str, data: bytes) -> Mapping[str, tuple[int, ...]]:
    if protocol_type != consumer_protocol.PROTOCOL_TYPE or not data:
        return {}
    try:
        return consumer_protocol.decode_assignment(bytes(data)).partitions
    except errors.MalformedRequest:
        return {}  # Clients may send what they like; what cannot be read is not shown.


async def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    """All committed offsets of the group; empty where there is no such group."""
    async with Coordinator(cluster, group_id) as coordinator:
        return await fetch_committed(coordinator)


async def fetch_committed(coordinator: Coordinator, *, stable: bool = False) -> dict[TopicPartition, CommittedOffset]:
    """As `committed_offsets`, of a coordinator that is known. With `stable`, offsets that a transaction may still

    change are an error that passes.
    """

    def build(make: Any) -> Any:
        group = make.OffsetFetchRequestGroup(
            group_id=coordinator.group_id, member_id=None, member_epoch=-1, topics=None
        )
        return make.OffsetFetchRequest(
            group_id=coordinator.group_id, topics=None, groups=(group,), require_stable=stable
        )

    answer = await coordinator.ask(
        OFFSET_FETCH, build, lambda each: [_of_group(each).error_code], at_most=_LAST_BY_NAME
    )
    found = _of_group(answer)
    if found.error_code != GROUP_ID_NOT_FOUND:
        require_success(found, f"the offsets of group {coordinator.group_id} were not read")
    committed = {}
    for topic in found.topics:
        for each in topic.partitions:
            require_success(each, f"the offset of {topic.name}-{each.partition_index} was not read")
            if each.committed_offset >= 0:
                committed[topic.name, each.partition_index] = CommittedOffset(
                    offset=each.committed_offset,
                    metadata=each.metadata or "",
                )
    return committed


def _of_group(answer: Any) -> Any:
    """Up to version 7 an answer is that of its one group."""
    return the_only(answer.groups, "group") if hasattr(answer, "groups") else answer


async def commit_offsets(
    coordinator: Coordinator,
    offsets: Mapping[TopicPartition, int],
    *,
    member_id: str = "",
    instance_id: str | None = None,
    generation: int = -1,
) -> dict[TopicPartition, int]:
    """The error code of each partition: without a member the group must have none."""

    def build(make: Any) -> Any:
        topics = tuple(
            make.OffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    make.OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offsets[topic, partition],
                        committed_leader_epoch=-1,
                        committed_metadata="",
                    )
                    for partition in partitions
                ),
            )
            for topic, partitions in numbers_by_topic(offsets).items()
        )
        return make.OffsetCommitRequest(
            group_id=coordinator.group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time=-1,
            topics=topics,
        )

    answer = await coordinator.ask(
        OFFSET_COMMIT, build, lambda told: _codes_by_partition(told).values(), at_most=_LAST_BY_NAME
    )
    return _codes_by_partition(answer)


async def move_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Commits for a group without members; the error code of each partition."""
    async with Coordinator(cluster, group_id) as coordinator:
        return await commit_offsets(coordinator, offsets)


async def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Forgets these offsets; the error code of each. Raises BrokerError where the whole group is refused."""
    wanted = numbers_by_topic(partitions)

    def build(make: Any) -> Any:
        topics = tuple(
            make.OffsetDeleteRequestTopic(
                name=topic,
                partitions=tuple(make.OffsetDeleteRequestPartition(partition_index=number) for number in numbers),
            )
            for topic, numbers in wanted.items()
        )
        return make.OffsetDeleteRequest(group_id=group_id, topics=topics)

    async with Coordinator(cluster, group_id) as coordinator:
        answer = await coordinator.ask(OFFSET_DELETE, build, lambda each: [each.error_code])
    require_success(answer, f"the offsets of group {group_id} were not deleted")
    return _codes_by_partition(answer)


async def delete_group(cluster: Cluster, group_id: str) -> int:
    """The error code: 0 when the group with all its offsets is gone."""
    async with Coordinator(cluster, group_id) as coordinator:
        answer = await coordinator.ask(
            DELETE_GROUPS,
            lambda make: make.DeleteGroupsRequest(groups_names=(group_id,)),
            lambda each: [result.error_code for result in each.results],
        )
    return int(the_only(answer.results, "group").error_code)


def _codes_of_groups(answer: Any) -> Sequence[int]:
    return [each.error_code for each in answer.groups]


def _codes_by_partition(answer: Any) -> dict[TopicPartition, int]:
    return {
        (topic.name, each.partition_index): int(each.error_code) for topic in answer.topics for each in topic.partitions
    }
