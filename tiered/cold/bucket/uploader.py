"""The cold tier's part of an upload: describe the local file, and check the stored object afterwards.

Owns no order: `broker.tiering.segment_lifecycle` alone decides when SQL and the store are written (T2). Every function
blocks and runs in a thread. Must never trust a put because it returned.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from tiered.cold.object_store import BLOCK_BYTES, ObjectStore
from tiered.errors import CorruptBatch, CorruptFile, CorruptObject, ObjectMissing
from tiered.formats import batch_times, segment_object
from tiered.formats.batch_times import UNPROVEN, BatchTimes
from tiered.formats.chunk_table import DEFAULT_CHUNK_BYTES, ChunkTable, ChunkTableBuilder
from tiered.formats.record_batch import DEFAULT_MAX_DECOMPRESSED_BYTES, BatchHeader
from tiered.formats.segment_object import AbortedIndexEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedSegment:
    """A segment file read once and hashed: its chunks, and everything of the object that follows its batches."""

    table: ChunkTable
    tail: bytes

    @property
    def object_bytes(self) -> int:
        """The size of the whole object."""
        return self.table.log_bytes + len(self.tail)


def describe(
    fd: int,
    size_bytes: int,
    *,
    cluster_id: str,
    topic_id: UUID,
    topic: str,
    partition: int,
    leader_epochs: Sequence[tuple[int, int]],
    producer_snapshot: bytes,
    previous_root_sha256: bytes,
    aborted: Sequence[AbortedIndexEntry] = (),
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    times_proven_from: int = UNPROVEN,
) -> DescribedSegment:
    """The first `size_bytes` of the segment file `fd`, checked batch by batch, in blocks of 1 MiB.

    Batches from the offset `times_proven_from` on have right headers; records of the others are looked at, so that the
    chunk table has their times right.

    Raises CorruptBatch for a batch whose shape or CRC is wrong, CorruptFile when the file is shorter: such a
    file is never uploaded.
    """
    builder = ChunkTableBuilder(chunk_bytes, partial(_times, fd, times_proven_from))
    position = 0
    while position < size_bytes:
        block = os.pread(fd, min(BLOCK_BYTES, size_bytes - position), position)
        if not block:
            raise CorruptFile(
                f"a segment file of {topic}-{partition} ends at byte {position}, not at {size_bytes}; check the disk"
            )
        builder.feed(block)
        position += len(block)
    table = builder.finish()
    tail = segment_object.build_tail(
        table,
        cluster_id=cluster_id,
        topic_id=topic_id,
        topic=topic,
        partition=partition,
        leader_epochs=tuple(leader_epochs),
        aborted=tuple(aborted),
        producer_snapshot=producer_snapshot,
        previous_root_sha256=previous_root_sha256,
    )
    return DescribedSegment(table=table, tail=tail)


def _times(fd: int, times_proven_from: int, position: int, header: BatchHeader) -> BatchTimes:
    if batch_times.is_proven(header, times_proven_from):
        return batch_times.proven_times(header)
    try:
        if header.size_bytes > DEFAULT_MAX_DECOMPRESSED_BYTES:
            raise CorruptBatch(f"a batch of {header.size_bytes} bytes is too large to be looked into")
        return batch_times.counted_times(os.pread(fd, header.size_bytes, position))
    except CorruptBatch:
        # Consumers cannot read it either; its bytes are kept as they are, and nothing is known of their times.
        return batch_times.claimed_times(header)


def verify_stored(store: ObjectStore, key: str, expected_bytes: int, tail: bytes) -> None:
    """Returns when the store holds an object of that size which ends with exactly `tail`.

    The tail carries the hashes of all chunks; the parts carried checksums on their way. Raises ObjectMissing or
    CorruptObject: the upload has to be repeated under another key.
    """
    found = store.head(key)
    if found is None:
        raise ObjectMissing(f"the store took {key} and does not hold it; upload the segment again")
    if found.size_bytes != expected_bytes:
        raise CorruptObject(
            f"object {key} has {found.size_bytes} bytes where {expected_bytes} were stored; upload the segment again"
        )
    if store.get_range(key, expected_bytes - len(tail), len(tail)) != tail:
        raise CorruptObject(f"object {key} does not end as it was stored; upload the segment again")
