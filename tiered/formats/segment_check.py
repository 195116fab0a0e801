"""Faults of a stored segment, found by comparing it with itself, its row and its neighbours.

Owns the kinds of fault and the comparisons: key against row, row against row, footer against row, chunk against table,
batch against batch; and the two acceptances that every reader of the bucket goes through, `accepted_tail` and
`accepted_chunk`. Pure: the reader of the store brings the bytes. Must never call something damaged because it could not
be read, and never name less than the offsets that are concerned.
"""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import add, sub
from uuid import UUID

from tiered.errors import Corrupt, CorruptBatch, CorruptObject, ObjectMissing, UnknownFormat
from tiered.formats import native, record_batch
from tiered.formats.checkpoint import CommittedSegment, PartitionCheckpoint
from tiered.formats.chunk_table import chunk_crc
from tiered.formats.object_key import parse_segment_key
from tiered.formats.segment_object import MAX_TAIL_BYTES, ChunkRow, SegmentFooter, SegmentTail, read_tail

Buffer = bytes | memoryview

_SCAN_BATCHES = 1024
_FIELDS = len(native.BATCH_FIELDS)
_BASE, _LAST_DELTA, _COUNT = (
    native.BATCH_FIELDS.index(name) for name in ("base_offset", "last_offset_delta", "record_count")
)


class FaultKind(StrEnum):
    """The kind of fault. The words are part of the output of `tiered verify --json`."""

    MISSING = "missing"
    """The store has no object of that key."""
    TRUNCATED = "truncated"
    """The object ends too early."""
    OVERSIZED = "oversized"
    """The object has more bytes than were committed."""
    SWAPPED = "swapped"
    """A whole segment, but another one."""
    TAIL = "tail"
    """The chunk table, the footer or the trailer is damaged."""
    CHUNK = "chunk"
    """A chunk's bytes are not those that its SHA-256 was made of."""
    BATCH = "batch"
    """A chunk is as it was uploaded, and a batch in it is malformed or fails its CRC."""
    RECORDS = "records"
    """A batch is as it was uploaded, its CRC is right, and nobody can decode its records: consumers stop there."""
    OFFSETS = "offsets"
    """Offsets are missing, or there twice."""
    ABORTED = "aborted"
    """What it says of aborted transactions does not fit its batches: readers would skip too much, or too little."""
    CHAIN = "chain"
    """A segment does not name the root of the one before it."""
    CHECKPOINT = "checkpoint"
    """A checkpoint is missing or damaged, or contradicts itself."""
    UNKNOWN_FORMAT = "unknown-format"
    """A newer version wrote this: nothing is known to be wrong."""
    UNREADABLE = "unreadable"
    """The store did not give it: nothing is known to be wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong, with the offsets concerned, both inclusive. `chunk` counts from 0 in its object."""

    kind: FaultKind
    message: str
    first_offset: int
    last_offset: int
    chunk: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedSegment:
    """A committed segment, and whose it is: what its object must say about itself. `cluster_ids` are those of the
    clusters that may have written it; where none is given, any may."""

    topic: str
    topic_id: UUID
    partition: int
    segment: CommittedSegment
    cluster_ids: frozenset[str] = frozenset()
    is_first: bool = False
    """On its page of the partition's checkpoint: however small a sample is, it has a chunk of this segment."""

    def __str__(self) -> str:
        segment = self.segment
        return (
            f"topic {self.topic} partition {self.partition} offsets {segment.base_offset} to "
            f"{segment.end_offset - 1}, object {segment.object_key}"
        )

    def named(self, error: Corrupt, *, remedy: str, if_missing: str) -> Corrupt:
        """The same failure as an error that names everything (T8), with what can be done about it."""
        if isinstance(error, ObjectMissing):
            return ObjectMissing(f"{self}: the object is missing{if_missing}")
        return CorruptObject(f"{self}: {error}{remedy}")


def of_segment(segment: CommittedSegment, kind: FaultKind, message: str) -> Fault:
    """A fault that concerns all of the segment's offsets."""
    return Fault(
        kind=kind, message=message, first_offset=segment.base_offset, last_offset=segment.end_offset - 1, chunk=None
    )


# Checkpoints


