from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class DescribeTransactionsRequest:
    transactional_ids: Sequence[str] = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class DescribeTransactionsResponse:
        throttle_time: int = ...
        transaction_states: Sequence[Replies.TransactionState]

    @final
    @dataclass(kw_only=True)
    class TransactionState:
        error_code: int
        transactional_id: str
        transaction_state: str
        transaction_timeout: int
        transaction_start_time: int
        producer_id: int
        producer_epoch: int
        topics: Sequence[Replies.TopicData]

    @final
    @dataclass(kw_only=True)
    class TopicData:
        topic: str
        partitions: Sequence[int] = ...

Request = DescribeTransactionsRequest
Reply = type[Replies]
Response = Replies.DescribeTransactionsResponse
