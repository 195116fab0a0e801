"""One stored segment against its committed row: its size, its tail, its chunks.

Owns the requests for it. A check that fails is made once more on bytes that are fetched
anew, because the way here may be at fault and not the object. Every function blocks and runs in a thread. Must never
call a store that does not answer corruption, and never hold more than one block of a segment and its tail.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from tiered.cold.object_store import ObjectStore
from tiered.errors import Corrupt, CorruptObject, ObjectMissing, UnknownFormat
from tiered.formats import segment_check, segment_object
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.segment_check import Fault, FaultKind, of_segment
from tiered.formats.segment_object import MAX_TAIL_BYTES, TAIL_GUESS_BYTES, ChunkRow, NeedMore, SegmentFooter
from tiered.rules.segments.sampling import ChunkSample

BLOCK_BYTES = 4 << 20
"""What one request asks for: several chunks, at least one."""
MAX_FAULTS = 20
"""More are not listed for one segment: it is bad enough."""
_FOOTER_READS = 3
_MAX_FOOTER_TAIL_BYTES = 8 << 20
_TAIL_OVERHEAD = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A committed row with what its object must say about itself."""

    cluster_ids: frozenset[str]
    topic: str
    topic_id: UUID
    partition: int
    segment: CommittedSegment
    is_first: bool = False
    """On its page of the partition's checkpoint: however small a sample is, it takes a chunk of this segment."""

    @property
    def memory_bytes(self) -> int:
        """About what checking it takes at most: its parsed tail, and a block."""
        return _TAIL_OVERHEAD * max(0, self.segment.size_bytes - self.segment.log_bytes) + BLOCK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedSegment:
    """What was read, and what was wrong: at most `MAX_FAULTS`, in order of chunks."""

    chunks: int
    size_bytes: int
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPart:
    """What `check_part` read and found. `next_chunk` is where the next part begins, None when this was the last."""

    next_chunk: int | None
    chunks: int
    size_bytes: int
    faults: tuple[Fault, ...]


