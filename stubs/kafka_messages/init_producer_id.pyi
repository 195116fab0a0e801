from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class InitProducerIdRequest:
    transactional_id: str | None
    transaction_timeout: int
    producer_id: int = ...
    producer_epoch: int = ...
    enable2_pc: bool = ...
    keep_prepared_txn: bool = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class InitProducerIdResponse:
        throttle_time: int = ...
        error_code: int
        producer_id: int = ...
        producer_epoch: int
        ongoing_txn_producer_id: int = ...
        ongoing_txn_producer_epoch: int = ...

Request = InitProducerIdRequest
Reply = type[Replies]
Response = Replies.InitProducerIdResponse
