"""Which brokers there are and which of them lead what, as one Metadata answer told it.

Owns these values and how addresses are written. Must never connect to anything, nor remember what was true before.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tiered.errors import InvalidConfig
from tiered.peer.answers import CorruptAnswer

TopicPartition = tuple[str, int]

MAX_PARTITIONS = 1_000_000
"""Of one topic: who reads them all asks for each number below the highest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """Where a broker listens."""

    broker_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """The leader and replicas of a partition: `leader_id` and `leader_epoch` are -1 where no leader is known."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]

    @property
    def out_of_sync_replicas(self) -> tuple[int, ...]:
        """The replicas that lack records, or whose broker is away; the partition is under-replicated by these."""
        return tuple(broker_id for broker_id in self.replicas if broker_id not in self.in_sync_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """A topic as a broker described it; `error_code` is not 0 where it could not. Partitions are in their order."""

    name: str
    topic_id: UUID | None
    partitions: tuple[PartitionMetadata, ...]
    error_code: int
    is_internal: bool

    @property
    def replication_factor(self) -> int:
        """How many replicas each partition has; the most, should they differ."""
        return max((len(each.replicas) for each in self.partitions), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """The content of one Metadata answer."""

    brokers: Mapping[int, BrokerAddress]
    topics: Mapping[str, TopicMetadata]


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions' numbers under their topics, in the order given."""
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


def parse_bootstrap(servers: str) -> list[tuple[str, int]]:
    """`host:port,host` as (host, port) pairs; the port is 9092 where none is given. Raises InvalidConfig."""
    found = []
    for each in filter(None, (part.strip() for part in servers.split(","))):
        if "://" in each:
            address = each.partition("://")[2].partition("/")[0] or "host:port"
            raise InvalidConfig(f"{each!r} is a URL, and brokers have none; write {address}")
        host, colon, port = each.rpartition(":")
        if not colon or each.endswith("]"):
            host, port = each, "9092"
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise InvalidConfig(f"{each!r} is no address of a broker; write host:port")
        found.append((host, int(port)))
    if not found:
        raise InvalidConfig("no address of a broker is given; write host:port[,host:port...]")
    return found


def topic_metadata(described: Any) -> TopicMetadata:
    """A topic as one Metadata answer, of any version, describes it. Raises CorruptAnswer."""
    if described.name is None:
        raise CorruptAnswer("a broker describes a topic without a name")
    for each in described.partitions:
        if not 0 <= each.partition_index < MAX_PARTITIONS:
            raise CorruptAnswer(f"a broker tells of partition {each.partition_index} of topic {described.name}")
    partitions = [
        PartitionMetadata(
            partition=each.partition_index,
            leader_id=each.leader_id,
            leader_epoch=getattr(each, "leader_epoch", -1),
            replicas=tuple(each.replica_nodes),
            in_sync_replicas=tuple(each.isr_nodes),
        )
        for each in described.partitions
    ]
    return TopicMetadata(
        name=described.name,
        topic_id=getattr(described, "topic_id", None),
        partitions=tuple(sorted(partitions, key=lambda each: each.partition)),
        error_code=described.error_code,
        is_internal=getattr(described, "is_internal", False),
    )
