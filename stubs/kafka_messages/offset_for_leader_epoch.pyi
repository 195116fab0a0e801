from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class OffsetForLeaderEpochRequest:
    topics: Sequence[OffsetForLeaderTopic]
    replica_id: int = ...

@final
@dataclass(kw_only=True)
class OffsetForLeaderTopic:
    topic: str
    partitions: Sequence[OffsetForLeaderPartition]

@final
@dataclass(kw_only=True)
class OffsetForLeaderPartition:
    partition: int
    current_leader_epoch: int = ...
    leader_epoch: int

class Replies:
    @final
    @dataclass(kw_only=True)
    class OffsetForLeaderEpochResponse:
        throttle_time: int = ...
        topics: Sequence[Replies.OffsetForLeaderTopicResult]

    @final
    @dataclass(kw_only=True)
    class OffsetForLeaderTopicResult:
        topic: str
        partitions: Sequence[Replies.EpochEndOffset]

    @final
    @dataclass(kw_only=True)
    class EpochEndOffset:
        error_code: int
        partition: int
        leader_epoch: int = ...
        end_offset: int = ...

Request = OffsetForLeaderEpochRequest
Reply = type[Replies]
Response = Replies.OffsetForLeaderEpochResponse
