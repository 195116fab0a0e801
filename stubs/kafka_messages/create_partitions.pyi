from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class CreatePartitionsRequest:
    topics: Sequence[CreatePartitionsTopic]
    timeout: int
    validate_only: bool

@final
@dataclass(kw_only=True)
class CreatePartitionsTopic:
    name: str
    count: int
    assignments: Sequence[CreatePartitionsAssignment] | None

@final
@dataclass(kw_only=True)
class CreatePartitionsAssignment:
    broker_ids: Sequence[int] = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class CreatePartitionsResponse:
        throttle_time: int = ...
        results: Sequence[Replies.CreatePartitionsTopicResult]

    @final
    @dataclass(kw_only=True)
    class CreatePartitionsTopicResult:
        name: str
        error_code: int
        error_message: str | None = ...

Request = CreatePartitionsRequest
Reply = type[Replies]
Response = Replies.CreatePartitionsResponse
