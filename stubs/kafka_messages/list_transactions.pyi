from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class ListTransactionsRequest:
    state_filters: Sequence[str] = ...
    producer_id_filters: Sequence[int] = ...
    duration_filter: int = ...
    transactional_id_pattern: str | None = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class ListTransactionsResponse:
        throttle_time: int = ...
        error_code: int
        unknown_state_filters: Sequence[str] = ...
        transaction_states: Sequence[Replies.TransactionState]

    @final
    @dataclass(kw_only=True)
    class TransactionState:
        transactional_id: str
        producer_id: int
        transaction_state: str

Request = ListTransactionsRequest
Reply = type[Replies]
Response = Replies.ListTransactionsResponse
