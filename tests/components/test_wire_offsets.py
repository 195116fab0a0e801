"""wire.md 36 and 37: OffsetCommit, OffsetFetch and OffsetDelete in every version, byte by byte."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.test_wire_metadata_and_admin import ask as ask_metadata
from tests.components.test_wire_produce import create
from tiered.wire import messages

COMMIT, FETCH, DELETE = 8, 9, 47
Partitions = Mapping[int, int] | Sequence[tuple[int, int]]


def topic_id(connection: RawConnection, topic: str) -> UUID:
    found: UUID = ask_metadata(connection, [topic], version=12).topics[0].topic_id
    return found


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
    request = make.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=None,
        retention_time=-1,
        topics=asked,
    )
    answer = connection.ask(COMMIT, version, request)
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


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_of_offset_commit_stores_what_offset_fetch_finds(broker: BrokerProcess, version: int) -> None:
    topic = create(broker, f"commit-v{version}", partitions=2)
    group = group_id()
    with RawConnection(broker) as connection:
        name = topic_id(connection, topic) if version >= 10 else topic
        assert commit(connection, group, {name: {0: 5, 1: 7}}, version=version) == {(name, 0): 0, (name, 1): 0}
        assert fetch(connection, group, {topic: [0, 1]}) == {(topic, 0): 5, (topic, 1): 7}


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_of_offset_fetch_finds_what_was_committed(broker: BrokerProcess, version: int) -> None:
    topic = create(broker, f"fetch-v{version}", partitions=3)
    group = group_id()
    with RawConnection(broker) as connection:
        commit(connection, group, {topic: {0: 5, 1: 0}}, leader_epoch=3)
        name = topic_id(connection, topic) if version >= 10 else topic
        expected = {(name, 0): 5, (name, 1): 0, (name, 2): -1}
        assert fetch(connection, group, {name: [0, 1, 2]}, version=version) == expected
        answer = fetch_answer(connection, {group: {name: [0]}}, version=version)
        (found,) = (answer.groups[0] if version >= 8 else answer).topics[0].partitions
        assert found.metadata == "note"
        if version >= 5:
            assert found.committed_leader_epoch == 3
        if version >= 2:
            assert fetch(connection, group, None, version=version) == {(name, 0): 5, (name, 1): 0}
