"""Brokers and replicas from outside: who there is, what each holds, moves and elections. For tools.

Owns how each request is put, and what its answer means across versions. Keeps nothing, and must never decide where a
replica goes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tiered.errors import TieredError
from tiered.peer.answers import require_success
from tiered.peer.cluster import Cluster
from tiered.peer.topology import TopicPartition, numbers_by_topic
from tiered.rules.replication.placement import BrokerPlace, place_of
from tiered.wire.error_codes import reason

DESCRIBE_LOG_DIRS, ELECT_LEADERS = 35, 43
ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS, DESCRIBE_CLUSTER, UNREGISTER_BROKER = 45, 46, 60, 64
PREFERRED, UNCLEAN = 0, 1
TIMEOUT_MS = 30_000

_BROKERS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedBroker:
    """A registered broker; a fenced one is out of service."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool

    @property
    def place(self) -> BrokerPlace:
        return place_of(self.broker_id, rack=self.rack, host=self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedCluster:
    """The brokers by id. `controller_id` is -1 while there is none."""

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, DescribedBroker]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDisk:
    """The replicas that one broker holds on disk; -1 for a number that it does not tell."""

    total_bytes: int
    usable_bytes: int
    replica_bytes: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A partition that is being moved."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRefusal:
    """Why a partition was left as it was: Kafka's code, and the broker's words where it has some."""

    code: int
    message: str | None

    def __str__(self) -> str:
        return reason(self.code, self.message)


async def describe_cluster(cluster: Cluster) -> DescribedCluster:
    """Every registered broker; those out of service too, where the broker that answers can tell (KIP-1073)."""
    answer = await cluster.request(
        DESCRIBE_CLUSTER,
        lambda make: make.DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=_BROKERS, include_fenced_brokers=True
        ),
    )
    require_success(answer, "the cluster did not describe itself")
    return DescribedCluster(
        cluster_id=answer.cluster_id,
        controller_id=answer.controller_id,
        brokers={
            each.broker_id: DescribedBroker(
                broker_id=each.broker_id,
                host=each.host,
                port=each.port,
                rack=each.rack,
                is_fenced=getattr(each, "is_fenced", False),
            )
            for each in sorted(answer.brokers, key=lambda each: int(each.broker_id))
        },
    )


async def local_disk(cluster: Cluster, broker_id: int) -> LocalDisk | None:
    """The replicas on the broker's disks; None where it has gone away, or does not tell this client."""
    try:
        return await describe_disk(cluster, broker_id)
    except TieredError:
        return None


async def describe_disk(cluster: Cluster, broker_id: int) -> LocalDisk:
    """The replicas on the broker's disks. Raises BrokerError with the broker's reason."""
    answer = await cluster.request(
        DESCRIBE_LOG_DIRS, lambda make: make.DescribeLogDirsRequest(topics=None), broker_id=broker_id
    )
    require_success(answer, f"broker {broker_id} did not describe its disks")
    sizes: dict[TopicPartition, int] = {}
    for folder in answer.results:
        for topic in folder.topics:
            for each in topic.partitions:
                key = (topic.name, each.partition_index)
                sizes[key] = sizes.get(key, 0) + each.partition_size
    return LocalDisk(
        total_bytes=sum(getattr(each, "total_bytes", -1) for each in answer.results),
        usable_bytes=sum(getattr(each, "usable_bytes", -1) for each in answer.results),
        replica_bytes=sizes,
    )


async def alter_reassignments(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, PartitionRefusal | None]:
    """Begins moves, and cancels those whose target is None; what became of each."""
    by_topic = numbers_by_topic(targets)
    answer = await cluster.request(
        ALTER_PARTITION_REASSIGNMENTS,
        lambda make: make.AlterPartitionReassignmentsRequest(
            timeout=TIMEOUT_MS,
            allow_replication_factor_change=True,
            topics=[
                make.ReassignableTopic(
                    name=topic,
                    partitions=[
                        make.ReassignablePartition(partition_index=number, replicas=targets[topic, number])
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic.items()
            ],
        ),
    )
    require_success(answer, "the reassignment was refused")
    return {
        (topic.name, each.partition_index): _refusal(each.error_code, each.error_message)
        for topic in answer.responses
        for each in topic.partitions
    }


async def list_reassignments(cluster: Cluster) -> dict[TopicPartition, Reassignment]:
    """The partitions that are being moved."""
    answer = await cluster.request(
        LIST_PARTITION_REASSIGNMENTS,
        lambda make: make.ListPartitionReassignmentsRequest(timeout=TIMEOUT_MS, topics=None),
    )
    require_success(answer, "the reassignments were not listed")
    return {
        (topic.name, each.partition_index): Reassignment(
            replicas=tuple(each.replicas),
            adding_replicas=tuple(each.adding_replicas),
            removing_replicas=tuple(each.removing_replicas),
        )
        for topic in answer.topics
        for each in topic.partitions
    }


async def elect_leaders(
    cluster: Cluster, election_type: int, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, PartitionRefusal | None]:
    """What became of each; None asks for all partitions, and answers for those that were tried alone."""
    by_topic = None if partitions is None else numbers_by_topic(partitions)
    answer = await cluster.request(
        ELECT_LEADERS,
        lambda make: make.ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=None
            if by_topic is None
            else [make.TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()],
            timeout=TIMEOUT_MS,
        ),
    )
    require_success(answer, "no election was held")
    return {
        (result.topic, each.partition_id): _refusal(each.error_code, each.error_message)
        for result in answer.replica_election_results
        for each in result.partition_result
    }


async def unregister_broker(cluster: Cluster, broker_id: int) -> PartitionRefusal | None:
    """Forgets a broker that will not come back."""
    answer = await cluster.request(UNREGISTER_BROKER, lambda make: make.UnregisterBrokerRequest(broker_id=broker_id))
    return _refusal(answer.error_code, answer.error_message)


def _refusal(code: int, message: str | None) -> PartitionRefusal | None:
    return PartitionRefusal(code=code, message=message) if code else None
