"""OffsetFetch (key 9), versions 1 to 10: the positions that groups have committed, as SQL has them.

Several groups at once from version 8 on, topics by id from 10 on. Null topics (from version 2 on) mean all. A partition
without a commit has offset -1 and no error, and so is everything of an unknown group. The commits of a group that are
on their way are waited for. Offsets of topics that the client may not describe are not told. While SQL is away the
answer is COORDINATOR_LOAD_IN_PROGRESS: the one code on which every client asks again. An answer has at most 200,000
offsets; what goes beyond is INVALID_REQUEST. With `require_stable` (from version 7 on) a partition for which an open
transaction has sent an offset is UNSTABLE_OFFSET_COMMIT; without it, its last committed offset counts.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, cast

from tiered.broker.groups.committed_offsets import MAX_OFFSETS, OffsetRow, StableOffsets
from tiered.broker.groups.values import GroupKind
from tiered.broker.partitions.topics import Topic
from tiered.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidRequest,
    TieredError,
    UnknownTopicId,
    UnstableOffset,
)
from tiered.ids import TopicPartition
from tiered.rules.security.acl import Operation, ResourceType
from tiered.server.kafka.authorize import may, require_group
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import error_code
from tiered.wire.error_codes import NONE, TOPIC_AUTHORIZATION_FAILED

if TYPE_CHECKING:
    from kafka_messages.offset_fetch import (
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopics,
        Replies,
        Reply,
        Request,
        Response,
    )

FIRST_VERSION_WITH_ERROR = 2
FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10
NO_OFFSET = -1
_UNSTABLE = error_code(UnstableOffset())


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    if context.api_version >= FIRST_VERSION_WITH_GROUPS:
        groups, left = [], MAX_OFFSETS
        async for asked in in_turns(request.groups):
            group, size = await _group(context, reply, asked, left, is_stable=_is_stable(request))
            groups.append(group)
            left -= size
        return reply.OffsetFetchResponse(throttle_time=0, groups=groups)
    names = _Names(reply.OffsetFetchResponseTopic, reply.OffsetFetchResponsePartition, by_id=False)
    code, topics = NONE, list[Any]()
    try:
        topics, _ = await _topics(
            context, names, request.group_id, _asked(request), MAX_OFFSETS, is_stable=_is_stable(request)
        )
    except TieredError as error:
        code = _code(error)
        if context.api_version < FIRST_VERSION_WITH_ERROR:
            topics = _without(names, _asked(request), code)
    return reply.OffsetFetchResponse(throttle_time=0, topics=topics, error_code=code)


def _asked(request: "Request") -> "Sequence[OffsetFetchRequestTopics] | None":
    """The topics in a request before version 8; None for all of them. The two names of kio have the same fields."""
    return cast("Sequence[OffsetFetchRequestTopics] | None", request.topics)


class _Names:
    """kio calls the same structures by other names from version 8 on; from 10 on topics have ids in place of names."""

    def __init__(self, topic: Any, partition: Any, *, by_id: bool) -> None:
        self._topic = topic
        self.partition = partition
        self.by_id = by_id

    def topic(self, name_or_id: Any, partitions: list[Any]) -> Any:
        return self._topic(**{"topic_id" if self.by_id else "name": name_or_id, "partitions": partitions})

    def asked(self, topic: "OffsetFetchRequestTopics") -> Any:
        """The name or id of a topic of the request."""
        return topic.topic_id if self.by_id else topic.name


async def _group(
    context: Context, reply: "Reply", asked: "OffsetFetchRequestGroup", limit: int, *, is_stable: bool
) -> "tuple[Replies.OffsetFetchResponseGroup, int]":
    """(one group's answer, how many offsets it has)"""
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    names = _Names(reply.OffsetFetchResponseTopics, reply.OffsetFetchResponsePartitions, by_id=by_id)
    try:
        require_group(context, Operation.DESCRIBE, asked.group_id)
        await _check_member(context, asked)
        topics, size = await _topics(context, names, asked.group_id, asked.topics, limit, is_stable=is_stable)
        code = NONE
    except TieredError as error:
        topics, size, code = [], 1, _code(error)
    return reply.OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics, error_code=code), size


async def _check_member(context: Context, asked: "OffsetFetchRequestGroup") -> None:
    """A member of a KIP-848 group is told when its epoch is not the group's; no other client names an epoch."""
    member_id, epoch = getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1)
    if member_id is None or epoch < 0:
        return
    context.broker.groups.check_ours(asked.group_id)
    group = await context.broker.groups.load(asked.group_id)
    if group is not None and group.kind is GroupKind.CONSUMER:
        group.check_commit(member_id, None, epoch)


