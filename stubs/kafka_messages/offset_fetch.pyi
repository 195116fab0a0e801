from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class OffsetFetchRequest:
    group_id: str = ...
    topics: Sequence[OffsetFetchRequestTopic] | None = ...
    require_stable: bool = ...
    groups: Sequence[OffsetFetchRequestGroup] = ...

@final
@dataclass(kw_only=True)
class OffsetFetchRequestTopic:
    name: str
    partition_indexes: Sequence[int] = ...

@final
@dataclass(kw_only=True)
class OffsetFetchRequestGroup:
    group_id: str
    topics: Sequence[OffsetFetchRequestTopics] | None
    member_id: str | None = ...
    member_epoch: int = ...

@final
@dataclass(kw_only=True)
class OffsetFetchRequestTopics:
    name: str = ...
    partition_indexes: Sequence[int] = ...
    topic_id: UUID | None = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class OffsetFetchResponse:
        topics: Sequence[Replies.OffsetFetchResponseTopic] = ...
        error_code: int = ...
        throttle_time: int = ...
        groups: Sequence[Replies.OffsetFetchResponseGroup] = ...

    @final
    @dataclass(kw_only=True)
    class OffsetFetchResponseTopic:
        name: str
        partitions: Sequence[Replies.OffsetFetchResponsePartition]

    @final
    @dataclass(kw_only=True)
    class OffsetFetchResponsePartition:
        partition_index: int
        committed_offset: int
        metadata: str | None
        error_code: int
        committed_leader_epoch: int = ...

    @final
    @dataclass(kw_only=True)
    class OffsetFetchResponseGroup:
        group_id: str
        topics: Sequence[Replies.OffsetFetchResponseTopics]
        error_code: int = ...

    @final
    @dataclass(kw_only=True)
    class OffsetFetchResponseTopics:
        name: str = ...
        partitions: Sequence[Replies.OffsetFetchResponsePartitions]
        topic_id: UUID | None = ...

    @final
    @dataclass(kw_only=True)
    class OffsetFetchResponsePartitions:
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int = ...
        metadata: str | None
        error_code: int

Request = OffsetFetchRequest
Reply = type[Replies]
Response = Replies.OffsetFetchResponse
