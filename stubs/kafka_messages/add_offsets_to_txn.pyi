from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class AddOffsetsToTxnRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str

class Replies:
    @final
    @dataclass(kw_only=True)
    class AddOffsetsToTxnResponse:
        throttle_time: int = ...
        error_code: int

Request = AddOffsetsToTxnRequest
Reply = type[Replies]
Response = Replies.AddOffsetsToTxnResponse
