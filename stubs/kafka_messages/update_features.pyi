from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class UpdateFeaturesRequest:
    timeout: int = ...
    feature_updates: Sequence[FeatureUpdateKey]
    validate_only: bool = ...

@final
@dataclass(kw_only=True)
class FeatureUpdateKey:
    feature: str
    max_version_level: int
    allow_downgrade: bool = ...
    upgrade_type: int = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class UpdateFeaturesResponse:
        throttle_time: int = ...
        error_code: int
        error_message: str | None
        results: Sequence[Replies.UpdatableFeatureResult] = ...

    @final
    @dataclass(kw_only=True)
    class UpdatableFeatureResult:
        feature: str
        error_code: int
        error_message: str | None

Request = UpdateFeaturesRequest
Reply = type[Replies]
Response = Replies.UpdateFeaturesResponse
