from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class DeleteRecordsRequest:
    topics: Sequence[DeleteRecordsTopic]
    timeout: int

@final
@dataclass(kw_only=True)
class DeleteRecordsTopic:
    name: str
    partitions: Sequence[DeleteRecordsPartition]

@final
@dataclass(kw_only=True)
class DeleteRecordsPartition:
    partition_index: int
    offset: int

class Replies:
    @final
    @dataclass(kw_only=True)
    class DeleteRecordsResponse:
        throttle_time: int = ...
        topics: Sequence[Replies.DeleteRecordsTopicResult]

    @final
    @dataclass(kw_only=True)
    class DeleteRecordsTopicResult:
        name: str
        partitions: Sequence[Replies.DeleteRecordsPartitionResult]

    @final
    @dataclass(kw_only=True)
    class DeleteRecordsPartitionResult:
        partition_index: int
        low_watermark: int
        error_code: int

Request = DeleteRecordsRequest
Reply = type[Replies]
Response = Replies.DeleteRecordsResponse
