from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class IncrementalAlterConfigsRequest:
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
    config_operation: int
    value: str | None

class Replies:
    @final
    @dataclass(kw_only=True)
    class IncrementalAlterConfigsResponse:
        throttle_time: int = ...
        responses: Sequence[Replies.AlterConfigsResourceResponse]

    @final
    @dataclass(kw_only=True)
    class AlterConfigsResourceResponse:
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str

Request = IncrementalAlterConfigsRequest
Reply = type[Replies]
Response = Replies.IncrementalAlterConfigsResponse
