"""Finds the first cold record at or after a timestamp, from the bucket alone.

Owns the search: segments, then chunks, by their largest timestamp, then the one chunk that can hold it. Must
never take a chunk's or a segment's word for a record: timestamps need not be in order.
"""

import hashlib
from collections.abc import Sequence

from pyspark_tiered.cold_read import open_object
from pyspark_tiered.plan import PartitionView
from tiered.cold.object_store import ObjectStore
from tiered.errors import Corrupt, CorruptObject
from tiered.formats.arrow import decode_chunk, to_timestamp_us
from tiered.formats.checkpoint import CommittedSegment


def first_offset_at(
    store: ObjectStore, view: PartitionView, segments: Sequence[CommittedSegment], timestamp_ms: int
) -> int:
    """The first offset in `segments` (in order) not below `view.log_start_offset`, with that timestamp or a later one.

    -1 when there is none. Raises `CorruptObject` and `ObjectMissing`, naming the object.
    """
    for segment in segments:
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        found = _in_segment(store, view, segment, timestamp_ms)
        if found is not None:
            return found
    return -1


def _in_segment(store: ObjectStore, view: PartitionView, segment: CommittedSegment, timestamp_ms: int) -> int | None:
    try:
        tail = open_object(
            store,
            segment.object_key,
            size_bytes=segment.size_bytes,
            log_bytes=segment.log_bytes,
            root_sha256=segment.root_sha256,
        )
        for chunk in tail.chunks:
            if chunk.max_timestamp_ms < timestamp_ms or chunk.last_offset < view.log_start_offset:
                continue
            data = store.get_range(segment.object_key, chunk.position, chunk.length)
            if hashlib.sha256(data).digest() != chunk.sha256:
                raise CorruptObject(f"the chunk at position {chunk.position} does not match its SHA-256")
            found = _in_chunk(data, view, timestamp_ms)
            if found is not None:
                return found
    except Corrupt as error:
        raise type(error)(
            f"topic {view.topic} partition {view.partition} offsets {segment.base_offset} to "
            f"{segment.end_offset - 1}, object {segment.object_key}: {error}"
        ) from error
    return None


def _in_chunk(data: bytes, view: PartitionView, timestamp_ms: int) -> int | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    batches = decode_chunk(
        data,
        topic=view.topic,
        partition=view.partition,
        start_offset=view.log_start_offset,
        columns=("offset", "timestamp"),
    )
    for batch in batches:
        late = pc.greater_equal(batch.column(1).cast(pa.int64()), to_timestamp_us(timestamp_ms))
        first: int = pc.index(late, True).as_py()
        if first >= 0:
            offset: int = batch.column(0)[first].as_py()
            return offset
    return None
