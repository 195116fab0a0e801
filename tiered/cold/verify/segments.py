"""One stored segment against its committed row: its size, its tail, its chunks.

Owns the requests for it. A check that fails is made once more on bytes that are fetched
anew, because the way here may be at fault and not the object. Every function blocks and runs in a thread. Must never
call a store that does not answer corruption, and never hold more than one block of a segment and its tail.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from tiered.cold.bucket.segments import get_run, load_footer
from tiered.cold.object_store import ObjectStore
from tiered.errors import Corrupt, CorruptObject, ObjectMissing
from tiered.formats import chunk_table, marker_check, segment_check
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.marker_check import MarkerCheck
from tiered.formats.segment_check import ExpectedSegment, Fault, FaultKind, of_segment
from tiered.formats.segment_object import ChunkRow, SegmentTail
from tiered.rules.segments.sampling import ChunkSample

BLOCK_BYTES = 4 << 20
"""What one request asks for: several chunks, at least one."""
MAX_FAULTS = 20
"""More are not listed for one segment: it is bad enough."""
_TAIL_OVERHEAD = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedSegment:
    """What was read of a segment, and what was wrong: at most `MAX_FAULTS`, in order of chunks. `next_chunk` is where
    the next part of it begins, None where all of it was looked at."""

    chunks: int
    size_bytes: int
    faults: tuple[Fault, ...]
    next_chunk: int | None = None


def memory_bytes(segment: CommittedSegment) -> int:
    """About what checking it takes at most: its parsed tail, and a block."""
    return _TAIL_OVERHEAD * max(0, segment.size_bytes - segment.log_bytes) + BLOCK_BYTES


class SegmentVerifier:
    """Checks segments for several threads. Any of them calls `advance(bytes)` after it has read.

    `looks_at_records`: also decodes records that no broker has looked at, which takes far longer than the hashes.
    """

    def __init__(
        self,
        store: ObjectStore,
        sample: ChunkSample,
        *,
        advance: Callable[[int], None],
        looks_at_records: bool = False,
    ) -> None:
        self._looks_at_records = looks_at_records
        self._store = store
        self._sample = sample
        self._advance = advance

    def check(self, place: ExpectedSegment) -> CheckedSegment:
        """The segment's verdict. Raises StoreUnavailable when it could not be had."""
        opened = self._open_twice(place)
        if isinstance(opened, Fault):
            return CheckedSegment(chunks=0, size_bytes=0, faults=(opened,))
        faults = list(segment_check.check_table(place.segment.base_offset, opened.chunks))
        chosen = self._sample.chosen(place.segment.object_id, len(opened.chunks), at_least_one=place.is_first)
        read_bytes = 0
        for checked_bytes, found in self._check_chunks(place, opened, chosen):
            faults.extend(found)
            read_bytes += checked_bytes
            if len(faults) >= MAX_FAULTS:
                break
        return CheckedSegment(chunks=len(chosen), size_bytes=read_bytes, faults=tuple(faults[:MAX_FAULTS]))

    def check_part(self, place: ExpectedSegment, *, first_chunk: int, max_bytes: int) -> CheckedSegment:
        """The verdict on the segment's tail, and on its chunks from `first_chunk` on: one at least, else at most
        `max_bytes` of them. Raises StoreUnavailable when it could not be had."""
        opened = self._open_twice(place)
        if isinstance(opened, Fault):
            return CheckedSegment(chunks=0, size_bytes=0, faults=(opened,))
        end, size_bytes, chunks = first_chunk, 0, opened.chunks
        while end < len(chunks) and (end == first_chunk or size_bytes + chunks[end].length <= max_bytes):
            size_bytes += chunks[end].length
            end += 1
        checked = self._check_chunks(place, opened, range(first_chunk, end))
        faults = [fault for _, found in checked for fault in found]
        return CheckedSegment(
            chunks=end - first_chunk,
            size_bytes=size_bytes,
            faults=tuple(faults[:MAX_FAULTS]),
            next_chunk=end if end < len(chunks) else None,
        )

    # The tail

    def _open_twice(self, place: ExpectedSegment) -> SegmentTail | Fault:
        # A key that is none of ours may lead anywhere: it is not asked for.
        wrong_key = segment_check.check_key(place.segment, place.topic_id, place.partition)
        if wrong_key is not None:
            return wrong_key
        opened = self._open(place)
        return self._open(place) if isinstance(opened, Fault) else opened  # The way here may be at fault.

    def _open(self, place: ExpectedSegment) -> SegmentTail | Fault:
        segment = place.segment
        found = self._store.head(segment.object_key)
        if found is None:
            return of_segment(segment, FaultKind.MISSING, "the object is missing")
        try:
            tail_bytes = segment_check.tail_bytes(segment)
        except CorruptObject as error:
            return of_segment(segment, FaultKind.CHECKPOINT, str(error))
        if found.size_bytes != segment.size_bytes:
            return self._wrong_size(place, found.size_bytes)
        try:
            data = self._store.get_range(segment.object_key, segment.log_bytes, tail_bytes)
        except ObjectMissing:
            return of_segment(segment, FaultKind.MISSING, "the object is missing")
        except CorruptObject as error:
            tail: SegmentTail | Fault = of_segment(segment, FaultKind.TAIL, f"the object's tail is damaged: {error}")
        else:
            tail = segment_check.check_tail(place, data)
        if isinstance(tail, SegmentTail):
            return marker_check.check_aborted(tail) or tail
        return (self._other(place, segment.size_bytes) if tail.kind is FaultKind.TAIL else None) or tail

    def _wrong_size(self, place: ExpectedSegment, size_bytes: int) -> Fault:
        """A swapped object mostly has another size too: what it says of itself comes first."""
        other = self._other(place, size_bytes)
        if other is not None:
            return other
        segment = place.segment
        words = f"the object has {size_bytes} bytes, {segment.size_bytes} were committed"
        if size_bytes < segment.size_bytes:
            return of_segment(segment, FaultKind.TRUNCATED, f"{words}: it is cut off")
        return of_segment(segment, FaultKind.OVERSIZED, words)

    def _other(self, place: ExpectedSegment, size_bytes: int) -> Fault | None:
        """A fault when the object is another segment, by its own footer."""
        try:
            footer = load_footer(self._store, place.segment.object_key, size_bytes)
        except Corrupt:
            return None
        found = segment_check.check_footer(place, footer)
        return found if found is not None and found.kind is FaultKind.SWAPPED else None

    # Chunks

    def _check_chunks(
        self, place: ExpectedSegment, opened: SegmentTail, chosen: Sequence[int]
    ) -> Iterator[tuple[int, list[Fault]]]:
        """How many bytes were read with a request, and the faults of the chunks that came with it."""
        indexes, markers = iter(chosen), MarkerCheck(opened.aborted)
        for run in chunk_table.runs((opened.chunks[index] for index in chosen), BLOCK_BYTES):
            faults = list(self._check_run(place, run, list(islice(indexes, len(run))), markers))
            run_bytes = sum(row.length for row in run)
            self._advance(run_bytes)
            yield run_bytes, faults

    def _check_run(
        self, place: ExpectedSegment, run: Sequence[ChunkRow], indexes: Sequence[int], markers: MarkerCheck
    ) -> Iterator[Fault]:
        """The faults of neighbouring chunks, read with one request; each bad one is fetched and checked again."""
        try:
            data = get_run(self._store, place, run)
        except Corrupt:
            data = b""  # Truncated or gone since its tail was read: the second look tells which.
        for index, row in zip(indexes, run, strict=True):
            start = row.position - run[0].position
            if data and _fault_of(row, data, start, index, markers) is None:
                if self._looks_at_records:
                    yield from segment_check.check_records(row, data, start, chunk=index)
                continue
            fault = self._second_look(place, row, index, markers)
            if fault is not None:
                yield fault

    def _second_look(self, place: ExpectedSegment, row: ChunkRow, index: int, markers: MarkerCheck) -> Fault | None:
        try:
            data = get_run(self._store, place, (row,))
        except Corrupt as error:
            kind = FaultKind.MISSING if isinstance(error, ObjectMissing) else FaultKind.TRUNCATED
            return Fault(
                kind=kind,
                message=f"bytes {row.position} to {row.position + row.length - 1} could be had no more: {error}",
                first_offset=row.first_offset,
                last_offset=row.last_offset,
                chunk=index,
            )
        return _fault_of(row, data, 0, index, markers)


def _fault_of(row: ChunkRow, data: bytes, start: int, index: int, markers: MarkerCheck) -> Fault | None:
    found = segment_check.check_chunk(row, data, start, chunk=index)
    return found if found is not None else markers.check(row, data, start, chunk=index)
