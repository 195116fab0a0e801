from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class LeaveGroupRequest:
    group_id: str
    member_id: str = ...
    members: Sequence[MemberIdentity] = ...

@final
@dataclass(kw_only=True)
class MemberIdentity:
    member_id: str
    group_instance_id: str | None = ...
    reason: str | None = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class LeaveGroupResponse:
        error_code: int
        throttle_time: int = ...
        members: Sequence[Replies.MemberResponse] = ...

    @final
    @dataclass(kw_only=True)
    class MemberResponse:
        member_id: str
        group_instance_id: str | None
        error_code: int

Request = LeaveGroupRequest
Reply = type[Replies]
Response = Replies.LeaveGroupResponse
