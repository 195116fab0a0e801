from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class ListOffsetsRequest:
    replica_id: int
    topics: Sequence[ListOffsetsTopic]
    isolation_level: int = ...
    timeout: int = ...

@final
@dataclass(kw_only=True)
class ListOffsetsTopic:
    name: str
    partitions: Sequence[ListOffsetsPartition]

@final
@dataclass(kw_only=True)
class ListOffsetsPartition:
    partition_index: int
    timestamp: int
    current_leader_epoch: int = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class ListOffsetsResponse:
        topics: Sequence[Replies.ListOffsetsTopicResponse]
        throttle_time: int = ...

    @final
    @dataclass(kw_only=True)
    class ListOffsetsTopicResponse:
        name: str
        partitions: Sequence[Replies.ListOffsetsPartitionResponse]

    @final
    @dataclass(kw_only=True)
    class ListOffsetsPartitionResponse:
        partition_index: int
        error_code: int
        timestamp: int = ...
        offset: int = ...
        leader_epoch: int = ...

Request = ListOffsetsRequest
Reply = type[Replies]
Response = Replies.ListOffsetsResponse
