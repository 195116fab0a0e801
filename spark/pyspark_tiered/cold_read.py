"""Reads a cold split: ranged GETs in flight, hashes checked, chunks decoded to Arrow batches of about 4 MiB.

Owns how much of an object is in memory at once: `RUNS_IN_FLIGHT` runs of at most `RUN_BYTES`, whatever the
object's size. Runs in Spark's tasks, in processes that live on between them. Must never give a record from
a chunk whose SHA-256 was not checked against a chunk table that the checkpoint vouches for.
"""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark_tiered.plan import ColdSplit, SegmentPiece
from tiered.cold.object_store import ObjectStore
from tiered.cold.opening import open_store
from tiered.errors import Corrupt, CorruptObject, ObjectMissing
from tiered.formats.aborted_ranges import AbortedRange
from tiered.formats.arrow import decode_chunk
from tiered.formats.chunk_table import base_offset_of
from tiered.formats.record_batch import exact_batches
from tiered.formats.segment_check import check_table
from tiered.formats.segment_footer import MAX_TAIL_BYTES
from tiered.formats.segment_object import ChunkRow, SegmentTail, read_tail

if TYPE_CHECKING:
    import pyarrow as pa

RUN_BYTES = 8 << 20
RUNS_IN_FLIGHT = 3


