from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class DescribeTopicPartitionsRequest:
    topics: Sequence[TopicRequest]
    response_partition_limit: int = ...
    cursor: Cursor | None = ...

@final
@dataclass(kw_only=True)
class TopicRequest:
    name: str

@final
@dataclass(kw_only=True)
class Cursor:
    topic_name: str
    partition_index: int

class Replies:
    @final
    @dataclass(kw_only=True)
    class DescribeTopicPartitionsResponse:
        throttle_time: int = ...
        topics: Sequence[Replies.DescribeTopicPartitionsResponseTopic]
        next_cursor: Replies.Cursor | None = ...

    @final
    @dataclass(kw_only=True)
    class DescribeTopicPartitionsResponseTopic:
        error_code: int
        name: str | None
        topic_id: UUID | None
        is_internal: bool = ...
        partitions: Sequence[Replies.DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: int = ...

    @final
    @dataclass(kw_only=True)
    class DescribeTopicPartitionsResponsePartition:
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int = ...
        replica_nodes: Sequence[int] = ...
        isr_nodes: Sequence[int] = ...
        eligible_leader_replicas: Sequence[int] | None = ...
        last_known_elr: Sequence[int] | None = ...
        offline_replicas: Sequence[int] = ...

    @final
    @dataclass(kw_only=True)
    class Cursor:
        topic_name: str
        partition_index: int

Request = DescribeTopicPartitionsRequest
Reply = type[Replies]
Response = Replies.DescribeTopicPartitionsResponse
