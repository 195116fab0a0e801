"""Objects in the store that no checkpoint names: retired ones that wait for their deletion, uploads in progress,
and what failed uploads left behind.

Owns the comparison of a listing with the checkpoints. Only ever counts: deleting is the brokers' business, who know the
metadata store. Every function blocks. Must never take an object for an orphan because its checkpoint was read before it
was listed, and holds the keys of one partition at a time.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from tiered.cold.bucket.checkpoint_walk import walk
from tiered.cold.object_store import ObjectStore, listed
from tiered.errors import Corrupt, CorruptObject
from tiered.formats.object_key import SEGMENTS_PREFIX, SegmentKey, parse_segment_key
from tiered.formats.segment_check import Fault

_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """The orphans of one partition; `retired` of them lie below its log start. `keys` are the first few.

    `has_checkpoint` is False for a partition of which the store has no readable head at all.
    """

    topic: str
    topic_id: UUID
    partition: int
    objects: int
    size_bytes: int
    retired: int
    has_checkpoint: bool
    keys: tuple[str, ...]


def find_orphans(store: ObjectStore, topics: Collection[str] | None) -> Iterator[Orphans]:
    """The orphans of each partition that has any, in order of keys; of these topics alone unless None.

    One listing of the segments (a request for each 1,000 objects), and each partition's checkpoints once.
    """
    for (topic, topic_id, partition), group in groupby(
        _listed(store), key=lambda each: (each[0].topic, each[0].topic_id, each[0].partition)
    ):
        if topics is not None and topic not in topics:
            continue
        objects = list(group)  # Listed to the end before the checkpoint is read.
        found = _compare(store, topic, topic_id, partition, objects)
        if found.objects:
            yield found


def _compare(
    store: ObjectStore, topic: str, topic_id: UUID, partition: int, objects: list[tuple[SegmentKey, str, int]]
) -> Orphans:
    named: set[UUID] = set()
    unknown: list[Fault] = []
    log_start_offset, has_checkpoint = 0, False
    try:
        for page in walk(store, topic_id, partition):
            has_checkpoint, log_start_offset = True, page.head.log_start_offset
            named.update(segment.object_id for segment in page.segments)
            if not page.segments:
                unknown.extend(page.faults)  # A page that cannot be read: what it names is nobody's guess.
    except Corrupt:
        has_checkpoint = False  # Reported elsewhere; here it only means that nobody can tell.
    orphans = [each for each in objects if each[0].object_id not in named and not _is_within(each[0], unknown)]
    return Orphans(
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        objects=len(orphans),
        size_bytes=sum(size_bytes for _, _, size_bytes in orphans),
        retired=sum(key.end_offset <= log_start_offset for key, _, _ in orphans),
        has_checkpoint=has_checkpoint,
        keys=tuple(name for _, name, _ in orphans[:_EXAMPLES]),
    )


def _is_within(key: SegmentKey, faults: list[Fault]) -> bool:
    return any(fault.first_offset <= key.base_offset <= fault.last_offset for fault in faults)


def _listed(store: ObjectStore) -> Iterator[tuple[SegmentKey, str, int]]:
    for name, size_bytes in listed(store, SEGMENTS_PREFIX):
        try:
            key = parse_segment_key(name)
        except CorruptObject:
            continue  # Nothing of ours.
        yield key, name, size_bytes
