"""One look after another at a bucket that somebody else writes, each at the price of what has changed since the last.

Owns what is read of the checkpoints, and when that is needless: a head whose etag is known is not read again, nor is a
sealed page. Every function blocks. Must never write to the store.
"""

from dataclasses import dataclass, field
from uuid import UUID

from tiered.cold.bucket import checkpoints
from tiered.cold.object_store import ObjectStore
from tiered.errors import CorruptObject
from tiered.formats import object_key
from tiered.formats.checkpoint import ClusterCheckpoint
from tiered.rules.segments.cold_partition import ColdPartition, cold_partition

_RESTART = "put the newest back, or restart this read replica to take it as it is"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLook:
    """The cluster's checkpoint, and what to compare the next one with."""

    checkpoint: ClusterCheckpoint
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLook:
    """A partition, the etag of its head ("" where there was none), the cluster that wrote it, and its sealed pages by
    their keys."""

    partition: ColdPartition
    etag: str
    cluster_id: str = ""
    pages: checkpoints.Pages = field(default_factory=dict)


def look_at_cluster(store: ObjectStore, before: ClusterLook | None) -> ClusterLook | None:
    """The cluster as it is now, `before` itself when nothing has changed; None when there is no checkpoint.

    Raises CorruptObject, also where an older checkpoint of the same cluster has come back, and StoreUnavailable.
    """
    if before is not None:
        info = store.head(object_key.cluster_checkpoint_key())
        if info is not None and info.etag == before.etag:
            return before
    found = checkpoints.read_stored_cluster_checkpoint(store)
    if found is None:
        return None
    checkpoint, etag = found
    if before is not None and checkpoint.cluster_id == before.checkpoint.cluster_id:
        seen = before.checkpoint.version
        if checkpoint.version < seen:
            raise CorruptObject(
                f"checkpoint {object_key.cluster_checkpoint_key()} has version {checkpoint.version}, and had {seen}: "
                f"an older one was put in its place; {_RESTART}"
            )
    return ClusterLook(checkpoint=checkpoint, etag=etag)


def look_at_partition(
    store: ObjectStore, topic: str, topic_id: UUID, partition: int, before: PartitionLook | None
) -> PartitionLook:
    """The partition as it is now, `before` itself when nothing has changed; without any records where it has no head
    yet. Raises CorruptObject, also where it would go back behind `before`, ObjectMissing, StoreUnavailable."""
    if before is not None:
        info = store.head(object_key.partition_checkpoint_key(topic_id, partition))
        if (info.etag if info is not None else "") == before.etag:
            return before
    found = checkpoints.read_partition(store, topic_id, partition, known={} if before is None else before.pages)
    if found is None:
        none = ColdPartition(topic=topic, topic_id=topic_id, partition=partition)
        return _onwards(before, PartitionLook(partition=none, etag=""))
    now = cold_partition(found.head, found.segments)
    after = PartitionLook(partition=now, etag=found.etag, cluster_id=found.head.cluster_id, pages=found.pages)
    return _onwards(before, after)


def _onwards(before: PartitionLook | None, after: PartitionLook) -> PartitionLook:
    """`after`, unless it goes back behind `before`: a log's ends only grow. Readers who are further would be told that
    their offsets are out of range, and begin anew or leave records out. A cluster that was restored begins where it
    likes."""
    if before is None or after.cluster_id not in ("", before.cluster_id):
        return after
    was, now = before.partition, after.partition
    if now.log_start_offset >= was.log_start_offset and now.cold_end_offset >= was.cold_end_offset:
        return after
    raise CorruptObject(
        f"the checkpoint of {was.name} goes back from offsets {was.log_start_offset} to {was.cold_end_offset} to "
        f"{now.log_start_offset} to {now.cold_end_offset}: it is gone, or an older one was put in its place; {_RESTART}"
    )
