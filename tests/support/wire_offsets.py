"""OffsetCommit, OffsetFetch and OffsetDelete in every version."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from tests.clients.raw import RawConnection
from tiered.wire import messages

COMMIT, FETCH, DELETE = 8, 9, 47
Partitions = Mapping[int, int] | Sequence[tuple[int, int]]


def commit(
    connection: RawConnection,
    group: str,
    topics: Mapping[str | UUID, Partitions],
    *,
    version: int = 8,
    generation: int = -1,
    member_id: str = "",
    metadata: str | None = "note",
    leader_epoch: int = -1,
) -> dict[tuple[str | UUID, int], int]:
    """The error codes by topic and partition."""
    request = commit_request(
        group,
        topics,
        version=version,
        generation=generation,
        member_id=member_id,
        metadata=metadata,
        leader_epoch=leader_epoch,
    )
    return codes_of(connection.ask(COMMIT, version, request))


def commit_request(
    group: str,
    topics: Mapping[str | UUID, Partitions],
    *,
    version: int,
    generation: int = -1,
    member_id: str = "",
    metadata: str | None = "note",
    leader_epoch: int = -1,
) -> Any:
    make = messages.request(COMMIT, version)
    asked = []
    for topic, partitions in topics.items():
        pairs = list(partitions.items()) if isinstance(partitions, Mapping) else partitions
        asked.append(
            make.OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic,
                partitions=[
                    make.OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        committed_metadata=metadata,
                    )
                    for index, offset in pairs
                ],
            )
        )
    return make.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=None,
        retention_time=-1,
        topics=asked,
    )


def codes_of(answer: Any) -> dict[tuple[str | UUID, int], int]:
    return {
        (getattr(topic, "name", None) or topic.topic_id, each.partition_index): int(each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    }


def fetch_answer(
    connection: RawConnection,
    groups: Mapping[str, Mapping[str | UUID, Sequence[int]] | None],
    *,
    version: int = 7,
    require_stable: bool = False,
) -> Any:
    make = messages.request(FETCH, version)
    if version >= 8:
        asked_groups = [
            make.OffsetFetchRequestGroup(
                group_id=group,
                topics=None
                if topics is None
                else [
                    make.OffsetFetchRequestTopics(name=topic, topic_id=topic, partition_indexes=list(indexes))
                    for topic, indexes in topics.items()
                ],
            )
            for group, topics in groups.items()
        ]
        return connection.ask(
            FETCH, version, make.OffsetFetchRequest(groups=asked_groups, require_stable=require_stable)
        )
    ((group, topics),) = groups.items()
    asked = (
        None
        if topics is None
        else [
            make.OffsetFetchRequestTopic(name=topic, partition_indexes=list(indexes))
            for topic, indexes in topics.items()
        ]
    )
    return connection.ask(
        FETCH, version, make.OffsetFetchRequest(group_id=group, topics=asked, require_stable=require_stable)
    )


def offsets_of(answer: Any) -> dict[tuple[str | UUID, int], int]:
    return {
        (getattr(topic, "name", None) or topic.topic_id, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
    }


def fetch(
    connection: RawConnection, group: str, topics: Mapping[str | UUID, Sequence[int]] | None, *, version: int = 7
) -> dict[tuple[str | UUID, int], int]:
    """The committed offsets of one group; the answer has no error."""
    answer = fetch_answer(connection, {group: topics}, version=version)
    if version >= 8:
        answer = answer.groups[0]
        assert answer.group_id == group
    if version >= 2:
        assert int(answer.error_code) == 0
    assert {int(each.error_code) for topic in answer.topics for each in topic.partitions} <= {0}
    return offsets_of(answer)


def group_id() -> str:
    return f"group-{uuid4()}"
