from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class OffsetDeleteRequest:
    group_id: str
    topics: Sequence[OffsetDeleteRequestTopic]

@final
@dataclass(kw_only=True)
class OffsetDeleteRequestTopic:
    name: str
    partitions: Sequence[OffsetDeleteRequestPartition]

@final
@dataclass(kw_only=True)
class OffsetDeleteRequestPartition:
    partition_index: int

class Replies:
    @final
    @dataclass(kw_only=True)
    class OffsetDeleteResponse:
        error_code: int
        throttle_time: int = ...
        topics: Sequence[Replies.OffsetDeleteResponseTopic]

    @final
    @dataclass(kw_only=True)
    class OffsetDeleteResponseTopic:
        name: str
        partitions: Sequence[Replies.OffsetDeleteResponsePartition]

    @final
    @dataclass(kw_only=True)
    class OffsetDeleteResponsePartition:
        partition_index: int
        error_code: int

Request = OffsetDeleteRequest
Reply = type[Replies]
Response = Replies.OffsetDeleteResponse
