"""Takes a bucket over for the cluster that a plan restores: its checkpoints become that cluster's.

Owns the order, and the one thing that makes a restore safe while somebody of the old cluster still lives: each
checkpoint is replaced by compare-and-swap over what the plan was made from, under the new cluster's id and a leader
epoch of the new life. From then on brokers of the old cluster are refused, and delete nothing: an object goes only
after the checkpoint that no longer names it was written. Every function blocks. Must never write other segments or
offsets than the plan was made from, so that it can be interrupted anywhere and begun again.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tiered.cold.object_store import ObjectStore
from tiered.errors import LostRace, ObjectExists
from tiered.formats import object_key
from tiered.formats.checkpoint import (
    ClusterCheckpoint,
    PartitionCheckpoint,
    TopicEntry,
    encode_cluster_checkpoint,
    encode_partition_checkpoint,
)
from tiered.formats.group_checkpoint import encode_group_checkpoint
from tiered.rules.segments.restore_plan import (
    FoundBucket,
    FoundPartition,
    RestoredPartition,
    RestoredTopic,
    RestorePlan,
)
from tiered.runtime import crash_point

Report = Callable[[int, int], None]
"""Takes how many checkpoints are taken over, and of how many."""


def claim(
    store: ObjectStore,
    plan: RestorePlan,
    found: FoundBucket,
    *,
    parallel: int,
    report: Report = lambda _done, _total: None,
) -> None:
    """Returns when every checkpoint is the new cluster's. Raises LostRace when somebody wrote one since the plan was
    made: no cluster may begin with rows that are older than the bucket."""
    _swap(
        store,
        object_key.cluster_checkpoint_key(),
        encode_cluster_checkpoint(_cluster(plan, found.cluster)),
        found.cluster_etag,
    )
    crash_point("restore.claimed_cluster")
    partitions = [(topic, partition) for topic in plan.topics for partition in topic.partitions]
    total = len(partitions) + len(found.groups)
    done = 0
    with ThreadPoolExecutor(parallel, thread_name_prefix="claim") as threads:

        def claim_groups(slot: int) -> None:
            before = found.groups[slot]
            after = replace(before.checkpoint, cluster_id=plan.cluster_id, slot_epoch=plan.slot_epoch)
            _swap(store, object_key.group_checkpoint_key(slot), encode_group_checkpoint(after), before.etag)

        def claim_partition(which: tuple[RestoredTopic, RestoredPartition]) -> None:
            topic, partition = which
            before = found.partitions.get((topic.topic_id, partition.partition), FoundPartition())
            key = object_key.partition_checkpoint_key(topic.topic_id, partition.partition)
            _swap(store, key, encode_partition_checkpoint(_head(plan, topic, partition, before)), before.etag)

        for _ in threads.map(claim_groups, sorted(found.groups)):
            done += 1
            report(done, total)
        for _ in threads.map(claim_partition, partitions):
            done += 1
            report(done, total)
            crash_point("restore.claimed_some")


def _cluster(plan: RestorePlan, former: ClusterCheckpoint) -> ClusterCheckpoint:
    """Settings and access rules stay as they were, also those that the plan leaves out: a run that is interrupted now
    is run again, and the next one may accept them."""
    return replace(
        former,
        version=plan.change_number,
        cluster_id=plan.cluster_id,
        topics=tuple(
            TopicEntry(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_count=len(topic.partitions),
                configs=dict(topic.configs),
                replication_factor=topic.former_replication_factor,
            )
            for topic in plan.topics
        ),
        previous_cluster_ids=plan.previous_cluster_ids,
        pins=plan.pins,
    )


def _head(
    plan: RestorePlan, topic: RestoredTopic, partition: RestoredPartition, before: FoundPartition
) -> PartitionCheckpoint:
    if before.head is not None:
        return replace(
            before.head,
            version=before.head.version + 1,
            cluster_id=plan.cluster_id,
            leader_epoch=partition.leader_epoch,
            partition_count=len(topic.partitions),
        )
    # Also where nothing was ever uploaded: else the old cluster could still take the partition for itself.
    return PartitionCheckpoint(
        version=1,
        cluster_id=plan.cluster_id,
        topic=topic.name,
        topic_id=topic.topic_id,
        partition=partition.partition,
        partition_count=len(topic.partitions),
        log_start_offset=partition.log_start_offset,
        cold_end_offset=partition.cold_end_offset,
        leader_epoch=partition.leader_epoch,
        pages=(),
        segments=(),
    )


def _swap(store: ObjectStore, key: str, data: bytes, etag: str | None) -> None:
    try:
        store.put(key, data, create_only=etag is None, if_match=etag)
    except (LostRace, ObjectExists) as error:
        raise LostRace(
            f"{key} was written since the plan was made: stop every broker of the old cluster, and any other restore "
            "from this store, then begin again"
        ) from error
