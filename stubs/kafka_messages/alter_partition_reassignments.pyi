from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class AlterPartitionReassignmentsRequest:
    timeout: int = ...
    topics: Sequence[ReassignableTopic]
    allow_replication_factor_change: bool = ...

@final
@dataclass(kw_only=True)
class ReassignableTopic:
    name: str
    partitions: Sequence[ReassignablePartition]

@final
@dataclass(kw_only=True)
class ReassignablePartition:
    partition_index: int
    replicas: Sequence[int] | None = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class AlterPartitionReassignmentsResponse:
        throttle_time: int = ...
        error_code: int
        error_message: str | None
        responses: Sequence[Replies.ReassignableTopicResponse]
        allow_replication_factor_change: bool = ...

    @final
    @dataclass(kw_only=True)
    class ReassignableTopicResponse:
        name: str
        partitions: Sequence[Replies.ReassignablePartitionResponse]

    @final
    @dataclass(kw_only=True)
    class ReassignablePartitionResponse:
        partition_index: int
        error_code: int
        error_message: str | None

Request = AlterPartitionReassignmentsRequest
Reply = type[Replies]
Response = Replies.AlterPartitionReassignmentsResponse
