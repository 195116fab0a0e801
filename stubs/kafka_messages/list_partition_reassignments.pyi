from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class ListPartitionReassignmentsRequest:
    timeout: int = ...
    topics: Sequence[ListPartitionReassignmentsTopics] | None

@final
@dataclass(kw_only=True)
class ListPartitionReassignmentsTopics:
    name: str
    partition_indexes: Sequence[int] = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class ListPartitionReassignmentsResponse:
        throttle_time: int = ...
        error_code: int
        error_message: str | None
        topics: Sequence[Replies.OngoingTopicReassignment]

    @final
    @dataclass(kw_only=True)
    class OngoingTopicReassignment:
        name: str
        partitions: Sequence[Replies.OngoingPartitionReassignment]

    @final
    @dataclass(kw_only=True)
    class OngoingPartitionReassignment:
        partition_index: int
        replicas: Sequence[int] = ...
        adding_replicas: Sequence[int] = ...
        removing_replicas: Sequence[int] = ...

Request = ListPartitionReassignmentsRequest
Reply = type[Replies]
Response = Replies.ListPartitionReassignmentsResponse
