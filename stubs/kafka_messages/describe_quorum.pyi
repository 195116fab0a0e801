from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class DescribeQuorumRequest:
    topics: Sequence[TopicData]

@final
@dataclass(kw_only=True)
class TopicData:
    topic_name: str
    partitions: Sequence[PartitionData]

@final
@dataclass(kw_only=True)
class PartitionData:
    partition_index: int

class Replies:
    @final
    @dataclass(kw_only=True)
    class DescribeQuorumResponse:
        error_code: int
        topics: Sequence[Replies.TopicData]
        error_message: str | None = ...
        nodes: Sequence[Replies.Node] = ...

    @final
    @dataclass(kw_only=True)
    class TopicData:
        topic_name: str
        partitions: Sequence[Replies.PartitionData]

    @final
    @dataclass(kw_only=True)
    class PartitionData:
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        high_watermark: int
        current_voters: Sequence[Replies.ReplicaState]
        observers: Sequence[Replies.ReplicaState]
        error_message: str | None = ...

    @final
    @dataclass(kw_only=True)
    class ReplicaState:
        replica_id: int
        log_end_offset: int
        last_fetch_timestamp: int = ...
        last_caught_up_timestamp: int = ...
        replica_directory_id: UUID | None = ...

    @final
    @dataclass(kw_only=True)
    class Node:
        node_id: int
        listeners: Sequence[Replies.Listener]

    @final
    @dataclass(kw_only=True)
    class Listener:
        name: str
        host: str
        port: int

Request = DescribeQuorumRequest
Reply = type[Replies]
Response = Replies.DescribeQuorumResponse
