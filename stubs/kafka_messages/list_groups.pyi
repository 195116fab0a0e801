from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class ListGroupsRequest:
    states_filter: Sequence[str] = ...
    types_filter: Sequence[str] = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class ListGroupsResponse:
        error_code: int
        groups: Sequence[Replies.ListedGroup]
        throttle_time: int = ...

    @final
    @dataclass(kw_only=True)
    class ListedGroup:
        group_id: str
        protocol_type: str
        group_state: str = ...
        group_type: str = ...

Request = ListGroupsRequest
Reply = type[Replies]
Response = Replies.ListGroupsResponse