class SegmentVerifier:
    """Checks segments for several threads. `advance(bytes)` is told of what was read, by any of them."""

    def __init__(self, store: ObjectStore, sample: ChunkSample, *, advance: Callable[[int], None]) -> None:
        self._store = store
        self._sample = sample
        self._advance = advance

    def check(self, place: Place) -> CheckedSegment:
        """The segment's verdict. Raises StoreUnavailable when it could not be had."""
        opened = self._open_twice(place)
        if isinstance(opened, Fault):
            return CheckedSegment(chunks=0, size_bytes=0, faults=(opened,))
        faults = list(segment_check.check_table(place.segment.base_offset, opened))
        chosen = self._sample.chosen(place.segment.object_id, len(opened), at_least_one=place.is_first)
        read_bytes = 0
        for run in _runs(opened, chosen):
            faults.extend(self._check_run(place, opened, run))
            run_bytes = sum(opened[index].length for index in run)
            read_bytes += run_bytes
            self._advance(run_bytes)
            if len(faults) >= MAX_FAULTS:
                break
        return CheckedSegment(chunks=len(chosen), size_bytes=read_bytes, faults=tuple(faults[:MAX_FAULTS]))

    def check_part(self, place: Place, *, first_chunk: int, max_bytes: int) -> CheckedPart:
        """The verdict on the segment's tail, and on its chunks from `first_chunk` on: one at least, else at most
        `max_bytes` of them. Raises StoreUnavailable when it could not be had."""
        opened = self._open_twice(place)
        if isinstance(opened, Fault):
            return CheckedPart(next_chunk=None, chunks=0, size_bytes=0, faults=(opened,))
        chosen: list[int] = []
        size_bytes = 0
        for index in range(first_chunk, len(opened)):
            if chosen and size_bytes + opened[index].length > max_bytes:
                break
            chosen.append(index)
            size_bytes += opened[index].length
        faults: list[Fault] = []
        for run in _runs(opened, chosen):
            faults.extend(self._check_run(place, opened, run))
            self._advance(sum(opened[index].length for index in run))
        end = first_chunk + len(chosen)
        return CheckedPart(
            next_chunk=end if end < len(opened) else None,
            chunks=len(chosen),
            size_bytes=size_bytes,
            faults=tuple(faults[:MAX_FAULTS]),
        )

    # The tail

    def _open_twice(self, place: Place) -> tuple[ChunkRow, ...] | Fault:
        # A key that is none of ours may lead anywhere: it is not asked for.
        wrong_key = segment_check.check_key(place.segment, place.topic_id, place.partition)
        if wrong_key is not None:
            return wrong_key
        opened = self._open(place)
        return self._open(place) if isinstance(opened, Fault) else opened  # The way here may be at fault.

    def _open(self, place: Place) -> tuple[ChunkRow, ...] | Fault:
        segment = place.segment
        found = self._store.head(segment.object_key)
        if found is None:
            return of_segment(segment, FaultKind.MISSING, "the object is missing")
        tail_bytes = segment.size_bytes - segment.log_bytes
        if not 0 < tail_bytes <= MAX_TAIL_BYTES:
            return of_segment(segment, FaultKind.CHECKPOINT, f"the checkpoint gives its tail {tail_bytes} bytes")
        if found.size_bytes != segment.size_bytes:
            return self._wrong_size(place, found.size_bytes)
        try:
            data = self._store.get_range(segment.object_key, segment.log_bytes, tail_bytes)
            tail = segment_object.read_tail(data, segment.size_bytes)
        except ObjectMissing:
            return of_segment(segment, FaultKind.MISSING, "the object is missing")
        except UnknownFormat as error:
            return of_segment(segment, FaultKind.UNKNOWN_FORMAT, str(error))
        except CorruptObject as error:
            return self._other(place, segment.size_bytes) or of_segment(
                segment, FaultKind.TAIL, f"the object's tail is damaged: {error}"
            )
        return self._compared(place, tail.footer) or tail.chunks

    def _wrong_size(self, place: Place, size_bytes: int) -> Fault:
        """A swapped object mostly has another size too: what it says of itself comes first."""
        other = self._other(place, size_bytes)
        if other is not None:
            return other
        segment = place.segment
        words = f"the object has {size_bytes} bytes, {segment.size_bytes} were committed"
        if size_bytes < segment.size_bytes:
            return of_segment(segment, FaultKind.TRUNCATED, f"{words}: it is cut off")
        return of_segment(segment, FaultKind.OVERSIZED, words)

    def _other(self, place: Place, size_bytes: int) -> Fault | None:
        """A fault when the object is another segment, by its own footer."""
        footer = self._footer(place.segment.object_key, size_bytes)
        if footer is None:
            return None
        found = self._compared(place, footer)
        return found if found is not None and found.kind is FaultKind.SWAPPED else None

    def _footer(self, key: str, size_bytes: int) -> SegmentFooter | None:
        tail_bytes = min(size_bytes, TAIL_GUESS_BYTES)
        for _ in range(_FOOTER_READS):
            if not 0 < tail_bytes <= min(size_bytes, _MAX_FOOTER_TAIL_BYTES):
                return None
            try:
                data = self._store.get_range(key, size_bytes - tail_bytes, tail_bytes)
                found = segment_object.read_footer(data, size_bytes)
            except Corrupt:
                return None
            if not isinstance(found, NeedMore):
                return found
            tail_bytes = found.tail_bytes
        return None

    def _compared(self, place: Place, footer: SegmentFooter) -> Fault | None:
        return segment_check.check_footer(
            place.segment,
            footer,
            cluster_ids=place.cluster_ids,
            topic_id=place.topic_id,
            partition=place.partition,
        )

    # Chunks

    def _check_run(self, place: Place, chunks: Sequence[ChunkRow], run: range) -> Iterator[Fault]:
        """The faults of neighbouring chunks, read with one request; each bad one is fetched and checked again."""
        start = chunks[run[0]].position
        length = chunks[run[-1]].position + chunks[run[-1]].length - start
        try:
            data = self._store.get_range(place.segment.object_key, start, length)
        except Corrupt:
            data = b""  # Truncated or gone since its tail was read: the second look tells which.
        for index in run:
            row = chunks[index]
            if data and segment_check.check_chunk(row, data, row.position - start, chunk=index) is None:
                continue
            fault = self._second_look(place, row, index)
            if fault is not None:
                yield fault

    def _second_look(self, place: Place, row: ChunkRow, index: int) -> Fault | None:
        try:
            data = self._store.get_range(place.segment.object_key, row.position, row.length)
        except Corrupt as error:
            kind = FaultKind.MISSING if isinstance(error, ObjectMissing) else FaultKind.TRUNCATED
            return Fault(
                kind=kind,
                message=f"bytes {row.position} to {row.position + row.length - 1} could be had no more: {error}",
                first_offset=row.first_offset,
                last_offset=row.last_offset,
                chunk=index,
            )
        return segment_check.check_chunk(row, data, chunk=index)


def _runs(chunks: Sequence[ChunkRow], chosen: Sequence[int]) -> Iterator[range]:
    """Neighbours among the chosen, up to `BLOCK_BYTES` together: each is read with one request."""
    first = 0
    while first < len(chosen):
        last, length = first, chunks[chosen[first]].length
        while last + 1 < len(chosen) and chosen[last + 1] == chosen[last] + 1:
            length += chunks[chosen[last + 1]].length
            if length > BLOCK_BYTES:
                break
            last += 1
        yield range(chosen[first], chosen[last] + 1)
        first = last + 1
