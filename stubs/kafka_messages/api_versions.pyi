from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class ApiVersionsRequest:
    client_software_name: str = ...
    client_software_version: str = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class ApiVersionsResponse:
        error_code: int
        api_keys: Sequence[Replies.ApiVersion]
        throttle_time: int = ...
        supported_features: Sequence[Replies.SupportedFeatureKey] = ...
        finalized_features_epoch: int = ...
        finalized_features: Sequence[Replies.FinalizedFeatureKey] = ...
        zk_migration_ready: bool = ...

    @final
    @dataclass(kw_only=True)
    class ApiVersion:
        api_key: int
        min_version: int
        max_version: int

    @final
    @dataclass(kw_only=True)
    class SupportedFeatureKey:
        name: str
        min_version: int
        max_version: int

    @final
    @dataclass(kw_only=True)
    class FinalizedFeatureKey:
        name: str
        max_version_level: int
        min_version_level: int

Request = ApiVersionsRequest
Reply = type[Replies]
Response = Replies.ApiVersionsResponse
