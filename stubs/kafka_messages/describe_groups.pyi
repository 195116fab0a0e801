from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class DescribeGroupsRequest:
    groups: Sequence[str] = ...
    include_authorized_operations: bool = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class DescribeGroupsResponse:
        groups: Sequence[Replies.DescribedGroup]
        throttle_time: int = ...

    @final
    @dataclass(kw_only=True)
    class DescribedGroup:
        error_code: int
        group_id: str
        group_state: str
        protocol_type: str
        protocol_data: str
        members: Sequence[Replies.DescribedGroupMember]
        authorized_operations: int = ...
        error_message: str | None = ...

    @final
    @dataclass(kw_only=True)
    class DescribedGroupMember:
        member_id: str
        client_id: str
        client_host: str
        member_metadata: bytes
        member_assignment: bytes
        group_instance_id: str | None = ...

Request = DescribeGroupsRequest
Reply = type[Replies]
Response = Replies.DescribeGroupsResponse
