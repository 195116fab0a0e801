"""Everything that the checkpoints of a bucket say, and the uploads that they do not name yet, read at once: what a
restore is planned from.

Owns which objects are read, several at a time, and what is wrong with them in words. Every function blocks. Must never
write to the store, nor give up on the whole because of one bad checkpoint.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from uuid import UUID

from tiered.cold.bucket import checkpoints, group_checkpoints
from tiered.cold.bucket.restored_settings import restored_settings
from tiered.cold.bucket.segments import load_tail
from tiered.cold.bucket.unnamed_uploads import continuing_uploads, newest_producer_id
from tiered.cold.object_store import ObjectStore
from tiered.errors import Corrupt, InvalidConfig, ObjectMissing
from tiered.formats.checkpoint import ClusterCheckpoint, CommittedSegment, PartitionCheckpoint, TopicEntry
from tiered.formats.segment_check import ExpectedSegment
from tiered.rules.segments.restore_plan import FoundBucket, FoundGroups, FoundPartition

Report = Callable[[int, int], None]
"""Takes how many are done, and of how many."""


def read_bucket(store: ObjectStore, *, parallel: int, report: Report = lambda _done, _total: None) -> FoundBucket:
    """Raises InvalidConfig when there is no cluster's checkpoint, CorruptObject when that one is damaged, and
    StoreUnavailable. Holds every committed segment's row in memory: about 1 KB each."""
    found = checkpoints.read_stored_cluster_checkpoint(store)
    if found is None:
        raise InvalidConfig(
            f"there is no cluster's checkpoint in {store.url}: are bucket and prefix those of `tiered serve --store`?"
        )
    cluster, etag = found
    topics = {topic.topic_id: topic for topic in cluster.topics}
    heads = checkpoints.list_partitions(store)
    # A partition without a head may have its first upload.
    all_partitions = {(topic.topic_id, number) for topic in cluster.topics for number in range(topic.partition_count)}
    wanted = sorted(all_partitions.union(key for key in heads if key[0] in topics))
    slots = group_checkpoints.list_slots(store)
    total = len(wanted) + len(slots)
    partitions: dict[tuple[UUID, int], FoundPartition] = {}
    groups: dict[int, FoundGroups] = {}
    group_faults: list[str] = []

    def read_wanted(key: tuple[UUID, int]) -> FoundPartition:
        topic_id, number = key
        return _read_partition(store, cluster, topics[topic_id], number)

    with ThreadPoolExecutor(parallel, thread_name_prefix="restore") as threads:
        for key, each in zip(wanted, threads.map(read_wanted, wanted), strict=True):
            partitions[key] = each
            report(len(partitions), total)
        for slot, stored in zip(slots, threads.map(partial(_read_groups, store), slots), strict=True):
            if isinstance(stored, str):
                group_faults.append(stored)
            elif stored is not None:
                groups[slot] = stored
            report(len(partitions) + len(groups), total)
    return FoundBucket(
        cluster=cluster,
        cluster_etag=etag,
        partitions=partitions,
        groups=groups,
        unlisted=tuple(key for key in heads if key[0] not in topics),
        group_faults=tuple(group_faults),
        settings=restored_settings(cluster),
    )


def _read_groups(store: ObjectStore, slot: int) -> FoundGroups | str | None:
    try:
        found = group_checkpoints.read_group_checkpoint(store, slot)
    except Corrupt as error:
        return f"consumer groups of slot {slot}: {error}"
    return None if found is None else FoundGroups(checkpoint=found[0], etag=found[1])


def _read_partition(store: ObjectStore, cluster: ClusterCheckpoint, topic: TopicEntry, number: int) -> FoundPartition:
    try:
        stored = checkpoints.read_partition(store, topic.topic_id, number)
    except ObjectMissing as error:
        return FoundPartition(fault=f"a page of its checkpoint is missing: {error}")
    except Corrupt as error:
        return FoundPartition(fault=str(error))
    head, segments = (_first_head(cluster, topic, number), ()) if stored is None else (stored.head, stored.segments)
    uploads = continuing_uploads(store, head, segments, {cluster.cluster_id, *cluster.previous_cluster_ids})
    if uploads:
        head = replace(
            head,
            cold_end_offset=uploads[-1].end_offset,
            leader_epoch=uploads[-1].leader_epoch,
            segments=(*head.segments, *uploads),
        )
    elif stored is None:
        return FoundPartition()
    etag = None if stored is None else stored.etag
    return _with_producers(store, head, etag, (*segments, *uploads), taken_back=len(uploads))


def _first_head(cluster: ClusterCheckpoint, topic: TopicEntry, number: int) -> PartitionCheckpoint:
    """The head of a partition before its first upload."""
    return PartitionCheckpoint(
        version=0,
        cluster_id=cluster.cluster_id,
        topic=topic.name,
        topic_id=topic.topic_id,
        partition=number,
        partition_count=topic.partition_count,
        log_start_offset=0,
        cold_end_offset=0,
        leader_epoch=0,
        pages=(),
        segments=(),
    )


def _with_producers(
    store: ObjectStore,
    head: PartitionCheckpoint,
    etag: str | None,
    segments: tuple[CommittedSegment, ...],
    *,
    taken_back: int,
) -> FoundPartition:
    """Asks the newest object for its producers, which its first leader will ask for too: it must be there."""
    producer_id = leader_epoch = -1
    if segments:
        place = ExpectedSegment(
            topic=head.topic, topic_id=head.topic_id, partition=head.partition, segment=segments[-1]
        )
        try:
            tail = load_tail(store, place)
            leader_epoch = max((epoch for epoch, _ in tail.leader_epochs), default=-1)
            producer_id = newest_producer_id(tail)
        except Corrupt as error:
            return FoundPartition(
                fault=f"its newest object cannot be used: {place}: {error}; `tiered verify` tells more"
            )
    return FoundPartition(
        head=head,
        etag=etag,
        segments=segments,
        newest_producer_id=producer_id,
        newest_leader_epoch=leader_epoch,
        taken_back=taken_back,
    )
