from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class SyncGroupRequest:
    group_id: str
    generation_id: int
    member_id: str
    assignments: Sequence[SyncGroupRequestAssignment]
    group_instance_id: str | None = ...
    protocol_type: str | None = ...
    protocol_name: str | None = ...

@final
@dataclass(kw_only=True)
class SyncGroupRequestAssignment:
    member_id: str
    assignment: bytes

class Replies:
    @final
    @dataclass(kw_only=True)
    class SyncGroupResponse:
        error_code: int
        assignment: bytes
        throttle_time: int = ...
        protocol_type: str | None = ...
        protocol_name: str | None = ...

Request = SyncGroupRequest
Reply = type[Replies]
Response = Replies.SyncGroupResponse
