"""One partition's segments over both tiers, as people ask for them.

Pure view: owns nothing, changes nothing.
"""

from bisect import bisect_right
from dataclasses import dataclass

from tiered.broker.partitions.partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class CataloguedSegment:
    """A range of offsets and where it is. `tier` is hot, cold or both (in the store, all or a part of it on the disk
    too); timestamps are -1 where unknown."""

    base_offset: int
    end_offset: int
    tier: str
    state: str
    size_bytes: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    object_key: str | None


def segments_of(partition: Partition, *, start_offset: int, limit: int) -> list[CataloguedSegment]:
    """The first `limit` segments that end after `start_offset`, oldest first; committed ones once, with their tier."""
    local = [segment for segment in partition.log.segments if segment.end_offset > start_offset]
    local_start_offset = partition.log.segments[0].base_offset
    found = []
    cold = partition.committed
    first = bisect_right(cold, start_offset, key=lambda segment: segment.end_offset)
    # There may be a hundred thousand. Local ones that are committed behind these are cut off below.
    for committed in cold[first : first + limit]:
        # Of an object that was joined of many segments the disk may have the last ones alone.
        is_here = local_start_offset < committed.end_offset
        found.append(
            CataloguedSegment(
                base_offset=committed.base_offset,
                end_offset=committed.end_offset,
                tier="both" if is_here else "cold",
                state="committed",
                size_bytes=committed.size_bytes,
                min_timestamp_ms=committed.min_timestamp_ms,
                max_timestamp_ms=committed.max_timestamp_ms,
                object_key=committed.object_key,
            )
        )
    if found:
        local = [segment for segment in local if segment.base_offset >= found[-1].end_offset]
    found.extend(
        CataloguedSegment(
            base_offset=segment.base_offset,
            end_offset=segment.end_offset,
            tier="hot",
            state="closed" if segment.closed else "active",
            size_bytes=segment.size_bytes,
            min_timestamp_ms=-1,
            max_timestamp_ms=segment.max_timestamp_ms,
            object_key=None,
        )
        for segment in local
    )
    return sorted(found, key=lambda each: each.base_offset)[:limit]