async def _topics(
    context: Context,
    names: _Names,
    group_id: str,
    asked: "Sequence[OffsetFetchRequestTopics] | None",
    limit: int,
    *,
    is_stable: bool,
) -> tuple[list[Any], int]:
    """(the topics of one group's answer, how many offsets they have). Raises TieredError for the whole group."""
    coordinator = context.broker.groups
    require_group(context, Operation.DESCRIBE, group_id)
    coordinator.check_ours(group_id)
    if asked is None:
        found = await _read(context, group_id, None, limit, is_stable=is_stable)
        return await _all(context, names, found), len(found.offsets)
    size = sum(len(topic.partition_indexes) for topic in asked)
    if size > limit:
        raise InvalidRequest(f"ask for at most {MAX_OFFSETS} offsets at a time")
    known = context.broker.topics
    resolved = [(known.find_id if names.by_id else known.find)(names.asked(topic)) for topic in asked]
    denied = {number for number, each in enumerate(asked) if not _may_see(context, names, each, resolved[number])}
    wanted = [
        TopicPartition(topic.topic_id, index)
        for number, (topic, each) in enumerate(zip(resolved, asked, strict=True))
        if topic is not None and number not in denied
        for index in each.partition_indexes
    ]
    found = await _read(context, group_id, wanted, MAX_OFFSETS, is_stable=is_stable)
    return [
        _topic(names, each, resolved[number], found, is_denied=number in denied)
        async for number, each in in_turns(enumerate(asked))
    ], size


async def _read(
    context: Context, group_id: str, wanted: Collection[TopicPartition] | None, limit: int, *, is_stable: bool
) -> StableOffsets:
    offsets = context.broker.groups.offsets
    if is_stable:
        return await offsets.fetch_stable(group_id, wanted, limit=limit)
    return StableOffsets(offsets=await offsets.fetch(group_id, wanted, limit=limit), unstable=frozenset())


def _is_stable(request: "Request") -> bool:
    return bool(getattr(request, "require_stable", False))


def _may_see(context: Context, names: _Names, asked: "OffsetFetchRequestTopics", topic: Topic | None) -> bool:
    """Whether the client may describe the topic. It learns nothing else about a topic that it may not."""
    if names.by_id and topic is None:
        return True
    return may(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name if topic is not None else asked.name)


def _topic(
    names: _Names,
    asked: "OffsetFetchRequestTopics",
    topic: Topic | None,
    found: StableOffsets,
    *,
    is_denied: bool,
) -> Any:
    code = error_code(UnknownTopicId("refresh metadata")) if topic is None and names.by_id else NONE
    if is_denied:
        code = TOPIC_AUTHORIZATION_FAILED
    partitions = []
    for index in asked.partition_indexes:
        key = None if topic is None or is_denied else TopicPartition(topic.topic_id, index)
        partitions.append(_partition(names, index, None, code) if key is None else _stored(names, key, found))
    return names.topic(names.asked(asked), partitions)


async def _all(context: Context, names: _Names, found: StableOffsets) -> list[Any]:
    """Everything that was found, of topics that exist."""
    by_topic: dict[Any, list[Any]] = {}
    async for key in in_turns(list(found.offsets)):
        by_topic.setdefault(key.topic_id, []).append(_stored(names, key, found))
    topics = []
    for topic_id, partitions in by_topic.items():
        topic = context.broker.topics.find_id(topic_id)
        if topic is not None and may(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            topics.append(names.topic(topic.topic_id if names.by_id else topic.name, partitions))
    return topics


def _stored(names: _Names, key: TopicPartition, found: StableOffsets) -> Any:
    """The partition as the group has committed it, or UNSTABLE_OFFSET_COMMIT: the reader asks again."""
    if key in found.unstable:
        return _partition(names, key.partition, None, _UNSTABLE)
    return _partition(names, key.partition, found.offsets.get(key), NONE)


def _partition(names: _Names, index: int, row: OffsetRow | None, code: int) -> Any:
    return names.partition(
        partition_index=index,
        committed_offset=NO_OFFSET if row is None else row.committed_offset,
        committed_leader_epoch=-1 if row is None else row.leader_epoch,
        metadata="" if row is None else row.metadata,
        error_code=code,
    )


def _without(names: _Names, asked: "Sequence[OffsetFetchRequestTopics] | None", code: int) -> list[Any]:
    """All that is asked for, without an offset. Version 1 has no place for a group's error but its partitions."""
    return [
        names.topic(names.asked(topic), [_partition(names, index, None, code) for index in topic.partition_indexes])
        for topic in asked or ()
    ]


def _code(error: TieredError) -> int:
    # Some clients give up on COORDINATOR_NOT_AVAILABLE here.
    if isinstance(error, CoordinatorNotAvailable):
        return error_code(CoordinatorLoading(str(error)))
    return error_code(error)


async def of_replica(context: Context, request: "Request", reply: "Reply") -> "Response":
    """A read replica keeps no groups, so nobody has committed anything."""
    if context.api_version < FIRST_VERSION_WITH_GROUPS:
        names = _Names(reply.OffsetFetchResponseTopic, reply.OffsetFetchResponsePartition, by_id=False)
        return reply.OffsetFetchResponse(
            throttle_time=0, topics=_without(names, _asked(request), NONE), error_code=NONE
        )
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    names = _Names(reply.OffsetFetchResponseTopics, reply.OffsetFetchResponsePartitions, by_id=by_id)
    groups = [
        reply.OffsetFetchResponseGroup(
            group_id=group.group_id, topics=_without(names, group.topics, NONE), error_code=NONE
        )
        for group in request.groups
    ]
    return reply.OffsetFetchResponse(throttle_time=0, groups=groups)


API = Api(
    9,
    "OffsetFetch",
    (1, 10),
    rights="DESCRIBE on the group, DESCRIBE on each topic",
    handle=handle,
    on_replica=of_replica,
)
