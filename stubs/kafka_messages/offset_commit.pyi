from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class OffsetCommitRequest:
    group_id: str
    generation_id_or_member_epoch: int = ...
    member_id: str
    retention_time: int = ...
    topics: Sequence[OffsetCommitRequestTopic]
    group_instance_id: str | None = ...

@final
@dataclass(kw_only=True)
class OffsetCommitRequestTopic:
    name: str = ...
    partitions: Sequence[OffsetCommitRequestPartition]
    topic_id: UUID | None = ...

@final
@dataclass(kw_only=True)
class OffsetCommitRequestPartition:
    partition_index: int
    committed_offset: int
    committed_metadata: str | None
    committed_leader_epoch: int = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class OffsetCommitResponse:
        topics: Sequence[Replies.OffsetCommitResponseTopic]
        throttle_time: int = ...

    @final
    @dataclass(kw_only=True)
    class OffsetCommitResponseTopic:
        name: str = ...
        partitions: Sequence[Replies.OffsetCommitResponsePartition]
        topic_id: UUID | None = ...

    @final
    @dataclass(kw_only=True)
    class OffsetCommitResponsePartition:
        partition_index: int
        error_code: int

Request = OffsetCommitRequest
Reply = type[Replies]
Response = Replies.OffsetCommitResponse
