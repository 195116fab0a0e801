"""Segment objects read as their committed rows vouch for them: a tail, or neighbouring chunks, with one request each.
Without a row, a footer.

Owns the requests; `formats.segment_check` accepts what comes. Every function blocks. Must never answer with bytes that
fail a check (T8). Errors tell what is wrong and not where: `ExpectedSegment.named` does, with what the caller's
reader can do.
"""

from collections.abc import Sequence

from tiered.cold.object_store import ObjectStore
from tiered.errors import CorruptObject
from tiered.formats import segment_object
from tiered.formats.segment_check import ExpectedSegment, accepted_chunk, accepted_tail, tail_bytes
from tiered.formats.segment_object import TAIL_GUESS_BYTES, ChunkRow, NeedMore, SegmentFooter, SegmentTail

_FOOTER_READS = 3
_MAX_FOOTER_TAIL_BYTES = 8 << 20


def load_footer(store: ObjectStore, key: str, size_bytes: int) -> SegmentFooter:
    """The object's description of itself, which no row vouches for. Raises CorruptObject, ObjectMissing,
    StoreUnavailable."""
    tail_bytes = min(size_bytes, TAIL_GUESS_BYTES)
    for _ in range(_FOOTER_READS):
        if not 0 < tail_bytes <= min(size_bytes, _MAX_FOOTER_TAIL_BYTES):
            break
        footer = segment_object.read_footer(store.get_range(key, size_bytes - tail_bytes, tail_bytes), size_bytes)
        if not isinstance(footer, NeedMore):
            return footer
        tail_bytes = footer.tail_bytes
    raise CorruptObject(f"an object of {size_bytes} bytes has no footer in its last {_MAX_FOOTER_TAIL_BYTES}")


def load_tail(store: ObjectStore, place: ExpectedSegment) -> SegmentTail:
    """Everything behind the segment's batches. Raises CorruptObject, ObjectMissing, StoreUnavailable."""
    segment = place.segment
    return accepted_tail(place, store.get_range(segment.object_key, segment.log_bytes, tail_bytes(segment)))


def load_run(store: ObjectStore, place: ExpectedSegment, rows: Sequence[ChunkRow], *, by_sha256: bool = False) -> bytes:
    """Neighbouring chunks of the segment, each accepted, the last one to its end. Raises Corrupt, StoreUnavailable.

    `by_sha256` is for a caller that makes new truth out of them: see `accepted_chunk`.
    """
    start = rows[0].position
    data = get_run(store, place, rows)
    view = memoryview(data)
    for row in rows:
        at = row.position - start
        part = view[at : at + row.length]
        accepted_chunk(row, part, is_end_read=row is not rows[-1], by_sha256=by_sha256)
    return data


def get_run(store: ObjectStore, place: ExpectedSegment, rows: Sequence[ChunkRow]) -> bytes:
    """The verdict where neighbouring chunks should be: nothing is accepted yet."""
    start = rows[0].position
    return store.get_range(place.segment.object_key, start, rows[-1].position + rows[-1].length - start)
