"""Moves of partitions as clients ask for them."""

from typing import Any

from tests.clients.raw import RawConnection
from tiered.wire import messages

ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 45, 46
NONE = 0
TIMEOUT_MS = 10_000

Asked = list[tuple[str, int, list[int] | None]]


def alter(connection: RawConnection, asked: Asked, *, version: int = 1, may_resize: bool = True) -> Any:
    make = messages.request(ALTER_REASSIGNMENTS, version)
    by_topic: dict[str, list[Any]] = {}
    for topic, number, replicas in asked:
        by_topic.setdefault(topic, []).append(make.ReassignablePartition(partition_index=number, replicas=replicas))
    topics = [make.ReassignableTopic(name=name, partitions=each) for name, each in by_topic.items()]
    request = make.AlterPartitionReassignmentsRequest(
        timeout=TIMEOUT_MS, allow_replication_factor_change=may_resize, topics=topics
    )
    return connection.ask(ALTER_REASSIGNMENTS, version, request)


def listed(connection: RawConnection, topics: dict[str, list[int]] | None) -> Any:
    make = messages.request(LIST_REASSIGNMENTS, 0)
    asked = None
    if topics is not None:
        asked = [
            make.ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    answer = connection.ask(
        LIST_REASSIGNMENTS, 0, make.ListPartitionReassignmentsRequest(timeout=TIMEOUT_MS, topics=asked)
    )
    assert int(answer.error_code) == NONE
    return answer.topics
