from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class WriteTxnMarkersRequest:
    markers: Sequence[WritableTxnMarker]

@final
@dataclass(kw_only=True)
class WritableTxnMarker:
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: Sequence[WritableTxnMarkerTopic]
    coordinator_epoch: int
    transaction_version: int = ...

@final
@dataclass(kw_only=True)
class WritableTxnMarkerTopic:
    name: str
    partition_indexes: Sequence[int] = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class WriteTxnMarkersResponse:
        markers: Sequence[Replies.WritableTxnMarkerResult]

    @final
    @dataclass(kw_only=True)
    class WritableTxnMarkerResult:
        producer_id: int
        topics: Sequence[Replies.WritableTxnMarkerTopicResult]

    @final
    @dataclass(kw_only=True)
    class WritableTxnMarkerTopicResult:
        name: str
        partitions: Sequence[Replies.WritableTxnMarkerPartitionResult]

    @final
    @dataclass(kw_only=True)
    class WritableTxnMarkerPartitionResult:
        partition_index: int
        error_code: int

Request = WriteTxnMarkersRequest
Reply = type[Replies]
Response = Replies.WriteTxnMarkersResponse
