from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class JoinGroupRequest:
    group_id: str
    session_timeout: int
    member_id: str
    protocol_type: str
    protocols: Sequence[JoinGroupRequestProtocol]
    rebalance_timeout: int = ...
    group_instance_id: str | None = ...
    reason: str | None = ...

@final
@dataclass(kw_only=True)
class JoinGroupRequestProtocol:
    name: str
    metadata: bytes

class Replies:
    @final
    @dataclass(kw_only=True)
    class JoinGroupResponse:
        error_code: int
        generation_id: int = ...
        protocol_name: str | None
        leader: str
        member_id: str
        members: Sequence[Replies.JoinGroupResponseMember]
        throttle_time: int = ...
        protocol_type: str | None = ...
        skip_assignment: bool = ...

    @final
    @dataclass(kw_only=True)
    class JoinGroupResponseMember:
        member_id: str
        metadata: bytes
        group_instance_id: str | None = ...

Request = JoinGroupRequest
Reply = type[Replies]
Response = Replies.JoinGroupResponse
