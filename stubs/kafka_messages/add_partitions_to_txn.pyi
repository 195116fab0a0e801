from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class AddPartitionsToTxnRequest:
    v3_and_below_transactional_id: str = ...
    v3_and_below_producer_id: int = ...
    v3_and_below_producer_epoch: int = ...
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = ...
    transactions: Sequence[AddPartitionsToTxnTransaction] = ...

@final
@dataclass(kw_only=True)
class AddPartitionsToTxnTopic:
    name: str
    partitions: Sequence[int] = ...

@final
@dataclass(kw_only=True)
class AddPartitionsToTxnTransaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool = ...
    topics: Sequence[AddPartitionsToTxnTopic]

class Replies:
    @final
    @dataclass(kw_only=True)
    class AddPartitionsToTxnResponse:
        throttle_time: int = ...
        results_by_topic_v3_and_below: Sequence[Replies.AddPartitionsToTxnTopicResult] = ...
        error_code: int = ...
        results_by_transaction: Sequence[Replies.AddPartitionsToTxnResult] = ...

    @final
    @dataclass(kw_only=True)
    class AddPartitionsToTxnTopicResult:
        name: str
        results_by_partition: Sequence[Replies.AddPartitionsToTxnPartitionResult]

    @final
    @dataclass(kw_only=True)
    class AddPartitionsToTxnPartitionResult:
        partition_index: int
        partition_error_code: int

    @final
    @dataclass(kw_only=True)
    class AddPartitionsToTxnResult:
        transactional_id: str
        topic_results: Sequence[Replies.AddPartitionsToTxnTopicResult]

Request = AddPartitionsToTxnRequest
Reply = type[Replies]
Response = Replies.AddPartitionsToTxnResponse
