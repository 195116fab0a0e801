from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class CreateTopicsRequest:
    topics: Sequence[CreatableTopic]
    timeout: int = ...
    validate_only: bool = ...

@final
@dataclass(kw_only=True)
class CreatableTopic:
    name: str
    num_partitions: int
    replication_factor: int
    assignments: Sequence[CreatableReplicaAssignment]
    configs: Sequence[CreatableTopicConfig]

@final
@dataclass(kw_only=True)
class CreatableReplicaAssignment:
    partition_index: int
    broker_ids: Sequence[int] = ...

@final
@dataclass(kw_only=True)
class CreatableTopicConfig:
    name: str
    value: str | None

class Replies:
    @final
    @dataclass(kw_only=True)
    class CreateTopicsResponse:
        throttle_time: int = ...
        topics: Sequence[Replies.CreatableTopicResult]

    @final
    @dataclass(kw_only=True)
    class CreatableTopicResult:
        name: str
        error_code: int
        error_message: str | None
        topic_config_error_code: int = ...
        num_partitions: int = ...
        replication_factor: int = ...
        configs: Sequence[Replies.CreatableTopicConfigs] | None = ...
        topic_id: UUID | None = ...

    @final
    @dataclass(kw_only=True)
    class CreatableTopicConfigs:
        name: str
        value: str | None
        read_only: bool
        config_source: int = ...
        is_sensitive: bool

Request = CreateTopicsRequest
Reply = type[Replies]
Response = Replies.CreateTopicsResponse
