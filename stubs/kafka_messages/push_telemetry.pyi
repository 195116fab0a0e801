from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class PushTelemetryRequest:
    client_instance_id: UUID | None
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes

class Replies:
    @final
    @dataclass(kw_only=True)
    class PushTelemetryResponse:
        throttle_time: int = ...
        error_code: int

Request = PushTelemetryRequest
Reply = type[Replies]
Response = Replies.PushTelemetryResponse
