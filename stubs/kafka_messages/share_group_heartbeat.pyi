from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class ShareGroupHeartbeatRequest:
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = ...
    subscribed_topic_names: Sequence[str] | None = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class ShareGroupHeartbeatResponse:
        throttle_time: int = ...
        error_code: int
        error_message: str | None = ...
        member_id: str | None = ...
        member_epoch: int
        heartbeat_interval: int
        assignment: Replies.Assignment | None = ...

    @final
    @dataclass(kw_only=True)
    class Assignment:
        topic_partitions: Sequence[Replies.TopicPartitions]

    @final
    @dataclass(kw_only=True)
    class TopicPartitions:
        topic_id: UUID | None
        partitions: Sequence[int] = ...

Request = ShareGroupHeartbeatRequest
Reply = type[Replies]
Response = Replies.ShareGroupHeartbeatResponse
