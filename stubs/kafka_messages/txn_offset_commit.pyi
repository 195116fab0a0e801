from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class TxnOffsetCommitRequest:
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    topics: Sequence[TxnOffsetCommitRequestTopic]
    generation_id: int = ...
    member_id: str = ...
    group_instance_id: str | None = ...

@final
@dataclass(kw_only=True)
class TxnOffsetCommitRequestTopic:
    name: str
    partitions: Sequence[TxnOffsetCommitRequestPartition]

@final
@dataclass(kw_only=True)
class TxnOffsetCommitRequestPartition:
    partition_index: int
    committed_offset: int
    committed_metadata: str | None
    committed_leader_epoch: int = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class TxnOffsetCommitResponse:
        throttle_time: int = ...
        topics: Sequence[Replies.TxnOffsetCommitResponseTopic]

    @final
    @dataclass(kw_only=True)
    class TxnOffsetCommitResponseTopic:
        name: str
        partitions: Sequence[Replies.TxnOffsetCommitResponsePartition]

    @final
    @dataclass(kw_only=True)
    class TxnOffsetCommitResponsePartition:
        partition_index: int
        error_code: int

Request = TxnOffsetCommitRequest
Reply = type[Replies]
Response = Replies.TxnOffsetCommitResponse
