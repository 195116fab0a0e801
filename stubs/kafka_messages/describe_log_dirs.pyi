from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class DescribeLogDirsRequest:
    topics: Sequence[DescribableLogDirTopic] | None

@final
@dataclass(kw_only=True)
class DescribableLogDirTopic:
    topic: str
    partitions: Sequence[int] = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class DescribeLogDirsResponse:
        throttle_time: int = ...
        results: Sequence[Replies.DescribeLogDirsResult]
        error_code: int = ...

    @final
    @dataclass(kw_only=True)
    class DescribeLogDirsResult:
        error_code: int
        log_dir: str
        topics: Sequence[Replies.DescribeLogDirsTopic]
        total_bytes: int = ...
        usable_bytes: int = ...

    @final
    @dataclass(kw_only=True)
    class DescribeLogDirsTopic:
        name: str
        partitions: Sequence[Replies.DescribeLogDirsPartition]

    @final
    @dataclass(kw_only=True)
    class DescribeLogDirsPartition:
        partition_index: int
        partition_size: int
        offset_lag: int
        is_future_key: bool

Request = DescribeLogDirsRequest
Reply = type[Replies]
Response = Replies.DescribeLogDirsResponse