def check_key(segment: CommittedSegment, topic_id: UUID, partition: int) -> Fault | None:
    """None when the row's key is the one that `segment_key` makes for it."""
    try:
        key = parse_segment_key(segment.object_key)
    except CorruptObject as error:
        return of_segment(segment, FaultKind.CHECKPOINT, f"the checkpoint gives it a wrong key: {error}")
    expected = (topic_id, partition, segment.base_offset, segment.end_offset, segment.leader_epoch, segment.object_id)
    found = (key.topic_id, key.partition, key.base_offset, key.end_offset, key.leader_epoch, key.object_id)
    if found != expected:
        return of_segment(segment, FaultKind.CHECKPOINT, "the checkpoint gives it the key of another segment")
    return None


def check_follows(before: CommittedSegment | None, segment: CommittedSegment, log_start_offset: int) -> Iterator[Fault]:
    """The fault between two rows that should be neighbours; `before` is None for a partition's first."""
    expected = log_start_offset if before is None else before.end_offset
    if segment.base_offset > expected:
        yield _gap(expected, segment.base_offset, "no segment holds them")
    elif before is not None and segment.base_offset < expected:
        yield Fault(
            kind=FaultKind.OFFSETS,
            message="two segments hold them",
            first_offset=segment.base_offset,
            last_offset=min(before.end_offset, segment.end_offset) - 1,
        )
    elif before is not None and segment.previous_root_sha256 != before.chain_root_sha256:
        yield of_segment(
            segment,
            FaultKind.CHAIN,
            f"it follows a segment with root {segment.previous_root_sha256[:16]}, and the one before it has "
            f"{before.chain_root_sha256[:16]}: one of them was replaced",
        )


def check_end(head: PartitionCheckpoint, last: CommittedSegment | None) -> Fault | None:
    """None when the rows reach as far as the head says."""
    end_offset = head.log_start_offset if last is None else last.end_offset
    if end_offset < head.cold_end_offset:
        return _gap(end_offset, head.cold_end_offset, "the checkpoint counts them as uploaded, and no segment has them")
    if end_offset > head.cold_end_offset and last is not None:
        return of_segment(last, FaultKind.OFFSETS, f"the checkpoint says that the store ends at {head.cold_end_offset}")
    return None


def _gap(first_offset: int, end_offset: int, why: str) -> Fault:
    return Fault(
        kind=FaultKind.OFFSETS,
        message=f"{end_offset - first_offset} offsets are missing: {why}",
        first_offset=first_offset,
        last_offset=end_offset - 1,
    )


# Tails


def tail_bytes(segment: CommittedSegment) -> int:
    """How long the object's tail is. Raises CorruptObject when the row claims more than any tail has, or nothing."""
    length = segment.size_bytes - segment.log_bytes
    if not 0 < length <= MAX_TAIL_BYTES:
        raise CorruptObject(f"its committed row gives its tail {length} bytes; 1 to {MAX_TAIL_BYTES} are possible")
    return length


def accepted_tail(place: ExpectedSegment, data: Buffer) -> SegmentTail:
    """The tail in the object's last `tail_bytes`, of the very segment that was committed. Raises CorruptObject.

    The committed root proves the hashes of the chunks in their order. Which offsets they hold, the table says, and
    nobody else: `accepted_chunk` proves it for each.
    """
    found = check_tail(place, data)
    fault = found if isinstance(found, Fault) else next(check_table(place.segment.base_offset, found.chunks), None)
    if fault is not None:
        raise CorruptObject(fault.message)
    assert isinstance(found, SegmentTail)
    return found


def check_tail(place: ExpectedSegment, data: Buffer) -> SegmentTail | Fault:
    """The tail, or why it is not that of the committed segment. Offsets that its table leaves out are for
    `check_table` to tell."""
    try:
        tail = read_tail(data, place.segment.size_bytes)
    except UnknownFormat as error:
        return of_segment(place.segment, FaultKind.UNKNOWN_FORMAT, str(error))
    except CorruptObject as error:
        return of_segment(place.segment, FaultKind.TAIL, f"the object's tail is damaged: {error}")
    return check_footer(place, tail.footer) or tail


