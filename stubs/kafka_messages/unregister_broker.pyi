from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class UnregisterBrokerRequest:
    broker_id: int

class Replies:
    @final
    @dataclass(kw_only=True)
    class UnregisterBrokerResponse:
        throttle_time: int = ...
        error_code: int
        error_message: str | None

Request = UnregisterBrokerRequest
Reply = type[Replies]
Response = Replies.UnregisterBrokerResponse
