from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class ListConfigResourcesRequest:
    resource_types: Sequence[int] = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class ListConfigResourcesResponse:
        throttle_time: int = ...
        error_code: int
        config_resources: Sequence[Replies.ConfigResource]

    @final
    @dataclass(kw_only=True)
    class ConfigResource:
        resource_name: str
        resource_type: int = ...

Request = ListConfigResourcesRequest
Reply = type[Replies]
Response = Replies.ListConfigResourcesResponse
