"""A committed object read, compacted, and stored under another key; or several, joined to one.

Owns the way of the bytes: checked chunks in, batches through `rules.segments.batch_compaction` or as they are, a
scratch file, and from there the same way into the store as every upload (T2). Bounded memory, whatever the segments'
size. Every function blocks. Must never touch an object it reads, nor SQL: the caller has planned the row before, and
swaps it in afterwards.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from tiered.cold.bucket import uploader
from tiered.cold.bucket.segments import load_run, load_tail
from tiered.cold.object_store import ObjectStore
from tiered.errors import Corrupt, CorruptBatch, ObjectExists
from tiered.formats import record_batch
from tiered.formats.batch_times import UNPROVEN
from tiered.formats.record_batch import BatchHeader
from tiered.formats.segment_check import ExpectedSegment
from tiered.formats.segment_object import ChunkRow, SegmentTail, runs
from tiered.rules.segments.batch_compaction import OffsetSet, SegmentCleaning
from tiered.rules.segments.compaction import LastBatch

log = logging.getLogger(__name__)

MAX_BAD_BATCHES = 20
"""So many are named for one segment."""
_WRITE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteOrder:
    """The rewrite of one segment. `object_key` is that of the new object; `last_batches` has those of the
    idempotent producers that may still write."""

    cluster_id: str
    place: ExpectedSegment
    object_key: str
    chunk_bytes: int
    now_ms: int
    delete_retention_ms: int
    timeout_ms: float
    last_batches: Mapping[int, LastBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOrder:
    """Segments that follow each other, oldest first, whose batches one object takes. `object_key` is its key, and
    `left_ms` says how long its upload may take: from then on its row may be swept, and nobody would sweep it."""

    cluster_id: str
    places: tuple[ExpectedSegment, ...]
    object_key: str
    chunk_bytes: int
    left_ms: Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The new object, which is in the store and checked."""

    size_bytes: int
    log_bytes: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    max_timestamp_is_proven: bool
    record_count: int
    root_sha256: str
    removed_records: int = 0


def rewrite(store: ObjectStore, order: RewriteOrder, newest: Iterable[int], scratch: BinaryIO) -> Rewritten | None:
    """The compacted object; None when nothing of the segment changes, and nothing was stored. `newest` gives those of
    its offsets that are the last of their keys, `scratch` is an empty file for up to as many bytes as the segment has.

    The same order gives the same bytes: an object that an earlier attempt has stored under the key is taken for this
    one's. Raises Corrupt naming the segment, StoreUnavailable, UploadOverdue.
    """
    place, segment = order.place, order.place.segment
    last_of_keys = OffsetSet(segment.base_offset, segment.end_offset)
    for offset in newest:
        last_of_keys.add(offset)
    try:
        tail = load_tail(store, place)
        cleaning = SegmentCleaning(
            last_of_keys,
            aborted=tail.aborted,
            last_batches=order.last_batches,
            is_marked=segment.is_compacted,
            now_ms=order.now_ms,
            delete_retention_ms=order.delete_retention_ms,
        )
        log_bytes = _write(scratch, _cleaned(store, place, tail.chunks, cleaning))
    except Corrupt as error:
        raise _named(place, error) from error
    for first_offset, last_offset in cleaning.bad_batches[:MAX_BAD_BATCHES]:
        log.warning("%s: nobody can decode offsets %d to %d, which stay as they are", place, first_offset, last_offset)
    if not cleaning.is_changed:
        return None
    aborted = tuple(entry for entry in tail.aborted if entry.last_offset not in cleaning.removed_markers)
    # The object takes the place of the one before it in the chain too (decision 0016).
    stored = _stored(store, order, place, (place,), [replace(tail, aborted=aborted)], log_bytes, scratch)
    return replace(stored, removed_records=cleaning.removed_records)


def join(store: ObjectStore, order: JoinOrder, scratch: BinaryIO) -> Rewritten:
    """The object that has the batches of all of the segments, byte for byte. `scratch` is an empty file for them.

    Raises Corrupt naming the segment whose object is damaged or missing, StoreUnavailable, UploadOverdue.
    """
    tails, log_bytes = [], 0
    for place in order.places:
        try:
            tails.append(load_tail(store, place))
            log_bytes += _write(scratch, _batches_of(store, place, tails[-1].chunks))
        except Corrupt as error:
            raise _named(place, error) from error
    return _stored(store, order, order.places[-1], order.places, tails, log_bytes, scratch)


