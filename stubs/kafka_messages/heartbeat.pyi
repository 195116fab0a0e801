from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class HeartbeatRequest:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class HeartbeatResponse:
        error_code: int
        throttle_time: int = ...

Request = HeartbeatRequest
Reply = type[Replies]
Response = Replies.HeartbeatResponse
