from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class ElectLeadersRequest:
    topic_partitions: Sequence[TopicPartitions] | None
    timeout: int = ...
    election_type: int = ...

@final
@dataclass(kw_only=True)
class TopicPartitions:
    topic: str
    partitions: Sequence[int] = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class ElectLeadersResponse:
        throttle_time: int = ...
        replica_election_results: Sequence[Replies.ReplicaElectionResult]
        error_code: int = ...

    @final
    @dataclass(kw_only=True)
    class ReplicaElectionResult:
        topic: str
        partition_result: Sequence[Replies.PartitionResult]

    @final
    @dataclass(kw_only=True)
    class PartitionResult:
        partition_id: int
        error_code: int
        error_message: str | None

Request = ElectLeadersRequest
Reply = type[Replies]
Response = Replies.ElectLeadersResponse