@lru_cache(maxsize=8)
def store_of(url: str) -> ObjectStore:
    """The store behind `url`. One per process: a new S3 client costs a few tenths of a second."""
    return open_store(url)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenPiece:
    piece: SegmentPiece
    tail: SegmentTail


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Neighbouring chunks of one object, fetched with one GET."""

    opened: _OpenPiece
    chunks: tuple[ChunkRow, ...]

    @property
    def position(self) -> int:
        return self.chunks[0].position

    @property
    def length(self) -> int:
        return self.chunks[-1].position + self.chunks[-1].length - self.position


def read_cold(
    store: ObjectStore, split: ColdSplit, *, columns: Sequence[str], read_committed: bool = False, pure: bool = False
) -> Iterator["pa.RecordBatch"]:
    """The split's records in order of offset, as Arrow batches.

    Raises `ObjectMissing`, or `CorruptObject` when an object is not what the checkpoint says (both name topic,
    partition, offsets and key), and `StoreUnavailable` after the store's own retries.
    """
    reader = _SplitReader(store, split)
    with ThreadPoolExecutor(RUNS_IN_FLIGHT + 1, thread_name_prefix="cold-read") as threads:
        for run, data in reader.fetched(threads):
            aborted = [
                AbortedRange(producer_id=one.producer_id, first_offset=one.first_offset, last_offset=one.last_offset)
                for one in (run.opened.tail.aborted if read_committed else ())
            ]
            try:
                yield from decode_chunk(
                    data,
                    topic=split.topic,
                    partition=split.partition,
                    start_offset=split.start_offset,
                    end_offset=split.end_offset,
                    columns=columns,
                    aborted=aborted,
                    pure=pure,
                )
            except Corrupt as error:
                raise reader.corrupt(run.opened.piece, str(error)) from error


def open_object(store: ObjectStore, key: str, *, size_bytes: int, log_bytes: int, root_sha256: str) -> SegmentTail:
    """Everything behind an object's batches, with one GET. Raises `CorruptObject` or `ObjectMissing`.

    The chunk table is the one that the checkpoint vouches for: the root over its hashes, which `read_tail` checks,
    is `root_sha256`.
    """
    tail_bytes = size_bytes - log_bytes
    if not 0 < tail_bytes <= MAX_TAIL_BYTES:
        raise CorruptObject(f"the checkpoint gives its tail {tail_bytes} bytes")
    tail = read_tail(store.get_range(key, log_bytes, tail_bytes), size_bytes)
    if tail.footer.root_sha256.hex() != root_sha256:
        raise CorruptObject("its chunk table is not the one that the checkpoint knows: the object was replaced")
    return tail


class _SplitReader:
    """One pass over one split."""

    def __init__(self, store: ObjectStore, split: ColdSplit) -> None:
        self._store = store
        self._split = split

    def fetched(self, threads: ThreadPoolExecutor) -> Iterator[tuple[_Run, bytes]]:
        """Each run with its checked bytes, in order. At most `RUNS_IN_FLIGHT` are fetched or wait at a time."""
        waiting: deque[tuple[_Run, Future[bytes]]] = deque()
        try:
            for run in self._runs(threads):
                waiting.append((run, threads.submit(self._fetch, run)))
                if len(waiting) == RUNS_IN_FLIGHT:
                    first, data = waiting.popleft()
                    yield first, data.result()
            while waiting:
                first, data = waiting.popleft()
                yield first, data.result()
        finally:
            for _, data in waiting:
                data.cancel()

    def _runs(self, threads: ThreadPoolExecutor) -> Iterator[_Run]:
        """The wanted chunks of all pieces. The next object's tail is on its way while one is read."""
        pieces = self._split.pieces
        coming = threads.submit(self._open, pieces[0]) if pieces else None
        for number in range(len(pieces)):
            assert coming is not None
            opened = coming.result()
            coming = threads.submit(self._open, pieces[number + 1]) if number + 1 < len(pieces) else None
            run: list[ChunkRow] = []
            for chunk in self._wanted(opened):
                together = run and chunk.position == run[-1].position + run[-1].length
                if run and (not together or chunk.position + chunk.length - run[0].position > RUN_BYTES):
                    yield _Run(opened=opened, chunks=tuple(run))
                    run = []
                run.append(chunk)
            if run:
                yield _Run(opened=opened, chunks=tuple(run))

    def _wanted(self, opened: _OpenPiece) -> Iterator[ChunkRow]:
        split, piece = self._split, opened.piece
        for chunk in opened.tail.chunks:
            if (
                piece.start_position <= chunk.position < piece.end_position
                and chunk.first_offset < split.end_offset
                and chunk.last_offset >= split.start_offset
                and split.bounds.may_hold_times(chunk.proven_min_timestamp_ms, chunk.max_timestamp_ms)
            ):
                yield chunk

    def _open(self, piece: SegmentPiece) -> _OpenPiece:
        split = self._split
        try:
            tail = open_object(
                self._store,
                piece.object_key,
                size_bytes=piece.size_bytes,
                log_bytes=piece.log_bytes,
                root_sha256=piece.root_sha256,
            )
        except ObjectMissing as error:
            raise self._missing(piece) from error
        except Corrupt as error:
            raise self.corrupt(piece, str(error)) from error
        footer = tail.footer
        said = (footer.topic_id, footer.partition, footer.base_offset, footer.end_offset)
        if said != (split.topic_id, split.partition, piece.base_offset, piece.end_offset):
            raise self.corrupt(piece, "its footer is that of another segment: the object was swapped")
        fault = next(check_table(piece.base_offset, tail.chunks), None)
        if fault is not None:
            raise self.corrupt(piece, fault.message)
        return _OpenPiece(piece=piece, tail=tail)

    def _fetch(self, run: _Run) -> bytes:
        """The run's bytes, each chunk held against its SHA-256."""
        piece = run.opened.piece
        try:
            data = self._store.get_range(piece.object_key, run.position, run.length)
        except ObjectMissing as error:
            raise self._missing(piece) from error
        except Corrupt as error:
            raise self.corrupt(piece, str(error)) from error
        view = memoryview(data)
        for chunk in run.chunks:
            start = chunk.position - run.position
            if hashlib.sha256(view[start : start + chunk.length]).digest() != chunk.sha256:
                raise self.corrupt(
                    piece,
                    f"the chunk at position {chunk.position}, offsets {chunk.first_offset} to {chunk.last_offset}, "
                    "does not match its SHA-256",
                )
            if base_offset_of(view[start : start + 8]) != chunk.first_offset:
                raise self._other_offsets(piece, chunk)
        # By the next one's first offset its last one is proven too, but for the one that nobody reads on from.
        chunk = run.chunks[-1]
        *_, (_, last) = exact_batches(data, chunk.position - run.position, run.length)
        if last.last_offset != chunk.last_offset:
            raise self._other_offsets(piece, chunk)
        return data

    def _other_offsets(self, piece: SegmentPiece, chunk: ChunkRow) -> CorruptObject:
        """Which chunks a split needs is told by their offsets in the table, which the checkpoint does not vouch for."""
        return self.corrupt(piece, f"the chunk at position {chunk.position} has other offsets than its table says")

    def corrupt(self, piece: SegmentPiece, reason: str) -> CorruptObject:
        return CorruptObject(f"{self._name(piece)}: {reason}; restore the object, or read around these offsets")

    def _missing(self, piece: SegmentPiece) -> ObjectMissing:
        return ObjectMissing(
            f"{self._name(piece)}: the object is missing. If retention purged it while this job ran, start the job "
            "again or raise tiered.purge.grace.ms; otherwise the store has lost it"
        )

    def _name(self, piece: SegmentPiece) -> str:
        return (
            f"topic {self._split.topic} partition {self._split.partition} offsets {piece.base_offset} to "
            f"{piece.end_offset - 1}, object {piece.object_key}"
        )
