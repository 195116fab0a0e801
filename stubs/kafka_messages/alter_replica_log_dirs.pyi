from collections.abc import Sequence
from dataclasses import dataclass
from typing import final
from uuid import UUID

@final
@dataclass(kw_only=True)
class AlterReplicaLogDirsRequest:
    dirs: Sequence[AlterReplicaLogDir]

@final
@dataclass(kw_only=True)
class AlterReplicaLogDir:
    path: str
    topics: Sequence[AlterReplicaLogDirTopic]

@final
@dataclass(kw_only=True)
class AlterReplicaLogDirTopic:
    name: str
    partitions: Sequence[int] = ...

class Replies:
    @final
    @dataclass(kw_only=True)
    class AlterReplicaLogDirsResponse:
        throttle_time: int = ...
        results: Sequence[Replies.AlterReplicaLogDirTopicResult]

    @final
    @dataclass(kw_only=True)
    class AlterReplicaLogDirTopicResult:
        topic_name: str
        partitions: Sequence[Replies.AlterReplicaLogDirPartitionResult]

    @final
    @dataclass(kw_only=True)
    class AlterReplicaLogDirPartitionResult:
        partition_index: int
        error_code: int

Request = AlterReplicaLogDirsRequest
Reply = type[Replies]
Response = Replies.AlterReplicaLogDirsResponse
