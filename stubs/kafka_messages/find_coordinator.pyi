from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class FindCoordinatorRequest:
    key: str = ...
    key_type: int = ...
    coordinator_keys: Sequence[str] = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class FindCoordinatorResponse:
        error_code: int = ...
        node_id: int = ...
        host: str = ...
        port: int = ...
        throttle_time: int = ...
        error_message: str | None = ...
        coordinators: Sequence[Replies.Coordinator] = ...

    @final
    @dataclass(kw_only=True)
    class Coordinator:
        key: str
        node_id: int
        host: str
        port: int
        error_code: int
        error_message: str | None

Request = FindCoordinatorRequest
Reply = type[Replies]
Response = Replies.FindCoordinatorResponse
