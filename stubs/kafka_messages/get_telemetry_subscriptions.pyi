from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class GetTelemetrySubscriptionsRequest:
    client_instance_id: UUID | None

class Replies:
    @final
    @dataclass(kw_only=True)
    class GetTelemetrySubscriptionsResponse:
        throttle_time: int = ...
        error_code: int
        client_instance_id: UUID | None
        subscription_id: int
        accepted_compression_types: Sequence[int] = ...
        push_interval: int
        telemetry_max_bytes: int
        delta_temporality: bool
        requested_metrics: Sequence[str] = ...

Request = GetTelemetrySubscriptionsRequest
Reply = type[Replies]
Response = Replies.GetTelemetrySubscriptionsResponse
