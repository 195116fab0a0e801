from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class CreateAclsRequest:
    creations: Sequence[AclCreation]

@final
@dataclass(kw_only=True)
class AclCreation:
    resource_type: int
    resource_name: str
    resource_pattern_type: int = ...
    principal: str
    host: str
    operation: int
    permission_type: int

class Replies:
    @final
    @dataclass(kw_only=True)
    class CreateAclsResponse:
        throttle_time: int = ...
        results: Sequence[Replies.AclCreationResult]

    @final
    @dataclass(kw_only=True)
    class AclCreationResult:
        error_code: int
        error_message: str | None

Request = CreateAclsRequest
Reply = type[Replies]
Response = Replies.CreateAclsResponse
