"""Finds the first cold record at or after a timestamp, from the bucket alone.

Owns the search: segments, then chunks, by their largest timestamp, then the one chunk that can hold it. Must
never take a chunk's or a segment's word for a record: timestamps need not be in order.
"""

from collections.abc import Sequence

from pyspark_tiered.cold_read import naming
from pyspark_tiered.plan import PartitionView
from tiered.cold.bucket.segments import load_run, load_tail
from tiered.cold.object_store import ObjectStore
from tiered.formats.arrow import decode_chunk, to_timestamp_us
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.segment_check import Place


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
    assert view.topic_id is not None, "a cold range has a topic id"
    place = Place(topic=view.topic, topic_id=view.topic_id, partition=view.partition, segment=segment)
    with naming(place):
        for chunk in load_tail(store, place).chunks:
            if chunk.max_timestamp_ms < timestamp_ms or chunk.last_offset < view.log_start_offset:
                continue
            found = _in_chunk(load_run(store, place, (chunk,)), view, timestamp_ms)
            if found is not None:
                return found
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
