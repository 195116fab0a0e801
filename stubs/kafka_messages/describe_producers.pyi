from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class DescribeProducersRequest:
    topics: Sequence[TopicRequest]

@final
@dataclass(kw_only=True)
class TopicRequest:
    name: str
    partition_indexes: Sequence[int] = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class DescribeProducersResponse:
        throttle_time: int = ...
        topics: Sequence[Replies.TopicResponse]

    @final
    @dataclass(kw_only=True)
    class TopicResponse:
        name: str
        partitions: Sequence[Replies.PartitionResponse]

    @final
    @dataclass(kw_only=True)
    class PartitionResponse:
        partition_index: int
        error_code: int
        error_message: str | None = ...
        active_producers: Sequence[Replies.ProducerState]

    @final
    @dataclass(kw_only=True)
    class ProducerState:
        producer_id: int
        producer_epoch: int
        last_sequence: int = ...
        last_timestamp: int = ...
        coordinator_epoch: int
        current_txn_start_offset: int = ...

Request = DescribeProducersRequest
Reply = type[Replies]
Response = Replies.DescribeProducersResponse
