from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class DeleteTopicsRequest:
    topic_names: Sequence[str] = ...
    timeout: int
    topics: Sequence[DeleteTopicState] = ...

@final
@dataclass(kw_only=True)
class DeleteTopicState:
    name: str | None = ...
    topic_id: UUID | None

class Replies:
    @final
    @dataclass(kw_only=True)
    class DeleteTopicsResponse:
        throttle_time: int = ...
        responses: Sequence[Replies.DeletableTopicResult]

    @final
    @dataclass(kw_only=True)
    class DeletableTopicResult:
        name: str | None
        error_code: int
        error_message: str | None = ...
        topic_id: UUID | None = ...

Request = DeleteTopicsRequest
Reply = type[Replies]
Response = Replies.DeleteTopicsResponse
