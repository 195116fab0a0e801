from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class MetadataRequest:
    topics: Sequence[MetadataRequestTopic] | None
    allow_auto_topic_creation: bool = ...
    include_cluster_authorized_operations: bool = ...
    include_topic_authorized_operations: bool = ...

@final
@dataclass(kw_only=True)
class MetadataRequestTopic:
    name: str | None
    topic_id: UUID | None = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class MetadataResponse:
        brokers: Sequence[Replies.MetadataResponseBroker]
        topics: Sequence[Replies.MetadataResponseTopic]
        controller_id: int = ...
        cluster_id: str | None = ...
        throttle_time: int = ...
        cluster_authorized_operations: int = ...
        error_code: int = ...

    @final
    @dataclass(kw_only=True)
    class MetadataResponseBroker:
        node_id: int
        host: str
        port: int
        rack: str | None = ...

    @final
    @dataclass(kw_only=True)
    class MetadataResponseTopic:
        error_code: int
        name: str | None
        partitions: Sequence[Replies.MetadataResponsePartition]
        is_internal: bool = ...
        topic_authorized_operations: int = ...
        topic_id: UUID | None = ...

    @final
    @dataclass(kw_only=True)
    class MetadataResponsePartition:
        error_code: int
        partition_index: int
        leader_id: int
        replica_nodes: Sequence[int] = ...
        isr_nodes: Sequence[int] = ...
        offline_replicas: Sequence[int] = ...
        leader_epoch: int = ...

Request = MetadataRequest
Reply = type[Replies]
Response = Replies.MetadataResponse
