from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class DeleteGroupsRequest:
    groups_names: Sequence[str] = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class DeleteGroupsResponse:
        throttle_time: int = ...
        results: Sequence[Replies.DeletableGroupResult]

    @final
    @dataclass(kw_only=True)
    class DeletableGroupResult:
        group_id: str
        error_code: int

Request = DeleteGroupsRequest
Reply = type[Replies]
Response = Replies.DeleteGroupsResponse