def _stored(
    store: ObjectStore,
    order: RewriteOrder | JoinOrder,
    last: ExpectedSegment,
    places: Sequence[ExpectedSegment],
    tails: Sequence[SegmentTail],
    log_bytes: int,
    scratch: BinaryIO,
) -> Rewritten:
    """The object of the first `log_bytes` of `scratch`, with the places' offsets, epochs and aborted transactions; of
    producers what the last of them had."""
    scratch.flush()
    timeout_ms = order.timeout_ms if isinstance(order, RewriteOrder) else order.left_ms()
    described = uploader.describe(
        scratch.fileno(),
        log_bytes,
        cluster_id=order.cluster_id,
        topic_id=last.topic_id,
        topic=last.topic,
        partition=last.partition,
        leader_epochs=_leader_epochs(tails),
        producer_snapshot=tails[-1].producer_snapshot,
        previous_root_sha256=bytes.fromhex(places[0].segment.previous_root_sha256),
        # A transaction that was aborted behind a segment is told of there too: readers of each have to skip it.
        aborted=sorted({entry for tail in tails for entry in tail.aborted}, key=lambda entry: entry.last_offset),
        chunk_bytes=order.chunk_bytes,
        times_proven_from=(
            places[0].segment.base_offset if all(tail.footer.headers_are_proven for tail in tails) else UNPROVEN
        ),
    )
    table = described.table
    extent = (places[0].segment.base_offset, last.segment.end_offset)
    assert (table.base_offset, table.end_offset) == extent, "offsets never change"
    try:
        store.put_segment(order.object_key, scratch.fileno(), log_bytes, described.tail, timeout_ms=timeout_ms)
    except ObjectExists:
        pass  # An attempt before this one has stored it, and died before it could tell: it is checked like our own.
    uploader.verify_stored(store, order.object_key, described.object_bytes, described.tail)
    return Rewritten(
        size_bytes=described.object_bytes,
        log_bytes=log_bytes,
        min_timestamp_ms=table.min_timestamp_ms,
        max_timestamp_ms=table.max_timestamp_ms,
        max_timestamp_is_proven=table.max_timestamp_is_proven,
        record_count=table.record_count,
        root_sha256=table.root_sha256.hex(),
    )


def _leader_epochs(tails: Sequence[SegmentTail]) -> list[tuple[int, int]]:
    """Epochs and where they began. Each tail begins with the epoch that goes on at its base."""
    starts: dict[int, int] = {}
    for tail in tails:
        for epoch, start_offset in tail.leader_epochs:
            starts.setdefault(epoch, start_offset)
    return sorted(starts.items())


def _named(place: ExpectedSegment, error: Corrupt) -> Corrupt:
    nothing = "; `tiered verify` tells more, and nothing was replaced"
    return place.named(error, remedy=nothing, if_missing=nothing)


def batches(
    store: ObjectStore, place: ExpectedSegment, chunks: Sequence[ChunkRow]
) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Each batch of the segment: a buffer, its position there and its header. Raises Corrupt at the first byte that is
    not what was uploaded."""
    for run in runs(chunks, store.run_bytes):
        data = load_run(store, place, run, by_sha256=True)
        for position, header in record_batch.exact_batches(data, 0, len(data)):
            record_batch.verify_crc(data, position, header.size_bytes)
            yield data, position, header


def _cleaned(
    store: ObjectStore, place: ExpectedSegment, chunks: Sequence[ChunkRow], cleaning: SegmentCleaning
) -> Iterator[bytes | memoryview]:
    for data, position, header in _without_gaps(store, place, chunks):
        yield from cleaning.take(data, position, header)
    yield from cleaning.rest()


def _batches_of(store: ObjectStore, place: ExpectedSegment, chunks: Sequence[ChunkRow]) -> Iterator[bytes | memoryview]:
    for data, position, header in _without_gaps(store, place, chunks):
        yield memoryview(data)[position : position + header.size_bytes]


def _without_gaps(
    store: ObjectStore, place: ExpectedSegment, chunks: Sequence[ChunkRow]
) -> Iterator[tuple[bytes, int, BatchHeader]]:
    next_offset = place.segment.base_offset
    for data, position, header in batches(store, place, chunks):
        if header.base_offset != next_offset:
            raise CorruptBatch(f"a batch begins at offset {header.base_offset}, where {next_offset} should follow")
        next_offset = header.end_offset
        yield data, position, header
    if next_offset != place.segment.end_offset:
        raise CorruptBatch(f"its batches end at offset {next_offset}, where its row has {place.segment.end_offset}")


def _write(scratch: BinaryIO, pieces: Iterator[bytes | memoryview]) -> int:
    pending, written = bytearray(), 0
    for piece in pieces:
        pending += piece
        if len(pending) >= _WRITE_BYTES:
            written += scratch.write(pending)
            pending = bytearray()
    return written + scratch.write(pending)
