from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class AlterConfigsRequest:
    resources: Sequence[AlterConfigsResource]
    validate_only: bool

@final
@dataclass(kw_only=True)
class AlterConfigsResource:
    resource_type: int
    resource_name: str
    configs: Sequence[AlterableConfig]

@final
@dataclass(kw_only=True)
class AlterableConfig:
    name: str
    value: str | None

class Replies:
    @final
    @dataclass(kw_only=True)
    class AlterConfigsResponse:
        throttle_time: int = ...
        responses: Sequence[Replies.AlterConfigsResourceResponse]

    @final
    @dataclass(kw_only=True)
    class AlterConfigsResourceResponse:
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str

Request = AlterConfigsRequest
Reply = type[Replies]
Response = Replies.AlterConfigsResponse
