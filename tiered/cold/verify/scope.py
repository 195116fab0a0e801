"""The scope of a verification: the partitions whose heads are in the store, and the topics that they belong to.

Owns that choice, and the message for a store with nothing to check. Every function blocks. Must never count objects of
a deleted topic: its objects go before its checkpoints do.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from uuid import UUID

from tiered.cold.bucket import checkpoint_walk, checkpoints, group_checkpoints
from tiered.cold.object_store import ObjectStore
from tiered.errors import Corrupt, InvalidConfig, UnknownFormat
from tiered.formats import object_key
from tiered.formats.checkpoint import ClusterCheckpoint, CommittedSegment, PartitionCheckpoint
from tiered.formats.segment_check import ExpectedSegment, Fault, FaultKind

_NAMED = 10
_READS = 2  # The way here may be at fault, and not the object.


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ScopedPartition:
    """A partition that has a head. `topic` is the id's text where no readable checkpoint gives its name."""

    topic: str
    topic_id: UUID
    partition: int

    @property
    def head_key(self) -> str:
        return object_key.partition_checkpoint_key(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Partitions in order of names. `cluster_id` is empty when the cluster's checkpoint cannot say; `fault` is why.

    `cluster_ids` are that and those of the clusters that it continues after a restore.
    """

    cluster_id: str
    cluster_ids: frozenset[str]
    partitions: tuple[ScopedPartition, ...]
    fault: Fault | None
    deleted_topics: int
    never_uploaded: int
    """Partitions of these topics that have no head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedPage:
    """Some segments of a partition, in order of offsets; their footers say one of `cluster_ids` (none: unknown).

    `head` is None where it cannot be read."""

    partition: ScopedPartition
    head: PartitionCheckpoint | None
    cluster_ids: frozenset[str]
    segments: tuple[CommittedSegment, ...]
    faults: tuple[Fault, ...]

    def places(self) -> list[ExpectedSegment]:
        """The segments, as they are checked one by one."""
        return [
            ExpectedSegment(
                cluster_ids=self.cluster_ids,
                topic=self.partition.topic,
                topic_id=self.partition.topic_id,
                partition=self.partition.partition,
                segment=segment,
                is_first=index == 0,
            )
            for index, segment in enumerate(self.segments)
        ]


def find_scope(store: ObjectStore, topics: Collection[str] | None) -> Scope:
    """The partitions of `topics`, or of all. Raises InvalidConfig when there are no checkpoints, or no such topic."""
    heads = checkpoints.list_partitions(store)
    cluster, fault = _read_cluster(store)
    if cluster is None and fault is None:
        if not heads:
            raise InvalidConfig(
                f"there is no checkpoint in {store.url}: are bucket and prefix those of `tiered serve --store`? "
                "A broker writes the first one when it starts"
            )
        fault = checkpoint_fault(Corrupt("the cluster's checkpoint is missing: a broker writes it when it starts"))
    names = {} if cluster is None else {topic.topic_id: topic.name for topic in cluster.topics}
    deleted: set[UUID] = set()
    found: list[ScopedPartition] = []
    for topic_id, partition in heads:
        if cluster is not None and topic_id not in names:
            deleted.add(topic_id)
            continue
        name = names.get(topic_id) or _name_in_head(store, topic_id, partition)
        found.append(ScopedPartition(topic=name, topic_id=topic_id, partition=partition))
    if topics is not None:
        _require({*names.values(), *(each.topic for each in found)}, topics, store.url)
        found = [each for each in found if each.topic in topics]
    wanted = {
        (topic.topic_id, partition)
        for topic in (() if cluster is None else cluster.topics)
        if topics is None or topic.name in topics
        for partition in range(topic.partition_count)
    }
    return Scope(
        cluster_id="" if cluster is None else cluster.cluster_id,
        cluster_ids=frozenset() if cluster is None else frozenset((cluster.cluster_id, *cluster.previous_cluster_ids)),
        partitions=tuple(sorted(found)),
        fault=fault,
        deleted_topics=len(deleted),
        never_uploaded=len(wanted.difference((head.topic_id, head.partition) for head in found)),
    )


def pages_of(store: ObjectStore, scope: Scope, partition: ScopedPartition) -> Iterator[ScopedPage]:
    """The partition's segments, page by page, and the faults of its checkpoints. Raises StoreUnavailable alone."""
    try:
        for page in checkpoint_walk.walk(store, partition.topic_id, partition.partition):
            foreign = _foreign_head(page.head, scope.cluster_ids)
            yield ScopedPage(
                partition=partition,
                head=page.head,
                cluster_ids=scope.cluster_ids,
                segments=page.segments,
                faults=page.faults if foreign is None else (foreign, *page.faults),
            )
    except Corrupt as error:
        fault = checkpoint_fault(error)
        yield ScopedPage(partition=partition, head=None, cluster_ids=scope.cluster_ids, segments=(), faults=(fault,))


def group_faults(store: ObjectStore) -> list[tuple[str, Fault]]:
    """Key and fault of each damaged checkpoint of consumer groups. Raises StoreUnavailable."""
    found: list[tuple[str, Fault]] = []
    for slot in group_checkpoints.list_slots(store):
        error: Corrupt | None = None
        for _ in range(_READS):
            try:
                group_checkpoints.read_group_checkpoint(store, slot)
            except Corrupt as corrupt:
                error = corrupt
            else:
                break
        else:
            if error is not None:
                found.append((object_key.group_checkpoint_key(slot), checkpoint_fault(error)))
    return found


def is_still_named(store: ObjectStore, place: ExpectedSegment) -> bool:
    """False when brokers gave the segment up meanwhile: retention, DeleteRecords, or the topic's deletion."""
    try:
        cluster = checkpoints.read_cluster_checkpoint(store)
        if cluster is not None and place.topic_id not in {topic.topic_id for topic in cluster.topics}:
            return False
        found = checkpoint_walk.find(store, place.topic_id, place.partition, place.segment.base_offset)
    except Corrupt:
        return True
    return found is not None and found.object_id == place.segment.object_id


def checkpoint_fault(error: Corrupt) -> Fault:
    """A checkpoint that cannot be used, and with it no offset that it covers."""
    unknown = isinstance(error, UnknownFormat) or isinstance(error.__cause__, UnknownFormat)
    kind = FaultKind.UNKNOWN_FORMAT if unknown else FaultKind.CHECKPOINT
    return Fault(kind=kind, message=str(error), first_offset=-1, last_offset=-1)


def _read_cluster(store: ObjectStore) -> tuple[ClusterCheckpoint | None, Fault | None]:
    fault: Fault | None = None
    for _ in range(_READS):
        try:
            return checkpoints.read_cluster_checkpoint(store), None
        except Corrupt as error:
            fault = checkpoint_fault(error)
    return None, fault


def _foreign_head(head: PartitionCheckpoint, cluster_ids: Collection[str]) -> Fault | None:
    if not cluster_ids or head.cluster_id in cluster_ids:
        return None
    return checkpoint_fault(Corrupt(f"the head belongs to another cluster, {head.cluster_id}"))


def _name_in_head(store: ObjectStore, topic_id: UUID, partition: int) -> str:
    try:
        stored = checkpoints.read_partition_checkpoint(store, topic_id, partition)
    except Corrupt:
        stored = None
    return str(topic_id) if stored is None else stored.checkpoint.topic


def _require(known: Collection[str], topics: Collection[str], url: str) -> None:
    unknown = sorted(set(topics) - set(known))
    if unknown:
        some = ", ".join(sorted(known)[:_NAMED]) or "no topic at all"
        more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
        raise InvalidConfig(f"{url} has no topic {unknown[0]}; it has {some}{more}")
