from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class ConsumerGroupDescribeRequest:
    group_ids: Sequence[str] = ...
    include_authorized_operations: bool

class Replies:
    @final
    @dataclass(kw_only=True)
    class ConsumerGroupDescribeResponse:
        throttle_time: int = ...
        groups: Sequence[Replies.DescribedGroup]

    @final
    @dataclass(kw_only=True)
    class DescribedGroup:
        error_code: int
        error_message: str | None = ...
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: Sequence[Replies.Member]
        authorized_operations: int = ...

    @final
    @dataclass(kw_only=True)
    class Member:
        member_id: str
        instance_id: str | None = ...
        rack_id: str | None = ...
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: Sequence[str] = ...
        subscribed_topic_regex: str | None = ...
        assignment: Replies.Assignment
        target_assignment: Replies.Assignment
        member_type: int = ...

    @final
    @dataclass(kw_only=True)
    class Assignment:
        topic_partitions: Sequence[Replies.TopicPartitions]

    @final
    @dataclass(kw_only=True)
    class TopicPartitions:
        topic_id: UUID | None
        topic_name: str
        partitions: Sequence[int] = ...

Request = ConsumerGroupDescribeRequest
Reply = type[Replies]
Response = Replies.ConsumerGroupDescribeResponse
