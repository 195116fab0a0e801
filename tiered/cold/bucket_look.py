"""One look after another at a bucket that somebody else writes, each at the price of what has changed since the last.

Owns what is read of the checkpoints, and when that is needless: a head whose etag is known is not read again, nor is a
sealed page. Every function blocks. Must never write to the store.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from uuid import UUID

from tiered.cold import checkpoints
from tiered.cold.object_store import ObjectStore
from tiered.errors import ObjectMissing
from tiered.formats import object_key
from tiered.formats.checkpoint import ClusterCheckpoint, CommittedSegment, PartitionCheckpoint
from tiered.rules.cold_partition import ColdPartition, cold_partition

_ATTEMPTS = 3
_NO_PAGES: Mapping[str, tuple[CommittedSegment, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLook:
    """The cluster's checkpoint, and what to compare the next one with."""

    checkpoint: ClusterCheckpoint
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLook:
    """A partition, the etag of its head ("" where there was none), and its sealed pages by their keys."""

    partition: ColdPartition
    etag: str
    pages: Mapping[str, tuple[CommittedSegment, ...]] = field(default_factory=lambda: _NO_PAGES)


def look_at_cluster(store: ObjectStore, before: ClusterLook | None) -> ClusterLook | None:
    """The cluster as it is now, `before` itself when nothing has changed; None when there is no checkpoint.

    Raises CorruptObject, StoreUnavailable.
    """
    if before is not None:
        info = store.head(object_key.cluster_checkpoint_key())
        if info is not None and info.etag == before.etag:
            return before
    found = checkpoints.read_stored_cluster_checkpoint(store)
    return None if found is None else ClusterLook(checkpoint=found[0], etag=found[1])


def look_at_partition(
    store: ObjectStore, topic: str, topic_id: UUID, partition: int, before: PartitionLook | None
) -> PartitionLook:
    """The partition as it is now, `before` itself when nothing has changed; without any records where it has no head
    yet. Raises CorruptObject, ObjectMissing, StoreUnavailable."""
    for attempt in range(_ATTEMPTS):
        if before is not None:
            info = store.head(object_key.partition_checkpoint_key(topic_id, partition))
            if (info.etag if info is not None else "") == before.etag:
                return before
        stored = checkpoints.read_partition_checkpoint(store, topic_id, partition)
        if stored is None:
            return PartitionLook(partition=ColdPartition(topic=topic, topic_id=topic_id, partition=partition), etag="")
        try:
            pages = _pages(store, stored.checkpoint, _NO_PAGES if before is None else before.pages)
        except ObjectMissing:
            if attempt == _ATTEMPTS - 1:
                raise
            continue  # The head may have moved on since it was read, and the page been removed.
        found = [segment for page in pages.values() for segment in page]
        found.extend(stored.checkpoint.segments)
        above = [segment for segment in found if segment.end_offset > stored.checkpoint.log_start_offset]
        return PartitionLook(partition=cold_partition(stored.checkpoint, above), etag=stored.etag, pages=pages)
    raise AssertionError("unreachable")


def _pages(
    store: ObjectStore, head: PartitionCheckpoint, known: Mapping[str, tuple[CommittedSegment, ...]]
) -> Mapping[str, tuple[CommittedSegment, ...]]:
    """The pages above the log start, in order. A page's key has its hash: one that is known is not read again."""
    return {
        each.key: known[each.key] if each.key in known else checkpoints.read_page(store, each.key, head).segments
        for each in head.pages
        if each.end_offset > head.log_start_offset
    }
