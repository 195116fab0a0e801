from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool
    endpoint_type: int = ...
    include_fenced_brokers: bool = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class DescribeClusterResponse:
        throttle_time: int = ...
        error_code: int
        error_message: str | None = ...
        cluster_id: str
        controller_id: int = ...
        brokers: Sequence[Replies.DescribeClusterBroker]
        cluster_authorized_operations: int = ...
        endpoint_type: int = ...

    @final
    @dataclass(kw_only=True)
    class DescribeClusterBroker:
        broker_id: int
        host: str
        port: int
        rack: str | None = ...
        is_fenced: bool = ...

Request = DescribeClusterRequest
Reply = type[Replies]
Response = Replies.DescribeClusterResponse