def check_footer(place: ExpectedSegment, footer: SegmentFooter) -> Fault | None:
    """None when this is the segment that was committed, by one of the clusters that may have done it."""
    segment = place.segment
    identity = (place.topic_id, place.partition, segment.base_offset, segment.end_offset, segment.root_sha256)
    found = (footer.topic_id, footer.partition, footer.base_offset, footer.end_offset, footer.root_sha256.hex())
    if found != identity:
        return of_segment(
            segment,
            FaultKind.SWAPPED,
            f"the object holds another segment: offsets {footer.base_offset} to {footer.end_offset - 1} of "
            f"{footer.topic}-{footer.partition} with root {found[-1][:16]}, where {segment.root_sha256[:16]} belongs",
        )
    if footer.previous_root_sha256.hex() != segment.previous_root_sha256:
        return of_segment(segment, FaultKind.CHAIN, "its footer follows another segment than the checkpoint says")
    if (footer.log_bytes, footer.record_count) != (segment.log_bytes, segment.record_count):
        return of_segment(segment, FaultKind.TAIL, "its footer counts other bytes or records than the checkpoint")
    if place.cluster_ids and footer.cluster_id not in place.cluster_ids:
        return of_segment(segment, FaultKind.SWAPPED, f"the object comes from another cluster, {footer.cluster_id}")
    return None


def check_table(base_offset: int, chunks: Sequence[ChunkRow]) -> Iterator[Fault]:
    """The offsets that lie between the chunks of a whole table, which begins with `base_offset`."""
    expected = base_offset
    for row in chunks:
        if row.first_offset > expected:
            yield _gap(expected, row.first_offset, "the segment's chunks do not hold them")
        expected = row.last_offset + 1


# Chunks


def accepted_chunk(row: ChunkRow, data: Buffer, *, is_end_read: bool = True, by_sha256: bool = False) -> None:
    """Raises CorruptObject unless `data` is the chunk of that row of an accepted tail: its checksum, and the offset
    that it begins with. With other offsets beside the checksums, a look-up would find later records.

    The checksum is the CRC-64, which finds damage; with `by_sha256`, and where there is no CRC-64, it is the SHA-256,
    which finds a forgery too (decision 0025).

    That the chunk ends where its row says is proven by the next one, if that is read. A caller that reads no further
    passes `is_end_read=False`, which walks through the batches. Speed: one checksum else. Copies nothing.
    """
    if row.crc64 is not None and not by_sha256:
        checksum, is_right = "CRC-64", chunk_crc(data) == row.crc64
    else:
        checksum, is_right = "SHA-256", hashlib.sha256(data).digest() == row.sha256
    if not is_right:
        reason = f"does not match its {checksum}"
    elif int.from_bytes(data[:8], "big") != row.first_offset:
        reason = "begins with another offset than its table says"
    elif not is_end_read and _end_offset(data) != row.last_offset + 1:
        reason = "ends with another offset than its table says"
    else:
        return
    raise CorruptObject(
        f"the chunk of offsets {row.first_offset} to {row.last_offset} (bytes {row.position} to "
        f"{row.position + row.length - 1}) {reason}"
    )


def _end_offset(chunk: Buffer) -> int:
    """Raises CorruptBatch."""
    *_, (_, last) = record_batch.exact_batches(chunk, 0, len(chunk))
    return last.end_offset


def check_chunk(row: ChunkRow, data: bytes, start: int = 0, *, chunk: int) -> Fault | None:
    """None when `data[start:start+row.length]` is the chunk, its CRCs are right and its offsets have no gap.

    Speed: one SHA-256, one CRC-64, and one CRC-32C, which the native decoder does where it was built. Copies nothing.
    """
    content = memoryview(data)[start : start + row.length]
    if hashlib.sha256(content).digest() != row.sha256:
        return _damaged_chunk(row, data, start, chunk)
    if row.crc64 is not None and chunk_crc(content) != row.crc64:
        return Fault(
            kind=FaultKind.CHUNK,
            message=f"bytes {row.position} to {row.position + row.length - 1} match their SHA-256, not their CRC-64, "
            "which the root does not prove: readers refuse them",
            first_offset=row.first_offset,
            last_offset=row.last_offset,
            chunk=chunk,
        )
    if _is_right_by_native_scan(row, data, start):
        return None
    return _find_batch(row, data, start, chunk)


def check_records(row: ChunkRow, data: bytes, start: int = 0, *, chunk: int) -> Iterator[Fault]:
    """The batches of a chunk without a fault whose records cannot be decoded. Decodes all of them, unless brokers have
    done so before they took them."""
    if row.headers_are_proven:
        return
    for position, header in record_batch.exact_batches(data, start, start + row.length):
        try:
            deque(record_batch.records(data, position), maxlen=0)
        except CorruptBatch as error:
            yield Fault(
                kind=FaultKind.RECORDS,
                message=f"the batch at byte {row.position + position - start} of the object is as a producer wrote it, "
                f"and its records cannot be decoded: {error}",
                first_offset=header.base_offset,
                last_offset=header.last_offset,
                chunk=chunk,
            )


