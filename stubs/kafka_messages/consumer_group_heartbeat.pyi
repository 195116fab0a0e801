from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class ConsumerGroupHeartbeatRequest:
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = ...
    rack_id: str | None = ...
    rebalance_timeout: int = ...
    subscribed_topic_names: Sequence[str] | None = ...
    server_assignor: str | None = ...
    topic_partitions: Sequence[TopicPartitions] | None
    subscribed_topic_regex: str | None = ...

@final
@dataclass(kw_only=True)
class TopicPartitions:
    topic_id: UUID | None
    partitions: Sequence[int] = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class ConsumerGroupHeartbeatResponse:
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

Request = ConsumerGroupHeartbeatRequest
Reply = type[Replies]
Response = Replies.ConsumerGroupHeartbeatResponse
