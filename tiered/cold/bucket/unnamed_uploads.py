"""Uploads that a partition's checkpoint does not name yet: it is written up to a minute after their commit in SQL.

Owns which listed objects continue the chain of a partition's segments, from its cold end on. An object is taken only if
all of this holds:

- it begins where the chain ends so far, so it lies above the log start, and no offset is skipped;
- its leader epoch is not below that of the chain or of the checkpoint. What an earlier restore left behind is below:
  that life of the cluster has ended, and the offsets may have been written anew;
- its tail is whole, and agrees with its key and its size;
- its footer names a cluster of the lineage, and the root of the segment before it.

An object to which several uploads were joined (decision 0032) ends the chain as far as roots tell: the one behind it
names the root of an upload that is gone. There its footer is taken at its word, for want of anything better, if the
object before it was taken like this too; and what was joined is known by it.

Of several such objects the one of the highest leader epoch is taken, as SQL would have it: a leader plans an upload
only while its offsets are not committed, and from then on no former leader can commit them. Of one epoch it is the one
that ends last, then the largest: an upload and not what compaction has made of it, for the next upload names the root
of the former.

Whether such an upload was committed only the lost database knew. One that was not has the same records: a broker
uploads only what every replica has to keep (T1). Every function blocks. Must never call a partition damaged because
such an object is: nothing vouches for it.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from tiered.cold.bucket.segments import load_footer, load_tail
from tiered.cold.object_store import LIST_KEYS, ObjectStore
from tiered.errors import Corrupt, CorruptObject
from tiered.formats.checkpoint import CommittedSegment, PartitionCheckpoint
from tiered.formats.json_fields import MAX_EPOCH, MAX_NUMBER
from tiered.formats.object_key import partition_segments_prefix
from tiered.formats.producer_snapshot import decode_producers
from tiered.formats.segment_check import ExpectedSegment
from tiered.formats.segment_object import NO_ROOT, SegmentTail
from tiered.rules.segments.reconcile import Listed, listed_segments
from tiered.runtime import SystemClock

FEWEST_JOINED = 2
"""How many uploads were joined only the checkpoint knew. Any number says that it is no compacted object."""
MAX_CANDIDATES = 10
"""So many objects that begin at the same offset are read."""


def continuing_uploads(
    store: ObjectStore, head: PartitionCheckpoint, segments: Sequence[CommittedSegment], cluster_ids: Collection[str]
) -> tuple[CommittedSegment, ...]:
    """The uploads that continue `segments`, which `head` names, oldest first: at most `LIST_KEYS`. One listing, and a
    few small requests for every object that may be one. Raises StoreUnavailable."""
    prefix = partition_segments_prefix(head.topic, head.topic_id, head.partition)
    listing = store.list(prefix, start_after=f"{prefix}{head.cold_end_offset:020}", limit=LIST_KEYS)
    candidates: dict[int, list[Listed]] = {}
    for candidate in sorted(listed_segments(listing), key=_rank, reverse=True):
        candidates.setdefault(candidate.key.base_offset, []).append(candidate)
    before = segments[-1] if segments else None
    end_offset, leader_epoch = head.cold_end_offset, head.leader_epoch
    taken: list[CommittedSegment] = []
    while True:
        following = [
            candidate
            for candidate in candidates.get(end_offset, ())
            if leader_epoch <= candidate.key.leader_epoch <= MAX_EPOCH
        ]
        following = following[:MAX_CANDIDATES]
        accepted = (_accepted(store, head, before, candidate, cluster_ids) for candidate in following)
        after = next(filter(None, accepted), None)
        if after is None and taken:
            behind_joined = (_accepted(store, head, None, candidate, cluster_ids) for candidate in following)
            after = next(filter(None, behind_joined), None)
            if after is not None:
                taken[-1] = replace(
                    taken[-1], uploaded_root_sha256=after.previous_root_sha256, joined_count=FEWEST_JOINED
                )
        if after is None:
            return tuple(taken)
        before = after
        taken.append(before)
        end_offset, leader_epoch = before.end_offset, before.leader_epoch


def newest_producer_id(tail: SegmentTail) -> int:
    """The largest producer id in an object's snapshot of producers; -1 where there is none. Raises Corrupt."""
    producer_id = max((producer.producer_id for producer in decode_producers(tail.producer_snapshot)), default=-1)
    if producer_id > MAX_NUMBER:
        raise CorruptObject(f"producer id {producer_id} leaves no room for new ones")
    return producer_id


def _rank(candidate: Listed) -> tuple[int, int, int]:
    return candidate.key.leader_epoch, candidate.key.end_offset, candidate.size_bytes


def _accepted(
    store: ObjectStore,
    head: PartitionCheckpoint,
    before: CommittedSegment | None,
    candidate: Listed,
    cluster_ids: Collection[str],
) -> CommittedSegment | None:
    """The row of the object, if it continues the chain behind `before`."""
    try:
        segment = _row(store, before, candidate)
        place = ExpectedSegment(
            topic=head.topic,
            topic_id=head.topic_id,
            partition=head.partition,
            segment=segment,
            cluster_ids=frozenset(cluster_ids),
        )
        newest_producer_id(load_tail(store, place))
    except Corrupt:
        return None
    # More than any broker has written, and than a checkpoint may say.
    return segment if segment.record_count <= segment.end_offset - segment.base_offset else None


def _row(store: ObjectStore, before: CommittedSegment | None, candidate: Listed) -> CommittedSegment:
    """The row that the upload had in SQL, but for when it was committed. Raises Corrupt.

    Its offsets are those of the key, and its previous root is what it has to be: `load_tail` compares both.
    """
    key, footer = candidate.key, load_footer(store, candidate.name, candidate.size_bytes)
    if before is not None:
        previous_root = before.chain_root_sha256
    elif key.base_offset == 0:
        previous_root = NO_ROOT.hex()
    else:  # The segments before it are deleted, or were joined: nobody knows the root any more.
        previous_root = footer.previous_root_sha256.hex()
    return CommittedSegment(
        base_offset=key.base_offset,
        end_offset=key.end_offset,
        leader_epoch=key.leader_epoch,
        object_key=candidate.name,
        object_id=key.object_id,
        size_bytes=candidate.size_bytes,
        log_bytes=footer.log_bytes,
        min_timestamp_ms=footer.min_timestamp_ms,
        max_timestamp_ms=footer.max_timestamp_ms,
        record_count=footer.record_count,
        root_sha256=footer.root_sha256.hex(),
        previous_root_sha256=previous_root,
        committed_at_ms=_written_at_ms(store, candidate.name),
        max_timestamp_is_proven=footer.max_timestamp_is_proven or None,
    )


def _written_at_ms(store: ObjectStore, key: str) -> int:
    """When the object was written: it was committed a moment later. Where the store does not tell it is now, because
    retention goes by this time where no record's is proven (decision 0028), and must not delete too early."""
    description = store.head(key)
    age_ms = 0.0 if description is None or description.age_ms is None else description.age_ms
    return max(0, SystemClock().now_ms() - max(0, int(age_ms)))
