"""Everything that the checkpoints of a bucket say, read at once: what a restore is planned from.

Owns which objects are read, several at a time, and what is wrong with them in words. Every function blocks. Must never
write to the store, nor give up on the whole because of one bad checkpoint.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID

from tiered.cold.bucket import checkpoints, group_checkpoints
from tiered.cold.bucket.checkpoints import StoredPartition
from tiered.cold.bucket.restored_settings import restored_settings
from tiered.cold.bucket.segments import load_tail
from tiered.cold.object_store import ObjectStore
from tiered.errors import Corrupt, CorruptObject, InvalidConfig, ObjectMissing
from tiered.formats.json_fields import MAX_NUMBER
from tiered.formats.producer_snapshot import decode_producers
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
    known = {topic.topic_id for topic in cluster.topics}
    heads = checkpoints.list_partitions(store)
    wanted = [key for key in heads if key[0] in known]
    slots = group_checkpoints.list_slots(store)
    total = len(wanted) + len(slots)
    partitions: dict[tuple[UUID, int], FoundPartition] = {}
    groups: dict[int, FoundGroups] = {}
    group_faults: list[str] = []
    with ThreadPoolExecutor(parallel, thread_name_prefix="restore") as threads:
        for key, each in zip(wanted, threads.map(partial(_read_partition, store), wanted), strict=True):
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
        unlisted=tuple(key for key in heads if key[0] not in known),
        group_faults=tuple(group_faults),
        settings=restored_settings(cluster),
    )


def _read_groups(store: ObjectStore, slot: int) -> FoundGroups | str | None:
    try:
        found = group_checkpoints.read_group_checkpoint(store, slot)
    except Corrupt as error:
        return f"consumer groups of slot {slot}: {error}"
    return None if found is None else FoundGroups(checkpoint=found[0], etag=found[1])


def _read_partition(store: ObjectStore, key: tuple[UUID, int]) -> FoundPartition:
    topic_id, number = key
    try:
        found = checkpoints.read_partition(store, topic_id, number)
    except ObjectMissing as error:
        return FoundPartition(fault=f"a page of its checkpoint is missing: {error}")
    except Corrupt as error:
        return FoundPartition(fault=str(error))
    return FoundPartition() if found is None else _with_producers(store, found)


def _with_producers(store: ObjectStore, found: StoredPartition) -> FoundPartition:
    """Asks the newest object for its producers, which its first leader will ask for too: it must be there."""
    head, segments = found.head, found.segments
    newest_producer_id = newest_leader_epoch = -1
    if segments:
        place = ExpectedSegment(
            topic=head.topic, topic_id=head.topic_id, partition=head.partition, segment=segments[-1]
        )
        try:
            tail = load_tail(store, place)
            newest_leader_epoch = max((epoch for epoch, _ in tail.leader_epochs), default=-1)
            producers = decode_producers(tail.producer_snapshot)
            newest_producer_id = max((each.producer_id for each in producers), default=-1)
            if newest_producer_id > MAX_NUMBER:
                raise CorruptObject(f"producer id {newest_producer_id} leaves no room for new ones")
        except Corrupt as error:
            return FoundPartition(
                fault=f"its newest object cannot be used: {place}: {error}; `tiered verify` tells more"
            )
    return FoundPartition(
        head=head,
        etag=found.etag,
        segments=segments,
        newest_producer_id=newest_producer_id,
        newest_leader_epoch=newest_leader_epoch,
    )