def _damaged_chunk(row: ChunkRow, data: bytes, start: int, chunk: int) -> Fault:
    found = _find_batch(row, data, start, chunk)
    if found is None:
        where, first, last = "its batches pass their CRCs, so a header was altered", row.first_offset, row.last_offset
    else:
        where, first, last = f"first of all, {found.message}", found.first_offset, found.last_offset
    return Fault(
        kind=FaultKind.CHUNK,
        message=f"bytes {row.position} to {row.position + row.length - 1} fail their SHA-256; {where}",
        first_offset=first,
        last_offset=last,
        chunk=chunk,
    )


def _find_batch(row: ChunkRow, data: bytes, start: int, chunk: int) -> Fault | None:
    """The first thing that is wrong with the batches, with offsets as exact as can be."""
    expected, records, at, end = row.first_offset, 0, start, min(start + row.length, len(data))
    try:
        for position, header in record_batch.exact_batches(data, start, end):
            if header.base_offset != expected or header.last_offset_delta < 0:
                return _wrong_offsets(header.base_offset, header.last_offset, expected, chunk)
            record_batch.verify_crc(data, position, header.size_bytes)
            expected, records, at = header.end_offset, records + header.record_count, position + header.size_bytes
    except CorruptBatch:
        last_offset = _last_offset(data, at, end, expected, row)
        return Fault(
            kind=FaultKind.BATCH,
            message=f"the batch at byte {row.position + at - start} of the object is malformed or fails its CRC",
            first_offset=expected,
            last_offset=last_offset,
            chunk=chunk,
        )
    if (expected, records) != (row.last_offset + 1, row.record_count):
        return Fault(
            kind=FaultKind.OFFSETS,
            message=f"its batches end at {expected - 1} with {records} records, its row says {row.last_offset} and "
            f"{row.record_count}",
            first_offset=row.first_offset,
            last_offset=row.last_offset,
            chunk=chunk,
        )
    return None


def _wrong_offsets(base_offset: int, last_offset: int, expected: int, chunk: int) -> Fault:
    if base_offset > expected and last_offset >= base_offset:
        message, first, last = f"offsets {expected} to {base_offset - 1} are missing", expected, base_offset - 1
    else:
        message, first, last = f"a batch with offsets {base_offset} to {last_offset} follows", expected, expected
    return Fault(kind=FaultKind.OFFSETS, message=message, first_offset=first, last_offset=last, chunk=chunk)


def _last_offset(data: bytes, position: int, end: int, expected: int, row: ChunkRow) -> int:
    """Where the bad batch ends by its own header, if that can be; else where the chunk ends."""
    try:
        header = record_batch.read_header(data, position, end)
    except CorruptBatch:
        return row.last_offset
    plausible = header.base_offset == expected and expected <= header.last_offset <= row.last_offset
    return header.last_offset if plausible else row.last_offset


def _is_right_by_native_scan(row: ChunkRow, data: bytes, start: int) -> bool:
    """True when the native decoder says so. False says nothing: it may not be there."""
    decoder = native.load()
    if decoder is None:
        return False
    rows = bytearray(8 * _FIELDS * min(_SCAN_BATCHES, row.length // record_batch.MIN_BATCH_BYTES + 1))
    numbers = memoryview(rows).cast("q")
    expected, records, position, left = row.first_offset, 0, start, row.length
    try:
        while left > 0:
            count, used = decoder.scan_rows(data, position, left, rows)
            if count == 0:
                return False
            found = numbers[: count * _FIELDS]
            bases, deltas = found[_BASE::_FIELDS].tolist(), found[_LAST_DELTA::_FIELDS].tolist()
            # By map and not in a loop of Python: where batches are small this is what takes the time.
            lasts = list(map(add, bases, deltas))
            if bases[0] != expected or list(map(sub, bases[1:], lasts)) != [1] * (count - 1):
                return False
            expected, records = lasts[-1] + 1, records + sum(found[_COUNT::_FIELDS].tolist())
            position, left = position + used, left - used
    except CorruptBatch:
        return False
    return (expected, records) == (row.last_offset + 1, row.record_count)
