from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class EndTxnRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool

class Replies:
    @final
    @dataclass(kw_only=True)
    class EndTxnResponse:
        throttle_time: int = ...
        error_code: int
        producer_id: int = ...
        producer_epoch: int = ...

Request = EndTxnRequest
Reply = type[Replies]
Response = Replies.EndTxnResponse
